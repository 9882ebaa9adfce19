"""Keys of the definition that are right and stand one level too high or too low."""

import copy
import typing
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import BaseModel

from muster.definition.schema.cluster import Cluster
from muster.definition.schema.node_sets import KINDS, NodeSet
from muster.definition.schema_errors import MISPLACED, SchemaError, plain_type
from muster.definition.spelling import nearest
from muster.definition.yaml_file import KeyPath, is_below

_ROUNDS = 6
"""A key that was moved may have others below it that belong elsewhere, and so on."""


@dataclass(frozen=True)
class Misplaced:
    """Keys of one mapping that belong into another one."""

    here: KeyPath
    """The mapping that has them."""
    keys: tuple[str, ...]
    there: KeyPath
    """The mapping that should have them."""
    follows: bool = False
    """Whether it follows from a key that is moved, so that nobody need be told."""

    def error(self) -> SchemaError:
        """Return it as an error of the schema, at the first key."""
        path = (*self.here, self.keys[0])
        meant = (*self.there, self.keys[0]) if len(self.keys) == 1 else self.there
        context = {"keys": self.keys, "there": self.there, "meant": meant}
        return SchemaError(MISPLACED, path, path, None, context)


def beside_cluster(data: Any) -> list[str]:
    """Return the keys of the definition that a file has beside `cluster`."""
    if not isinstance(data, dict) or not isinstance(data.get("cluster"), dict):
        return []
    return [key for key in data if key in Cluster.model_fields and key not in data["cluster"]]


def put_right(data: Any, beside: Iterable[str] = ()) -> tuple[Any, list[Misplaced]]:
    """Return the definition with each such key where it belongs, and what was moved.

    `beside`: keys that stood beside `cluster`; what was below them is no news.
    """
    told: list[Misplaced] = []
    moved: set[KeyPath] = {(key,) for key in beside}
    for _ in range(_ROUNDS):
        found = _joined(_in_model(data, Cluster, (), ()))
        if not found:
            break
        data = copy.deepcopy(data)
        told += [keys for keys in found if not keys.follows and not is_below(keys.here, moved)]
        moved |= {(*keys.there, key) for keys in found for key in keys.keys}
        # Those below a key that is moved itself come before it.
        for keys in sorted(found, key=lambda keys: -len(keys.here)):
            _move(data, keys)
    return data, told


def _joined(found: Iterator[Misplaced]) -> list[Misplaced]:
    """Keys with one way to go become one; each key goes one way only."""
    keys_by_way: dict[tuple[KeyPath, KeyPath, bool], list[str]] = {}
    seen: set[KeyPath] = set()
    for misplaced in found:
        way = (misplaced.here, misplaced.there, misplaced.follows)
        new = [key for key in misplaced.keys if (*misplaced.here, key) not in seen]
        seen |= {(*misplaced.here, key) for key in new}
        if new:
            keys_by_way.setdefault(way, []).extend(new)
    return [
        Misplaced(here, tuple(keys), there, follows)
        for (here, there, follows), keys in keys_by_way.items()
    ]


def _move(data: Any, misplaced: Misplaced) -> None:
    here, there = _at(data, misplaced.here), data
    for key in misplaced.there:
        if there.get(key) is None:
            there[key] = {}
        there = there[key]
    for key in misplaced.keys:
        there.setdefault(key, here.pop(key))


def _at(data: Any, path: KeyPath) -> Any:
    for key in path:
        data = data[key]
    return data


@dataclass(frozen=True)
class _Above:
    """A mapping around another one."""

    path: KeyPath
    kind: Any
    data: dict[str, Any]

    def lacks(self, key: str, value: Any, after: dict[str, Any]) -> bool:
        """Whether a key belongs here and is not there.

        `after`: what follows the key in its mapping, for a key that has no value itself.
        """
        if key in self.data or not _holds(self.kind, key, value):
            return False
        if not _is_model(self.kind):
            return True
        kind = _fields(self.kind)[key]
        follower = next(iter(after.items()), None)
        if value is None and follower is not None:
            return _holds(kind, *follower)
        return _fits(value, kind)


@cache
def _fields(model: Any) -> dict[str, Any]:
    """Key -> type of a mapping of the schema; those of both kinds for a node set."""
    models = KINDS.values() if model == plain_type(NodeSet) else [model]
    return {
        key: plain_type(field.annotation)
        for kind in models
        for key, field in getattr(kind, "model_fields", {}).items()
    }


def _is_model(kind: Any) -> bool:
    return kind == plain_type(NodeSet) or (isinstance(kind, type) and issubclass(kind, BaseModel))


def _content(kind: Any) -> Any:
    """The type of the values of a mapping whose keys people choose; None for other types."""
    return plain_type(typing.get_args(kind)[1]) if typing.get_origin(kind) is dict else None


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value of several parts has the shape of a type of several parts."""
    if typing.get_origin(kind) is list:
        return isinstance(value, list)
    return isinstance(value, dict) and (_is_model(kind) or _content(kind) is not None)


def _holds(kind: Any, key: str, value: Any) -> bool:
    """Whether a mapping of this type can have a key with such a value."""
    if _is_model(kind):
        return key in _fields(kind)
    content = _content(kind)
    if _is_model(content):
        return _is_like(value, content)
    if _content(content) is not None:
        if not isinstance(value, dict) or not value:
            return False
        return 2 * sum(_holds(content, *item) for item in value.items()) > len(value)
    if typing.get_origin(content) is list:
        return isinstance(value, list)
    return content is not None and not isinstance(value, dict | list)


def _is_like(value: Any, model: Any) -> bool:
    """Whether most keys of a value are those of a model."""
    if not isinstance(value, dict) or not value:
        return False
    if any(below is None and key not in _fields(model) for key, below in value.items()):
        return False  # a name whose content is not indented far enough
    return 2 * len(value.keys() & _fields(model).keys()) > len(value)


def _in_model(
    data: Any, model: Any, path: KeyPath, above: tuple[_Above, ...]
) -> Iterator[Misplaced]:
    """Keys of a mapping with given keys, and of those below it, that belong elsewhere."""
    if not isinstance(data, dict):
        return
    fields = _fields(model)
    yield from _of_the_key_before(data, path, fields, fields)
    for key, value in data.items():
        if key in fields:
            around = (*above, _Above(path, model, data))
            yield from _below(value, fields[key], (*path, key), around)
        else:
            yield from _of_above(data, path, key, above)


def _below(value: Any, kind: Any, path: KeyPath, above: tuple[_Above, ...]) -> Iterator[Misplaced]:
    content = _content(kind)
    if _is_model(kind):
        yield from _in_model(value, kind, path, above)
    elif content is not None and isinstance(value, dict):
        around = (*above, _Above(path, kind, value))
        names = {name for name, below in value.items() if _is_name(kind, name, below)}
        yield from _of_the_key_before(value, path, dict.fromkeys(value, content), names)
        for name, below in value.items():
            if not _holds(kind, name, below):
                yield from _of_above(value, path, name, above)
            if content is not None:
                yield from _below(below, content, (*path, name), around)


def _takes_any_name(kind: Any) -> bool:
    """Whether only the name says if a key belongs into a mapping: all values are single ones."""
    content = _content(kind)
    has_parts = _is_model(content) or typing.get_origin(content) in (dict, list)
    return content is not None and not has_parts


def _is_name(kind: Any, key: str, value: Any) -> bool:
    """Whether a key of a mapping whose keys people choose is one of these."""
    content = _content(kind)
    if _is_model(content):
        return key not in _fields(content) or _is_like(value, content)
    return value is None or _holds(kind, key, value)


def _of_the_key_before(
    data: dict[str, Any], path: KeyPath, kinds: dict[str, Any], right: Collection[str]
) -> Iterator[Misplaced]:
    """Keys that belong below the key before them; those of `right` are where they belong."""
    before: str | None = None
    for key, value in data.items():
        if key in right:
            before = key
        elif before is not None:
            there = data[before]
            is_free = there is None or (isinstance(there, dict) and key not in there)
            # SLURM's parameters have any name: a key that is nearly a right one is misspelt.
            misspelt = _takes_any_name(kinds[before]) and nearest(str(key), right)
            if is_free and not misspelt and _holds(kinds[before], key, value):
                yield Misplaced(path, (key,), (*path, before))


def _of_above(
    data: dict[str, Any], path: KeyPath, key: str, above: tuple[_Above, ...]
) -> Iterator[Misplaced]:
    """A key that belongs to a mapping around, and those that follow it and belong below it."""
    names = list(data)
    after = {name: data[name] for name in names[names.index(key) + 1 :]}
    around = next((a for a in reversed(above) if a.lacks(key, data[key], after)), None)
    if around is None:
        return
    yield Misplaced(path, (key,), around.path)
    if data[key] is None:
        kind = _fields(around.kind)[key]
        for name, value in after.items():
            if not _holds(kind, name, value):
                break
            yield Misplaced(path, (name,), (*around.path, key), follows=True)
