"""Keys of the definition that are right and stand one level too high or too low."""

import copy
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from muster.definition.schema.cluster import Cluster
from muster.definition.schema.node_sets import KINDS, NodeSet
from muster.definition.schema_errors import MISPLACED, SchemaError, plain_type
from muster.definition.yaml_file import KeyPath


@dataclass(frozen=True)
class Misplaced:
    """Keys that follow each other in one mapping and belong into another one."""

    here: KeyPath
    """The mapping that has them."""
    keys: tuple[str, ...]
    there: KeyPath
    """The mapping that should have them."""

    def error(self) -> SchemaError:
        """Return it as an error of the schema, at the first key."""
        path = (*self.here, self.keys[0])
        meant = (*self.there, self.keys[0]) if len(self.keys) == 1 else self.there
        context = {"keys": self.keys, "there": self.there, "meant": meant}
        return SchemaError(MISPLACED, path, path, None, context)


def put_right(data: Any) -> tuple[Any, list[Misplaced]]:
    """Return the definition with each such key where it belongs, and what was moved."""
    found = list(_in_model(data, Cluster, (), ()))
    if not found:
        return data, []
    moved = copy.deepcopy(data)
    # Those below a key that is moved itself come before it.
    for misplaced in sorted(found, key=lambda misplaced: -len(misplaced.here)):
        here, there = _at(moved, misplaced.here), _at(moved, misplaced.there[:-1])
        if misplaced.there:
            if there[misplaced.there[-1]] is None:
                there[misplaced.there[-1]] = {}
            there = there[misplaced.there[-1]]
        for key in misplaced.keys:
            there[key] = here.pop(key)
    return moved, found


def _at(data: Any, path: KeyPath) -> Any:
    for key in path:
        data = data[key]
    return data


@dataclass(frozen=True)
class _Above:
    """A mapping of the schema around another one."""

    path: KeyPath
    fields: dict[str, Any]
    data: dict[str, Any]

    def lacks(self, key: str, value: Any) -> bool:
        """Whether a key is one of its own, is not there, and the value has the right shape."""
        return key in self.fields and key not in self.data and _fits(value, self.fields[key])


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
    """Whether a key with such a value can be in a mapping of this type."""
    if _is_model(kind):
        return key in _fields(kind)
    content = _content(kind)
    if _is_model(content):
        return isinstance(value, dict) and bool(value) and value.keys() <= _fields(content).keys()
    return content is not None and not isinstance(value, dict | list)


def _in_model(
    data: Any, model: Any, path: KeyPath, above: tuple[_Above, ...]
) -> Iterator[Misplaced]:
    """Keys of a mapping with given keys, and of those below it, that belong elsewhere."""
    if not isinstance(data, dict):
        return
    fields = _fields(model)
    found = list(_of_the_key_before(data, path, fields, lambda key, _: key in fields))
    yield from found
    moved = {key for misplaced in found for key in misplaced.keys}
    for key, value in data.items():
        if key not in fields and key not in moved:
            yield from _of_above(path, key, value, above)
    around = (*above, _Above(path, fields, data))
    for key, value in data.items():
        if key in fields:
            yield from _below(value, fields[key], (*path, key), around)


def _below(value: Any, kind: Any, path: KeyPath, above: tuple[_Above, ...]) -> Iterator[Misplaced]:
    content = _content(kind)
    if _is_model(kind):
        yield from _in_model(value, kind, path, above)
    elif _is_model(content) and isinstance(value, dict):
        fields = _fields(content)
        known = dict.fromkeys(value, content)

        def is_name(key: str, below: Any) -> bool:
            return key not in fields or (isinstance(below, dict) and bool(below.keys() & fields))

        found = list(_of_the_key_before(value, path, known, is_name))
        yield from found
        moved = {key for misplaced in found for key in misplaced.keys}
        for name, below in value.items():
            if name in moved:
                continue
            if isinstance(below, dict) and below and not below.keys() & fields.keys():
                yield from _of_above(path, name, below, above)
            else:
                yield from _in_model(below, content, (*path, name), above)


def _of_the_key_before(
    data: dict[str, Any],
    path: KeyPath,
    fields: dict[str, Any],
    belongs: Callable[[str, Any], bool],
) -> Iterator[Misplaced]:
    """Keys that belong below the key before them."""
    before, keys = "", list[str]()
    for key, value in data.items():
        if belongs(key, value):
            yield from _group(path, keys, before)
            before, keys = key, []
        elif before and _takes(data[before], fields[before], key, value):
            keys.append(key)
    yield from _group(path, keys, before)


def _takes(there: Any, kind: Any, key: str, value: Any) -> bool:
    is_free = there is None or (isinstance(there, dict) and key not in there)
    return is_free and _holds(kind, key, value)


def _group(path: KeyPath, keys: list[str], before: str) -> Iterator[Misplaced]:
    if keys:
        yield Misplaced(path, tuple(keys), (*path, before))


def _of_above(
    path: KeyPath, key: str, value: Any, above: tuple[_Above, ...]
) -> Iterator[Misplaced]:
    """A key that belongs to a mapping around."""
    nearest = next((other for other in reversed(above) if other.lacks(key, value)), None)
    if nearest is not None:
        yield Misplaced(path, (key,), nearest.path)
