"""What inputs a resource type has, by the classes of pulumi_gcp: names, types, what is required.

pulumi_gcp doesn't check dictionary arguments, so a misspelt key in one is only noticed here, as
the real provider would notice it. Importing those classes costs a CPU second or two per engine
process, so the tables made from them are cached in files.
"""

import functools
import hashlib
import importlib
import inspect
import json
import os
import re
import tempfile
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import pulumi
from pulumi import _types

from muster_sandbox.provider.values import DEFAULTS, UNKNOWN


@dataclass(frozen=True)
class Property:
    """One input: an object has `fields`, a plain value has the name of a `type`."""

    required: bool
    many: bool
    type: str | None
    fields: Mapping[str, "Property"] | None


TYPES: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    "dict": (dict,),
    "float": (int, float),
    "int": (int,),
    "str": (str,),
}
"""Python types that a value may have; bool is refused for a number below."""


@functools.cache
def inputs(kind: str) -> Mapping[str, Property]:
    """Return the inputs of a type as `compute/network:Network`.

    Raises:
        LookupError: pulumi_gcp has no such type.

    """
    folder = os.environ.get("MUSTER_PROVIDER_CACHE")
    if folder is None:
        return properties(class_of(kind, "Args"))
    key = metadata.version("pulumi-gcp") + Path(__file__).read_text(encoding="utf-8")
    digest = hashlib.sha256(key.encode()).hexdigest()[:12]
    file = Path(folder) / f"gcp-schema-{digest}" / f"{re.sub(r'[/:]', '-', kind)}.json"
    try:
        return from_json(json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        table = properties(class_of(kind, "Args"))
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False) as written:
        json.dump({name: asdict(item) for name, item in table.items()}, written)
    Path(written.name).rename(file)
    return table


def from_json(kept: Mapping[str, Any]) -> dict[str, Property]:
    """Return properties from a cached file."""
    return {
        name: Property(
            item["required"],
            item["many"],
            item["type"],
            None if item["fields"] is None else from_json(item["fields"]),
        )
        for name, item in kept.items()
    }


def class_of(kind: str, suffix: str = "") -> type:
    """Return the class of a type, or that of its arguments."""
    match = re.fullmatch(r"(\w+)/\w+:(\w+)", kind)
    if match is None:
        raise LookupError(f"pulumi_gcp has no type {kind}")
    try:
        module = importlib.import_module(f"pulumi_gcp.{match[1].lower()}")
        chosen = getattr(module, match[2] + suffix)
    except (ImportError, AttributeError) as error:
        raise LookupError(f"pulumi_gcp has no type {kind}") from error
    return typing.cast(type, chosen)


def properties(arguments: type) -> dict[str, Property]:
    """Return the inputs that a class of arguments takes."""
    names = _types.input_type_py_to_pulumi_names(arguments)
    required = {
        names.get(name, name)
        for name, parameter in inspect.signature(arguments).parameters.items()
        if parameter.default is inspect.Parameter.empty
    }
    table = {}
    for name, hint in _types.input_type_types(arguments).items():
        plain, many = unwrap(hint)
        nested = _types.is_input_type(plain)
        table[name] = Property(
            required=name in required,
            many=many,
            type=None if nested else plain.__name__,
            fields=properties(plain) if nested else None,
        )
    return table


def unwrap(hint: Any) -> tuple[Any, bool]:
    """Return the class inside Optional, Union, Output and Sequence, and whether it is a list."""
    many = False
    while (origin := typing.get_origin(hint)) is not None:
        choices = [item for item in typing.get_args(hint) if item is not types.NoneType]
        if origin in (typing.Union, types.UnionType):
            hint = best(choices)
        elif origin in (list, Sequence):
            many, hint = True, choices[0]
        elif origin in (dict, Mapping):
            return dict, many
        elif origin is pulumi.Output:
            hint = choices[0]
        else:
            raise TypeError(f"unexpected type {hint}")
    return hint, many


def best(choices: list[Any]) -> Any:
    """Return the most specific choice: a class of arguments, else a list, else the first one.

    A choice may hold further ones: `Union[Args, ArgsDict, Awaitable[...], Output[...]]`.
    """
    for choice in choices:
        if inspect.isclass(choice) and _types.is_input_type(choice):
            return choice
    for choice in choices:
        if typing.get_origin(choice) in (list, Sequence, dict, Mapping, typing.Union):
            return choice
    return choices[0]


def faults(
    known: Mapping[str, Property], value: Mapping[str, Any], path: str = ""
) -> Iterator[tuple[str, str]]:
    """Yield (path, sentence) for each unknown name, wrong type, and required input left out."""
    for name, item in value.items():
        if name == DEFAULTS or item is None:
            continue
        where = f"{path}.{name}" if path else name
        expected = known.get(name)
        if expected is None:
            yield where, f"{where} is no input; there is {', '.join(sorted(known))}"
        elif expected.many and item != UNKNOWN:
            if not isinstance(item, list):
                yield where, f"{where} is {item!r}; expected a list"
                continue
            for index, entry in enumerate(item):
                yield from fault_of(expected, entry, f"{where}[{index}]")
        else:
            yield from fault_of(expected, item, where)
    for name, expected in known.items():
        if expected.required and value.get(name) is None:
            where = f"{path}.{name}" if path else name
            yield where, f"{where} is required and left out"


def fault_of(expected: Property, item: Any, where: str) -> Iterator[tuple[str, str]]:
    """Yield the errors of one value."""
    if item is None or item == UNKNOWN:
        return
    if expected.fields is not None:
        if isinstance(item, Mapping):
            yield from faults(expected.fields, item, where)
        else:
            yield where, f"{where} is {item!r}; expected an object"
        return
    allowed = TYPES.get(expected.type or "")
    if allowed is None:
        return
    if not isinstance(item, allowed) or (isinstance(item, bool) and expected.type != "bool"):
        yield where, f"{where} is {item!r}; expected {expected.type}"
