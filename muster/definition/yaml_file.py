"""Reads a YAML file as Ansible does, and keeps the line of each key, item and value.

Ansible reads YAML 1.1 with PyYAML. With another parser, or as YAML 1.2, `4:00:00` or `022` would
mean one thing to `muster check` and another to the play; so this is PyYAML too, and spellings that
YAML 1.1 turns into something unexpected are reported.
"""

import re
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from yaml.constructor import SafeConstructor  # type: ignore[import-untyped]

MOST_LEVELS = 100
"""Mappings and lists in each other, in one file; a large definition has a tenth of it."""

MOST_FROM_ALIASES = 100_000
"""Values that the aliases of one file stand for; ten aliases in ten, and so on, stand for more."""

MOST_SHOWN = 60
"""Characters of a value in a message."""

MOST_BITS = 4096
"""Of a whole number. Python prints none of more than 4300 digits."""

# libyaml is ten times faster; PyYAML may have been built without it.
_FastLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

KeyPath = tuple[str | int, ...]
VAULT_HEADER = "$ANSIBLE_VAULT;"
_TAG = "tag:yaml.org,2002:"
# What YAML 1.1 computes from digits: 4:00:00 is 14400 (base 60), 0640 is 416 (base 8).
_BASE_60 = re.compile(r"[-+]?[0-9_]+(:[0-5]?[0-9])+(\.[0-9_]*)?")
_BASE_8 = re.compile(r"[-+]?0[0-7_]+")
# What constructors of PyYAML raise where a tag does not fit its value: `!!bool x` a KeyError.
_CONSTRUCTOR_ERRORS = (
    yaml.YAMLError,
    ValueError,
    LookupError,
    AttributeError,
    TypeError,
    ArithmeticError,
)
# Tags of Ansible, in Ansible's own words (ansible.parsing.yaml).
_VAULT_TAGS = ("!vault", "!vault-encrypted")
_UNSAFE_TAG = "!unsafe"


class _Loader(_FastLoader):  # type: ignore[misc]
    """A loader that refuses what is nested too deeply: libyaml would overrun the stack."""

    levels = 0

    def descend_resolver(self, current_node: yaml.Node, current_index: object) -> None:  # noqa: ARG002
        """Note that the next node is one level below.

        Both loaders of PyYAML call this for each node; for path resolvers, of which it has none.
        """
        self.levels += 1
        if self.levels > MOST_LEVELS:
            raise _TooMuchError(_TOO_DEEP, current_node.start_mark.line + 1)

    def ascend_resolver(self) -> None:
        """Note that a node is complete."""
        self.levels -= 1


class _TooMuchError(yaml.YAMLError):  # type: ignore[misc]
    """A file that is beyond one of the bounds."""

    def __init__(self, text: str, line: int) -> None:
        super().__init__(text)
        self.line = line


_TOO_DEEP = f"more than {MOST_LEVELS} mappings and lists in each other"
_TOO_MANY = f"its aliases stand for more than {MOST_FROM_ALIASES} values"

NO_YAML = ("yaml-syntax", "yaml-bounds")
"""Kinds of faults of a file whose data is not what it means to say."""


@dataclass(frozen=True)
class Fault:
    """Something that is wrong with a file before its meaning is checked."""

    kind: str
    line: int
    path: KeyPath
    text: str
    """What the file has there, or what the parser says."""


class Vaulted(str):
    """A value that ansible-vault has encrypted: there, but not readable here."""

    __slots__ = ()


@dataclass
class Document:
    """A YAML file: plain data, and where each part of it is written."""

    file: str
    data: Any = None
    lines: dict[KeyPath, int] = field(default_factory=dict)
    raw: dict[KeyPath, str] = field(default_factory=dict)
    """How scalars that are not text are spelt: 22.10 for the number 22.1."""
    faults: list[Fault] = field(default_factory=list)
    encrypted: bool = False

    def line(self, path: KeyPath) -> int | None:
        """Line of the key or item; if it has none, that of the nearest one around it.

        None where the data came from no file.
        """
        if not self.lines:
            return None
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def is_below(path: KeyPath, places: set[KeyPath]) -> bool:
    """Return whether a path is one of these places, or below one."""
    return any(path[:length] in places for length in range(1, len(path) + 1))


def data(text: str | bytes) -> Any:
    """Return the data of one of Muster's own files: where it is written does not matter."""
    return yaml.load(text, Loader=_FastLoader)  # noqa: S506 (a safe one)


def read(file: Path, shown_as: str) -> Document:
    """Reads a file; what is wrong with it is in `faults`.

    Raises OSError if it can't be read.
    """
    mode = file.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        # To read from a pipe or a device may never end.
        raise OSError(None, "neither a file nor a link to one")
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        fault = Fault("yaml-syntax", 1, (), f"not UTF-8 ({error.reason})")
        return Document(shown_as, faults=[fault])
    return parse(text, shown_as)


def parse(text: str, shown_as: str) -> Document:
    """Reads the text of a file; what is wrong with it is in `faults`."""
    document = Document(shown_as)
    if text.startswith(VAULT_HEADER):
        document.encrypted = True
        return document
    try:
        node = yaml.compose(text, Loader=_Loader)
    except _TooMuchError as error:
        document.faults.append(Fault("yaml-bounds", error.line, (), str(error)))
        return document
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        document.faults.append(
            Fault("yaml-syntax", mark.line + 1 if mark else 1, (), _said(error, mark, text))
        )
        return document
    except yaml.YAMLError as error:
        document.faults.append(Fault("yaml-syntax", 1, (), str(error).splitlines()[0]))
        return document
    if node is not None:
        document.lines[()] = node.start_mark.line + 1
        try:
            document.data = _Builder(document).build(node, ())
        except _TooMuchError as error:
            document.faults.append(Fault("yaml-bounds", error.line, (), str(error)))
    return document


class _Builder:
    """Turns YAML nodes into plain data and notes lines and faults on the way."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.constructor = SafeConstructor()
        self.open: set[int] = set()
        self.built: set[int] = set()
        self.from_aliases = 0

    def build(self, node: yaml.Node, path: KeyPath) -> Any:
        """Return the value of a node.

        Raises _TooMuchError.
        """
        if id(node) in self.open:
            self._fault("yaml-syntax", node, path, "an alias that contains itself")
            return None
        if id(node) in self.built:
            self.from_aliases += 1
            if self.from_aliases > MOST_FROM_ALIASES:
                raise _TooMuchError(_TOO_MANY, node.start_mark.line + 1)
        if len(path) > MOST_LEVELS:
            raise _TooMuchError(_TOO_DEEP, node.start_mark.line + 1)
        self.open.add(id(node))
        self.built.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                self._refuse_tag(node, path, "map")
                return self._mapping(node, path)
            if isinstance(node, yaml.SequenceNode):
                self._refuse_tag(node, path, "seq")
                return self._sequence(node, path)
            return self._scalar(node, path)
        finally:
            self.open.discard(id(node))

    def _refuse_tag(self, node: yaml.Node, path: KeyPath, usual: str) -> None:
        """Note a tag that makes something else of a mapping or list: a set, an object, nothing."""
        if node.tag == _UNSAFE_TAG:
            self._fault("tag-in-definition", node, path, node.tag)
        elif node.tag != f"{_TAG}{usual}":
            self._fault("yaml-syntax", node, path, f"the tag {_shown(node.tag)} on a {usual}")

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        merged: list[yaml.Node] = []
        own: list[tuple[yaml.Node, yaml.Node]] = []
        for key_node, value_node in node.value:
            if key_node.tag == f"{_TAG}merge":
                many = isinstance(value_node, yaml.SequenceNode)
                merged.extend(value_node.value if many else [value_node])
            else:
                own.append((key_node, value_node))
        result: dict[str, Any] = {}
        # Own keys win over merged ones, the first merged mapping over the next.
        for merged_node in reversed(merged):
            if isinstance(merged_node, yaml.MappingNode):
                result.update(self.build(merged_node, path))
            else:
                self._fault("yaml-syntax", merged_node, path, "`<<` takes mappings alone")
                break
        keys: set[str] = set()
        for key_node, value_node in own:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else "?"
            here = (*path, key)
            if key_node.tag != f"{_TAG}str":
                self._other_key(key_node, here, key)
            self.document.lines[here] = key_node.start_mark.line + 1
            value = self.build(value_node, here)
            if key in keys:
                self._fault("duplicate-key", key_node, here, key)
                value = _both(result[key], value)
            keys.add(key)
            result[key] = value
        return result

    def _other_key(self, node: yaml.Node, here: KeyPath, key: str) -> None:
        """Note a key that is no text."""
        if not isinstance(node, yaml.ScalarNode):
            self._fault("yaml-syntax", node, here, "a mapping or list as a key")
            return
        try:
            self.constructor.construct_object(node)
        except _CONSTRUCTOR_ERRORS:
            self._fault("yaml-syntax", node, here, _misfit(node))
        else:
            self._fault("key-not-text", node, here, key)

    def _sequence(self, node: yaml.SequenceNode, path: KeyPath) -> list[Any]:
        result = []
        for index, item in enumerate(node.value):
            here = (*path, index)
            self.document.lines[here] = item.start_mark.line + 1
            result.append(self.build(item, here))
        return result

    def _scalar(self, node: yaml.ScalarNode, path: KeyPath) -> Any:
        if node.tag == f"{_TAG}str":
            return node.value
        if node.tag in _VAULT_TAGS:
            self._fault("tag-in-definition", node, path, node.tag)
            return Vaulted(node.value)
        if node.tag == _UNSAFE_TAG:
            self._fault("tag-in-definition", node, path, node.tag)
            return node.value
        if node.tag in (f"{_TAG}int", f"{_TAG}float"):
            # Later checks get the text or number that was meant: one mistake, one error.
            if _BASE_60.fullmatch(node.value):
                self._fault("number-with-colons", node, path, node.value)
                return node.value
            if _BASE_8.fullmatch(node.value):
                self._fault("number-with-leading-zero", node, path, node.value)
                return self._constructed(node, path, int, node.value.replace("_", ""))
        self.document.raw[path] = node.value
        return self._constructed(node, path, self.constructor.construct_object, node)

    def _constructed(
        self, node: yaml.ScalarNode, path: KeyPath, construct: Callable[[Any], Any], given: Any
    ) -> Any:
        """Return what a constructor makes of a scalar; None, and a fault, if it makes nothing."""
        try:
            value = construct(given)
        except _CONSTRUCTOR_ERRORS:
            self._fault("yaml-syntax", node, path, _misfit(node))
            return None
        if isinstance(value, dict | list | set | bytes):
            # `!!set x` and the like: of text, what they make is empty.
            self._fault("yaml-syntax", node, path, _misfit(node))
            return None
        if isinstance(value, int) and value.bit_length() > MOST_BITS:
            self._fault("yaml-bounds", node, path, f"a number of {value.bit_length()} bits")
            return None
        return value

    def _fault(self, kind: str, node: yaml.Node, path: KeyPath, text: str) -> None:
        self.document.faults.append(Fault(kind, node.start_mark.line + 1, path, text))


def _both(first: Any, second: Any) -> Any:
    """Return the value of a key that is written twice, the first one changed in place.

    YAML takes the last value. One mistake, one error: later checks don't miss what only the first
    one has, or the one of the two that is a mapping.
    """
    if isinstance(first, dict) and isinstance(second, dict):
        for key, value in second.items():
            first[key] = _both(first[key], value) if key in first else value
    elif isinstance(first, list) and isinstance(second, list) and first != second:
        first.extend(second)
    elif second is not None and not isinstance(first, dict):
        return second
    return first


def _said(error: yaml.MarkedYAMLError, mark: yaml.Mark | None, text: str) -> str:
    """What the parser says, and what it says this of."""
    said = ", ".join(part for part in (error.context, error.problem) if part)
    rest = text[mark.index :].partition("\n")[0].strip() if mark else ""
    if mark and text[mark.index : mark.index + 1] == "\t":
        return f"{said}: a tab, and YAML indents with blanks"
    return f"{said}: {_cut(rest)}" if rest else said


def _cut(text: str) -> str:
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def _shown(tag: str) -> str:
    """A tag as files have it."""
    return f"!!{tag.removeprefix(_TAG)}" if tag.startswith(_TAG) else tag


def _misfit(node: yaml.ScalarNode) -> str:
    """Say that a tag does not fit its value, or that there is no such tag."""
    return f'"{_cut(node.value)}" can\'t be read as the tag {_shown(node.tag)} says'
