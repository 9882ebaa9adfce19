"""Groups and hosts of hosts.yml, read as Ansible's YAML inventory plugin reads them."""

import itertools
import re
import string
from dataclasses import dataclass, field
from typing import Any

from muster.definition.definition import Hosts
from muster.definition.yaml_file import Document, Fault, KeyPath

GROUP_KEYS = ("hosts", "children", "vars")
_RANGE = re.compile(r"\[([0-9A-Za-z]*):([0-9A-Za-z]+)(?::([0-9]+))?\]")


class RangeError(ValueError):
    """A range of host names that Ansible does not read."""


def _numbers(begin: str, end: str, step: int) -> list[str]:
    # As Ansible: leading zeros of the first number give the width.
    width = len(begin) if begin.startswith("0") and len(begin) > 1 else 0
    if width and len(end) != width:
        raise RangeError(f"{begin} and {end} differ in length")
    first, last = int(begin or "0"), int(end)
    if first > last:
        raise RangeError(f"{begin} is above {end}")
    return [str(number).zfill(width) for number in range(first, last + 1, step)]


def _letters(begin: str, end: str, step: int) -> list[str]:
    letters = string.ascii_letters
    if len(begin) != 1 or len(end) != 1 or letters.index(begin) > letters.index(end):
        raise RangeError(f"{begin}:{end} is no range of letters")
    return list(letters[letters.index(begin) : letters.index(end) + 1 : step])


def expand(pattern: str) -> list[str]:
    """Names that match a pattern such as `lab-cpu-[01:02]`, in Ansible's order.

    Raises RangeError.
    """
    if "[" not in pattern:
        return [pattern]
    parts: list[list[str]] = []
    end = 0
    for match in _RANGE.finditer(pattern):
        parts.append([pattern[end : match.start()]])
        first, last, step = match.group(1), match.group(2), int(match.group(3) or 1)
        if step == 0:
            raise RangeError("a step of 0")
        numbers = (first or "0").isdigit() and last.isdigit()
        if not numbers and not (first.isalpha() and last.isalpha()):
            raise RangeError(f"{first}:{last} mixes numbers and letters")
        parts.append(_numbers(first, last, step) if numbers else _letters(first, last, step))
        end = match.end()
    parts.append([pattern[end:]])
    if any("[" in text or "]" in text for text in (parts[-1][0], *(p[0] for p in parts[:-1:2]))):
        raise RangeError("a range is written [01:16]")
    return ["".join(names) for names in itertools.product(*parts)]


@dataclass
class HostsTree:
    """What hosts.yml says: groups with their own hosts and children, and the place of each."""

    own_hosts: dict[str, list[str]] = field(default_factory=dict)
    children: dict[str, list[str]] = field(default_factory=dict)
    vars: dict[str, dict[str, Any]] = field(default_factory=dict)
    group_vars: dict[KeyPath, dict[str, Any]] = field(default_factory=dict)
    """Variables of groups by the keys in the file that lead to them."""
    places: dict[KeyPath, KeyPath] = field(default_factory=dict)
    """(group,) and (group, host) to the keys in the file; (all, host): where it is first named."""
    faults: list[Fault] = field(default_factory=list)

    def place(self, path: KeyPath) -> KeyPath:
        """Keys in the file of (group,) or (group, host)."""
        if path in self.places:
            return self.places[path]
        # A host that the group has from a child, or a group that the file does not name.
        return self.places.get(("all", *path[1:])) or ()

    def hosts(self) -> Hosts:
        """Hosts of each group with those of its children, in the order of the file."""
        memo: dict[str, dict[str, None]] = {}

        def members(group: str, above: tuple[str, ...]) -> dict[str, None]:
            if group in memo:
                return memo[group]
            names = dict.fromkeys(self.own_hosts.get(group, ()))
            for child in self.children.get(group, ()):
                if child not in above:
                    names.update(members(child, (*above, group)))
            memo[group] = names
            return names

        groups = {group: list(members(group, ())) for group in self.own_hosts}
        everything = dict.fromkeys(itertools.chain.from_iterable(groups.values()))
        groups["all"] = list(everything)
        return Hosts(groups, {host: self.vars.get(host, {}) for host in everything})


def parse(document: Document) -> HostsTree:
    """Reads the groups of a hosts.yml; what is wrong with its shape is in `faults`."""
    tree = HostsTree()
    if document.data is None:
        return tree
    if not isinstance(document.data, dict):
        tree.faults.append(Fault("hosts-shape", 1, (), "the file is no mapping of groups"))
        return tree
    reader = _Reader(document, tree)
    for group, content in document.data.items():
        reader.group(group, content, (group,), ())
    return tree


class _Reader:
    def __init__(self, document: Document, tree: HostsTree) -> None:
        self.document = document
        self.tree = tree

    def group(self, name: str, content: Any, path: KeyPath, above: tuple[str, ...]) -> None:
        self.tree.own_hosts.setdefault(name, [])
        self.tree.places.setdefault((name,), path)
        if name in above:
            self._fault("hosts-cycle", path, name)
            return
        if content is None:
            return
        if not isinstance(content, dict):
            self._fault("hosts-shape", path, f'group "{name}" is no mapping')
            return
        for key in content:
            if key not in GROUP_KEYS:
                self._fault("hosts-unknown-key", (*path, key), key)
        given = content.get("vars")
        if isinstance(given, dict):
            self.tree.group_vars[(*path, "vars")] = given
        self._hosts(name, content.get("hosts"), (*path, "hosts"))
        children = content.get("children")
        if children is not None and not isinstance(children, dict):
            self._fault("hosts-shape", (*path, "children"), "`children` is no mapping")
            return
        for child, below in (children or {}).items():
            self.tree.children.setdefault(name, []).append(child)
            self.group(child, below, (*path, "children", child), (*above, name))

    def _hosts(self, group: str, hosts: Any, path: KeyPath) -> None:
        if hosts is None:
            return
        if not isinstance(hosts, dict):
            self._fault("hosts-shape", path, "`hosts` is no mapping")
            return
        own = self.tree.own_hosts[group]
        for pattern, given in hosts.items():
            here = (*path, pattern)
            try:
                names = expand(pattern)
            except RangeError as error:
                self._fault("hosts-range", here, f"{pattern}: {error}")
                continue
            if given is not None and not isinstance(given, dict):
                self._fault("hosts-shape", here, f'what follows "{pattern}" is no mapping')
                given = None  # noqa: PLW2901 (read on without)
            own.extend(names)
            for name in names:
                self.tree.places.setdefault((group, name), here)
                self.tree.places.setdefault(("all", name), here)
                if given:
                    self.tree.vars[name] = {**self.tree.vars.get(name, {}), **given}

    def _fault(self, kind: str, path: KeyPath, text: str) -> None:
        self.tree.faults.append(Fault(kind, self.document.line(path) or 1, path, text))
