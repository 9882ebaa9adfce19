"""The registry of checks: each is a row of a table or a small function, and says what it finds."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from muster.definition.definition import Definition
from muster.definition.sources import Sources
from muster.definition.spelling import nearest
from muster.definition.yaml_file import KeyPath


@dataclass(frozen=True)
class Finding:
    """What a check found: where in which file, what is wrong, what to do."""

    path: KeyPath
    """Keys below `cluster`, or in hosts.yml a group, or a group and one of its hosts."""
    message: str
    remedy: str
    file: str = "cluster"
    """cluster, hosts, or a further file of the inventory as Sources calls it."""
    line: int | None = None
    """Set where it does not follow from the path."""
    because: KeyPath = ()
    """Keys of the other part of the definition that the finding follows from."""
    other: KeyPath = ()
    """Keys below `cluster` that the message ends with: file and line are added to it."""
    mistake: str = ""
    """The mistake of which a check finds more: one finding is shown, and how many there are."""


DefinitionCheck = Callable[[Definition], Iterator[Finding]]
SourceCheck = Callable[[Sources], Iterator[Finding]]


@dataclass(frozen=True)
class Check:
    """A named check: of the files (`of_sources`) or of a definition that has the right shape."""

    name: str
    summary: str
    of_definition: DefinitionCheck | None = None
    of_sources: SourceCheck | None = None
    reads_hosts: bool = False
    """Whether it is pointless where hosts.yml could not be read."""
    claims: frozenset[str] = frozenset()
    """Kinds of faults that it reports; one that no check claims is reported in general words."""


CHECKS: dict[str, Check] = {}


def add(check: Check) -> None:
    """Registers a check.

    Raises ValueError if there is one of that name already: it would take its place.
    """
    if check.name in CHECKS:
        raise ValueError(f"two checks are called {check.name}")
    CHECKS[check.name] = check


def _summary(function: Callable[..., object]) -> str:
    return (function.__doc__ or "").strip().splitlines()[0].rstrip(".")


def check(name: str, *, reads_hosts: bool = False) -> Callable[[DefinitionCheck], DefinitionCheck]:
    """Registers a check of the definition."""

    def register(function: DefinitionCheck) -> DefinitionCheck:
        add(Check(name, _summary(function), of_definition=function, reads_hosts=reads_hosts))
        return function

    return register


def source_check(name: str, *claims: str) -> Callable[[SourceCheck], SourceCheck]:
    """Registers a check of the files, before their meaning is looked at."""

    def register(function: SourceCheck) -> SourceCheck:
        add(Check(name, _summary(function), of_sources=function, claims=frozenset(claims)))
        return function

    return register


def suggestion(word: str, known: Iterable[str], otherwise: str) -> str:
    """`did you mean "x"?` if a known word is near, else the known ones, else `otherwise`."""
    names = sorted(known)
    near = nearest(word, names)
    if near is not None:
        return f'did you mean "{near}"?'
    if names and len(names) <= 8:
        return f"known: {', '.join(names)}"
    return otherwise


def repeated(items: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Position and text of each item that an earlier one equals."""
    seen: set[str] = set()
    for index, item in enumerate(items):
        if item in seen:
            yield index, item
        seen.add(item)
