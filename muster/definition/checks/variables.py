"""The variables that an inventory gives to its groups and hosts, wherever it does."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from muster.definition.checks.registry import Finding
from muster.definition.inventory_files import HOST_VARS
from muster.definition.sources import Sources, overridden
from muster.definition.yaml_file import NO_YAML, Document, KeyPath


@dataclass(frozen=True)
class Variable:
    """One variable at one place."""

    name: str
    value: Any
    document: Document
    file: str
    """As findings call it."""
    place: KeyPath
    """Keys in the file."""
    path: KeyPath
    """Keys as findings show them: of hosts.yml without those of the groups around."""
    owner: str
    """The group, host or pattern of hosts."""
    hosts: tuple[str, ...] | None
    """Hosts that it is given to by name; None: it is a group's."""

    @property
    def line(self) -> int | None:
        """Line of its name."""
        return self.document.line(self.place)

    @property
    def spelt(self) -> str | None:
        """A number whose spelling YAML 1.1 takes for another base, as it is written; else None."""
        if not self.document.faults:
            return None
        kinds = ("number-with-colons", "number-with-leading-zero")
        faults = (fault for fault in self.document.faults if fault.kind in kinds)
        return next((fault.text for fault in faults if fault.path == self.place), None)

    def finding(self, message: str, remedy: str, mistake: str = "") -> Finding:
        """Return what is wrong with it."""
        return Finding(self.path, message, remedy, self.file, self.line, mistake=mistake)


def variables(sources: Sources, names: Collection[str] | None = None) -> Iterator[Variable]:
    """Yield the variables of hosts.yml, then those of all files with variables but cluster.yml.

    `names`: only those that are called so.
    """
    if sources.index is None:
        sources.index = {}
        for variable in _all(sources):
            sources.index.setdefault(variable.name, []).append(variable)
    for name in sources.index if names is None else names:
        yield from sources.index.get(name, ())


def _all(sources: Sources) -> Iterator[Variable]:
    for given in sources.tree.given:
        below = (given.owner,) if given.hosts else (given.owner, "vars")
        above = (given.place[-3],) if given.hosts else ()
        for name, value in given.variables.items():
            place = (*given.place, name)
            path = (*map(str, above), *below, name)
            yield Variable(
                name, value, sources.hosts, "hosts", place, path, given.owner, given.hosts
            )
    for file, document in {**sources.others, **sources.overrides}.items():
        if not isinstance(document.data, dict) or any(f.kind in NO_YAML for f in document.faults):
            continue
        owner = "all" if file in sources.others else overridden(file)
        hosts = (owner,) if file.startswith(f"{HOST_VARS}/") else None
        for name, value in document.data.items():
            yield Variable(name, value, document, file, (name,), (name,), owner, hosts)
