"""Groups and hosts of hosts.yml, read as Ansible's YAML inventory plugin reads them."""

import itertools
import math
import re
import string
from dataclasses import dataclass, field
from typing import Any

from muster.catalog.hostlists import MOST_NAMES
from muster.definition.definition import Hosts
from muster.definition.yaml_file import MOST_SHOWN, NO_YAML, Document, Fault, KeyPath

GROUP_KEYS = ("hosts", "children", "vars")
MOST_MEMBERSHIPS = 10 * MOST_NAMES
"""Hosts of all groups together; one host in ten groups counts ten times."""

_RANGE = re.compile(r"\[([0-9A-Za-z]{0,18}):([0-9A-Za-z]{1,18})(?::([0-9]{1,18}))?\]")
_TOO_MANY = f"more than {MOST_NAMES} hosts"


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
    if (last - first) // step >= MOST_NAMES:
        raise RangeError(_TOO_MANY)
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
    if math.prod(map(len, parts)) > MOST_NAMES:
        raise RangeError(_TOO_MANY)
    return ["".join(names) for names in itertools.product(*parts)]


@dataclass(frozen=True)
class GivenVariables:
    """What hosts.yml gives to the hosts of one pattern, or to the hosts of a group."""

    owner: str
    """The pattern or the group."""
    place: KeyPath
    """Keys in the file that lead to the variables."""
    variables: dict[str, Any]
    hosts: tuple[str, ...] | None = None
    """The hosts of the pattern; None: these are a group's."""


@dataclass
class HostsTree:
    """What hosts.yml says: groups with their own hosts and children, and the place of each."""

    own_hosts: dict[str, list[str]] = field(default_factory=dict)
    children: dict[str, dict[str, KeyPath]] = field(default_factory=dict)
    """Children of each group, with the keys in the file that make them that."""
    members: dict[str, dict[str, None]] = field(default_factory=dict)
    """Hosts of each group with those of its children, in the order of the file."""
    vars: dict[str, dict[str, Any]] = field(default_factory=dict)
    given: list[GivenVariables] = field(default_factory=list)
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
        groups = {group: list(names) for group, names in self.members.items()}
        everything = dict.fromkeys(itertools.chain.from_iterable(groups.values()))
        groups["all"] = list(everything)
        return Hosts(groups, {host: self.vars.get(host, {}) for host in everything})

    def children_first(self) -> tuple[list[str], list[tuple[str, str]]]:
        """Groups, each after its children; and each group and child that close a circle."""
        order: dict[str, None] = {}
        circles: dict[tuple[str, str], None] = {}
        for start in self.own_hosts:
            above = {start: iter(self.children.get(start, ()))} if start not in order else {}
            while above:
                group, children = next(reversed(above.items()))
                child = next(children, None)
                if child is None:
                    del above[group]
                    order[group] = None
                elif child in above:
                    circles[group, child] = None
                elif child not in order:
                    above[child] = iter(self.children.get(child, ()))
        return list(order), list(circles)


def parse(document: Document) -> HostsTree:
    """Reads the groups of a hosts.yml; what is wrong with its shape is in `faults`."""
    tree = HostsTree()
    if document.encrypted:
        tree.faults.append(Fault("hosts-encrypted", 1, (), "ansible-vault has encrypted it"))
    if document.data is None or any(fault.kind in NO_YAML for fault in document.faults):
        return tree
    if not isinstance(document.data, dict):
        tree.faults.append(Fault("hosts-shape", 1, (), "the file is no mapping of groups"))
        return tree
    reader = _Reader(document, tree)
    if document.data.get("plugin"):
        reader.fault("hosts-shape", ("plugin",), "`plugin` makes it no list of hosts for Ansible")
    for group, content in document.data.items():
        reader.group(group, content, (group,))
    reader.members()
    return tree


class _Reader:
    def __init__(self, document: Document, tree: HostsTree) -> None:
        self.document = document
        self.tree = tree
        self.named = 0

    def group(self, name: str, content: Any, path: KeyPath) -> None:
        """Read a group and those below it."""
        self.tree.own_hosts.setdefault(name, [])
        self.tree.places.setdefault((name,), path)
        if not name:
            self.fault("hosts-shape", path, "a group without a name")
        if name in GROUP_KEYS:
            self.fault("hosts-shape", path, f"`{name}` is not in a group")
            return
        if content is None:
            return
        if not isinstance(content, dict):
            self.fault("hosts-shape", path, f'group "{name}" is no mapping')
            return
        for key in content:
            if key not in GROUP_KEYS:
                self.fault("hosts-unknown-key", (*path, key), key)
        given = self._mapping(content, "vars", path)
        if given:
            self.tree.given.append(GivenVariables(name, (*path, "vars"), given))
        self._hosts(name, self._mapping(content, "hosts", path), (*path, "hosts"))
        for child, below in self._mapping(content, "children", path).items():
            here = (*path, "children", child)
            self.tree.children.setdefault(name, {}).setdefault(child, here)
            if child == "all":
                self.fault("hosts-cycle", here, child)
                continue
            self.group(child, below, here)

    def members(self) -> None:
        """Add to each group the hosts of its children."""
        order, circles = self.tree.children_first()
        for group, child in circles:
            if child != "all":
                self.fault("hosts-cycle", self.tree.children[group][child], child)
        count = 0
        for group in order:
            names = dict.fromkeys(self.tree.own_hosts[group])
            for child in self.tree.children.get(group, ()):
                names.update(self.tree.members.get(child, {}))
            count += len(names)
            if count > MOST_MEMBERSHIPS:
                text = f"its groups have more than {MOST_MEMBERSHIPS} hosts together"
                self.fault("hosts-shape", (), text)
                self.tree.members = {}
                return
            self.tree.members[group] = names
        self.tree.members = {group: self.tree.members[group] for group in self.tree.own_hosts}

    def _mapping(self, content: dict[str, Any], key: str, path: KeyPath) -> dict[str, Any]:
        """Return what a group has below a key; without it, or with a fault, nothing."""
        below = content.get(key)
        if isinstance(below, str) and below and key != "vars":
            return {below: None}  # as Ansible does with one name
        if below is not None and not isinstance(below, dict):
            self.fault("hosts-shape", (*path, key), f"`{key}` is no mapping")
        return below if isinstance(below, dict) else {}

    def _hosts(self, group: str, hosts: dict[str, Any], path: KeyPath) -> None:
        own = self.tree.own_hosts[group]
        for pattern, given in hosts.items():
            here = (*path, pattern)
            try:
                names = expand(pattern)
            except RangeError as error:
                self.fault("hosts-range", here, f"{pattern[:MOST_SHOWN]}: {error}")
                continue
            self.named += len(names)
            if self.named > MOST_NAMES:
                if self.named - len(names) <= MOST_NAMES:
                    self.fault("hosts-range", here, f"the file has {_TOO_MANY}")
                continue
            if given is not None and not isinstance(given, dict):
                self.fault("hosts-shape", here, f'what follows "{pattern}" is no mapping')
                given = None  # noqa: PLW2901 (read on without)
            own.extend(names)
            for name in names:
                self.tree.places.setdefault((group, name), here)
                self.tree.places.setdefault(("all", name), here)
                if given:
                    self.tree.vars[name] = {**self.tree.vars.get(name, {}), **given}
            if given:
                self.tree.given.append(GivenVariables(pattern, here, given, tuple(names)))

    def fault(self, kind: str, path: KeyPath, text: str) -> None:
        """Note that something is wrong at a place."""
        self.tree.faults.append(Fault(kind, self.document.line(path) or 1, path, text))
