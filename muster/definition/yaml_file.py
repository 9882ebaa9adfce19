"""Reads a YAML file as Ansible does, and keeps the line of each key, item and value.

Ansible reads YAML 1.1 with PyYAML. With another parser, or as YAML 1.2, `4:00:00` or `022` would
mean one thing to `muster check` and another to the play; so this is PyYAML too, and spellings that
YAML 1.1 turns into something unexpected are reported.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from yaml.constructor import SafeConstructor  # type: ignore[import-untyped]

# libyaml is ten times faster; PyYAML may have been built without it.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

KeyPath = tuple[str | int, ...]
VAULT_HEADER = "$ANSIBLE_VAULT;"
_TAG = "tag:yaml.org,2002:"
# What YAML 1.1 computes from digits: 4:00:00 is 14400 (base 60), 0640 is 416 (base 8).
_BASE_60 = re.compile(r"[-+]?[0-9_]+(:[0-5]?[0-9])+(\.[0-9_]*)?")
_BASE_8 = re.compile(r"[-+]?0[0-7_]+")


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


def readable(value: object) -> str | None:
    """Return a value if it is text; None if it is not, or is encrypted."""
    return value if isinstance(value, str) and not isinstance(value, Vaulted) else None


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


def read(file: Path, shown_as: str) -> Document:
    """Reads a file; what is wrong with it is in `faults`.

    Raises OSError if it can't be read.
    """
    document = Document(shown_as)
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        document.faults.append(Fault("yaml-syntax", 1, (), f"not UTF-8 ({error.reason})"))
        return document
    if text.startswith(VAULT_HEADER):
        document.encrypted = True
        return document
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = ", ".join(part for part in (error.context, error.problem) if part)
        line = mark.line + 1 if mark else 1
        document.faults.append(Fault("yaml-syntax", line, (), said))
        return document
    except yaml.YAMLError as error:
        document.faults.append(Fault("yaml-syntax", 1, (), str(error).splitlines()[0]))
        return document
    if node is not None:
        document.lines[()] = node.start_mark.line + 1
        document.data = _Builder(document).build(node, ())
    return document


class _Builder:
    """Turns YAML nodes into plain data and notes lines and faults on the way."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.constructor = SafeConstructor()
        self.open: set[int] = set()

    def build(self, node: yaml.Node, path: KeyPath) -> Any:
        if id(node) in self.open:
            self._fault("yaml-syntax", node, path, "an alias that contains itself")
            return None
        self.open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, path)
            if isinstance(node, yaml.SequenceNode):
                return self._sequence(node, path)
            return self._scalar(node, path)
        finally:
            self.open.discard(id(node))

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        result: dict[str, Any] = {}
        merged: list[yaml.Node] = []
        for key_node, value_node in node.value:
            if key_node.tag == f"{_TAG}merge":
                many = isinstance(value_node, yaml.SequenceNode)
                merged.extend(value_node.value if many else [value_node])
                continue
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else "?"
            here = (*path, key)
            if key_node.tag != f"{_TAG}str":
                self._fault("key-not-text", key_node, here, key)
            if key in result:
                self._fault("duplicate-key", key_node, here, key)
            self.document.lines[here] = key_node.start_mark.line + 1
            result[key] = self.build(value_node, here)
        for merged_node in merged:
            if isinstance(merged_node, yaml.MappingNode):
                # Own keys win over merged ones, the first merged mapping over the next.
                result = {**self.build(merged_node, path), **result}
        return result

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
        if not node.tag.startswith(_TAG):
            self._fault("tag-in-definition", node, path, node.tag)
            return Vaulted(node.value) if node.tag == "!vault" else node.value
        if node.tag in (f"{_TAG}int", f"{_TAG}float"):
            # Later checks get the text or number that was meant: one mistake, one error.
            if _BASE_60.fullmatch(node.value):
                self._fault("number-with-colons", node, path, node.value)
                return node.value
            if _BASE_8.fullmatch(node.value):
                self._fault("number-with-leading-zero", node, path, node.value)
                return int(node.value.replace("_", ""))
        self.document.raw[path] = node.value
        try:
            return self.constructor.construct_object(node)
        except (yaml.YAMLError, ValueError) as error:
            self._fault("yaml-syntax", node, path, str(error).splitlines()[0])
            return None

    def _fault(self, kind: str, node: yaml.Node, path: KeyPath, text: str) -> None:
        self.document.faults.append(Fault(kind, node.start_mark.line + 1, path, text))
