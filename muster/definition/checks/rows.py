"""Checks that are rows of a table: one class for each shape that many checks have.

A row is data: its name, what it refuses (the reference shows that), the values that it looks at,
what the shape needs, the message and the remedy. In a message `{value}` is the value.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from muster.definition.checks.registry import Check, Finding, add, suggestion
from muster.definition.definition import Definition
from muster.definition.repeats import MOST
from muster.definition.yaml_file import KeyPath

Values = Callable[[Definition], Iterable[tuple[KeyPath, Any]]]
"""Finds values in a definition, each with its path."""


def at(*paths: str) -> Values:
    """Values by paths such as `partitions.<name>.groups.[]`; what is null is left out.

    `<name>` stands for each name of a mapping, `[]` for each item of a list. A path that ends with
    `<name>` finds the names themselves.
    """
    split = [path.split(".") for path in paths]
    return lambda d: (value for keys in split for value in _below(d.cluster, keys))


def _below(cluster: Any, keys: list[str]) -> list[tuple[KeyPath, Any]]:
    found: list[tuple[KeyPath, Any]] = [((), cluster)]
    for number, key in enumerate(keys, 1):
        if key == "[]":
            found = [((*path, n), item) for path, here in found for n, item in enumerate(here)]
        elif key.startswith("<"):
            of_names = number == len(keys)
            found = [
                ((*path, name), name if of_names else value)
                for path, here in found
                for name, value in here.items()
            ]
        else:
            found = [((*path, key), getattr(here, key)) for path, here in found]
        found = [(path, here) for path, here in found if here is not None]
    return found


@dataclass(frozen=True)
class Row(ABC):
    """What the rows of all shapes have."""

    name: str
    refuses: str

    @abstractmethod
    def check(self) -> Check:
        """The check that the row describes."""


_ROWS: list[Row] = []


def table(*more: Row) -> None:
    """Registers rows as checks."""
    for row in more:
        add(row.check())
        _ROWS.append(row)


def rows() -> tuple[Row, ...]:
    """Return all rows of all tables."""
    return tuple(_ROWS)


@dataclass(frozen=True)
class ValueRow(Row):
    """What the rows have that look at values."""

    values: Values
    file: str = field(default="cluster", kw_only=True)
    """The file that has the values: cluster or hosts."""

    @abstractmethod
    def findings(self, d: Definition) -> Iterator[Finding]:
        """The values that are wrong."""

    def check(self) -> Check:
        """The check of the values."""
        reads_hosts = self.file == "hosts"
        return Check(self.name, self.refuses, of_definition=self.findings, reads_hosts=reads_hosts)


@dataclass(frozen=True)
class Spelling(ValueRow):
    """Values that must match a pattern, or that a function must accept."""

    rule: str | Callable[[str], object]
    message: str
    remedy: str

    def findings(self, d: Definition) -> Iterator[Finding]:
        """The values that don't match."""
        accepts = re.compile(self.rule).fullmatch if isinstance(self.rule, str) else self.rule
        for path, value in self.values(d):
            if not accepts(value):
                yield Finding(path, self.message.format(value=value), self.remedy, self.file)


@dataclass(frozen=True)
class ReservedWord(ValueRow):
    """Names that have another meaning already."""

    words: Collection[str]
    message: str
    remedy: str
    any_case: bool = False
    """Whether large letters make no difference; then the words are in small ones."""

    def findings(self, d: Definition) -> Iterator[Finding]:
        """The names that are among the words."""
        for path, value in self.values(d):
            if (value.casefold() if self.any_case else value) in self.words:
                yield Finding(path, self.message.format(value=value), self.remedy, self.file)


@dataclass(frozen=True)
class ListedTwice(ValueRow):
    """Items that are in their list already."""

    def findings(self, d: Definition) -> Iterator[Finding]:
        """Each item that an earlier one of the same list equals."""
        seen: set[tuple[KeyPath, str]] = set()
        for path, value in self.values(d):
            item = (path[:-1], value)
            if item in seen:
                yield Finding(path, f'"{value}" is listed twice', "take one out", self.file)
            seen.add(item)


@dataclass(frozen=True)
class SharedValue(ValueRow):
    """Values that only one may have.

    In the message `{first}` is the path of the one that has the value, `{path}` that of the other.
    """

    message: str
    remedy: str

    def findings(self, d: Definition) -> Iterator[Finding]:
        """Each value that an earlier one equals."""
        first_path: dict[object, KeyPath] = {}
        for path, value in self.values(d):
            first = first_path.setdefault(value, path)
            if first is not path:
                message = self.message.format(value=value, path=path, first=first)
                yield Finding(path, message, self.remedy, self.file)


@dataclass(frozen=True)
class UnknownName(ValueRow):
    """Names of something that must be described elsewhere in the definition."""

    known: str
    """Path of the names, such as `users.groups.<name>`; of two they are joined by a slash."""
    message: str
    remedy: str
    """What to do if no known name is near."""

    def findings(self, d: Definition) -> Iterator[Finding]:
        """The names that are not among the known ones."""
        place, known = place_of(self.known), names_of(d, self.known)
        slashes = self.known.count("<") - 1
        unknown = 0
        for path, value in self.values(d):
            if value not in known:
                unknown += 1
                # To compare thousands of names with thousands takes minutes, and they aren't shown.
                near = suggestion(value, known, self.remedy) if unknown <= MOST else self.remedy
                yield Finding(
                    path,
                    self.message.format(value=value),
                    near,
                    self.file,
                    because=(*place, *value.rsplit("/", slashes)),
                )


def place_of(known: str) -> KeyPath:
    """Keys of the mapping that has the names of a path such as `users.groups.<name>`."""
    return tuple(key for key in known.split(".") if not key.startswith("<"))


def names_of(d: Definition, known: str) -> set[str]:
    """Names that the definition has at a path such as `users.groups.<name>`."""
    place = place_of(known)
    return {"/".join(map(str, path[len(place) :])) for path, _ in at(known)(d)}
