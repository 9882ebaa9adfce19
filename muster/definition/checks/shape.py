"""Checks of the shape: pydantic's errors, reworded for people."""

import re
from collections.abc import Iterator
from typing import Any, get_args

from muster.catalog import accelerators
from muster.catalog.slurm_parameters import OVERSUBSCRIBE, parameters
from muster.definition.checks.registry import Finding, source_check, suggestion
from muster.definition.examples import example, text_of
from muster.definition.problems import counted
from muster.definition.schema.base import TIME_UNIT, SlurmTime
from muster.definition.schema.cluster import Cluster
from muster.definition.schema.gpus import Gpus
from muster.definition.schema.limits import Tres, TresMinutes
from muster.definition.schema.node_sets import (
    Accelerators,
    Machines,
    Partition,
    VirtualMachines,
)
from muster.definition.schema_errors import MACHINE_TYPE, MISPLACED, SchemaError, plain_type
from muster.definition.sources import Sources
from muster.definition.spelling import nearest
from muster.definition.yaml_file import KeyPath

_REFERENCE = "docs/reference/cluster.md has all keys"
_CPUS = ("cpu", "cpus", "cores", "ncpus", "procs", "processors")
_SHARING = ("oversubscribe", "over_subscribe", "shared")
_GPU_TYPE = re.compile(r"(?!gpu|count)[A-Za-z0-9_-]*[0-9][A-Za-z0-9_-]*", re.IGNORECASE)
"""What types of GPUs are called, such as h100, rtx_4080 or 2080ti."""
_MAX_GPUS = 64
"""Of a node (schema/gpus.py)."""
_GPUS_OF_MACHINES = "GPUs of machines are `gpus: {count: N, type: T}`"


def _errors(sources: Sources, *kinds: str) -> Iterator[SchemaError]:
    return (error for error in sources.schema_errors if error.kind in kinds)


def _keys(error: SchemaError) -> list[str]:
    return list(error.owner.model_fields) if error.owner else []


def _spelt(sources: Sources, error: SchemaError) -> str:
    """The value as the file has it."""
    raw = sources.cluster.raw.get(("cluster", *error.path))
    return raw if raw and "\n" not in raw else _shown(error.value)


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, str):
        first, line_end, _ = value.partition("\n")
        return f'"{first}..."' if line_end else f'"{value}"'
    return str(value)


@source_check("unknown-key", "extra_forbidden")
def unknown_key(sources: Sources) -> Iterator[Finding]:
    """A key that the schema does not have."""
    mixed = _mixed_sets(sources)
    misspelt = _misspelt_types(sources)
    types = _types_as_keys(sources)
    for place, error in mixed.items():
        if place not in misspelt:
            yield _mixed(sources, error)
    for place, counts in types.items():
        said = "the nodes of a node set have one type of GPU"
        if len(counts) == 1:
            said = f'"{next(iter(counts))}" is a type of GPU and no key'
        yield Finding(place, said, _of_types(str(place[-1]), counts))
    for error in _errors(sources, "extra_forbidden"):
        of_other_kind = error.gpu_key or error.is_of_other_kind
        if of_other_kind and error.path[:-1] in {*mixed, *misspelt}:
            continue
        if error.path[-1] in types.get(error.path[:-1], {}):
            continue
        key = str(error.path[-1])
        if error.gpu_key == "accelerators":
            yield Finding(
                error.path,
                "GPUs of VMs follow from their machine type",
                "take it out, and name a `machine_type` that has them, such as g2-standard-8, or "
                "`accelerators` of one of N1",
            )
        elif error.gpu_key == "gpus":
            message = f'unknown key "{key}"'
            if key in VirtualMachines.model_fields:
                message = f'"{key}" is a key of VMs, and these are machines'
            yield Finding(error.path, message, _GPUS_OF_MACHINES)
        else:
            other = error.other_key
            remedy = other.remedy if other else _meant_by(error, key)
            yield Finding(error.path, f'unknown key "{key}"', remedy)


def _meant_by(error: SchemaError, key: str) -> str:
    """What to write in place of an unknown key."""
    if error.is_machine_type:
        return f'did you mean "{MACHINE_TYPE}"?'
    if error.owner is Machines and key.casefold() in _CPUS:
        return "CPUs of machines are `sockets`, `cores_per_socket` and `threads_per_core`"
    if error.owner is Partition and key.casefold() in _SHARING:
        return OVERSUBSCRIBE
    if error.owner is Cluster:
        if sections := _sections_of(key):
            return f"it is a key of {' or '.join(sections)}"
        for file in ("slurm", "cgroup"):
            if key.casefold() in parameters(f"{file}.conf"):
                return f"it is a parameter of {file}.conf: write it below `{file}`"
    spelt = _spelt_for_slurm(error, key.casefold())
    return f'did you mean "{spelt}"?' if spelt else suggestion(key, _keys(error), _REFERENCE)


def _spelt_for_slurm(error: SchemaError, key: str) -> str | None:
    """The key and value of an amount that is spelt as sacctmgr does, as in `mem: 64G`."""
    number = re.fullmatch(r"([0-9]+)([kmgtp]?)i?b?", str(error.value).casefold())
    if key in ("mem", "memory", "ram") and error.owner is Tres:
        if number is None:
            return "memory_mib"
        # sacctmgr takes a number without a unit as MiB.
        mib = int(number[1]) * 1024 ** ("kmgtp".index(number[2] or "m") - 1)
        return f"memory_mib: {max(1, int(mib))}"
    name, _, kind = key.partition(":")
    if error.owner not in (Tres, TresMinutes) or name != "gres/gpu":
        return None
    amount = f": {error.value}" if isinstance(error.value, int) else ""
    if kind:
        return f"gpu_types: {{{kind}{amount}}}" if error.owner is Tres else None
    return f"gpu{amount}"


def _misspelt_types(sources: Sources) -> set[KeyPath]:
    """Node sets of VMs whose `machine_type` is misspelt: to the schema they are machines."""
    return {e.path[:-1] for e in _errors(sources, "extra_forbidden") if e.is_machine_type}


@source_check("misplaced-key", MISPLACED)
def misplaced_key(sources: Sources) -> Iterator[Finding]:
    """A key that is not indented far enough, or too far."""
    for error in _errors(sources, MISPLACED):
        keys, there = error.context["keys"], error.context["there"]
        said = ", ".join(f'"{key}"' for key in keys)
        it, verb = ("it", "stands") if len(keys) == 1 else ("them", "stand")
        around = f"`{there[-1]}`" if there else "`cluster` itself"
        if error.path[:-1] == there[:-1]:
            yield Finding(
                error.path,
                f"{said} {verb} beside {around}",
                f"indent {it} further, so that {around} has {it}",
            )
        else:
            yield Finding(
                error.path,
                f"{said} {verb} below `{error.path[-2]}`",
                f"indent {it} less, so that {around} has {it}",
            )


def _mixed_sets(sources: Sources) -> dict[KeyPath, SchemaError]:
    """Node sets with keys of the other kind, and the first of those keys."""
    first: dict[KeyPath, SchemaError] = {}
    for error in _errors(sources, "extra_forbidden"):
        if error.is_of_other_kind:
            first.setdefault(error.path[:-1], error)
    return first


def _types_as_keys(sources: Sources) -> dict[KeyPath, dict[str, int]]:
    """GPUs whose types are written as keys: how many there are of each, as in `{h100: 4}`."""
    found: dict[KeyPath, dict[str, int]] = {}
    for error in _errors(sources, "extra_forbidden"):
        key = str(error.path[-1])
        is_type = (error.owner is Gpus and _GPU_TYPE.fullmatch(key)) or (
            error.owner is Accelerators and key in accelerators.KINDS
        )
        count = error.value.get("count") if isinstance(error.value, dict) else error.value
        if not is_type or "type" in error.beside or type(count) is not int:
            continue
        if 1 <= count <= _MAX_GPUS:
            found.setdefault(error.path[:-1], {})[key] = count
    return found


def _mixed(sources: Sources, error: SchemaError) -> Finding:
    """One error for all keys of the other kind in a node set."""
    theirs, ours = ("VMs", "machines") if error.owner is Machines else ("machines", "VMs")
    keys = [
        str(other.path[-1])
        for other in _errors(sources, "extra_forbidden")
        if other.path[:-1] == error.path[:-1] and other.is_of_other_kind
    ]
    verb = "is a key" if len(keys) == 1 else "are keys"
    it = "it" if len(keys) == 1 else "them"
    said = f"{', '.join(keys)} {verb} of a node set of {theirs}, and "
    own = error.beside & (Machines.model_fields.keys() - VirtualMachines.model_fields.keys())
    if ours == "VMs":
        said += "`machine_type` makes this one of VMs"
    elif own:
        said += "this is one of machines"
    else:
        said += "it has no `machine_type`"
    definition = sources.definition
    in_cloud = isinstance(definition, dict) and definition.get("cloud") is not None
    return Finding(error.path, said, _one_kind(it, of_vms=ours == "VMs", own=own, cloud=in_cloud))


def _one_kind(it: str, *, of_vms: bool, own: frozenset[str], cloud: bool) -> str:
    """How a node set with keys of both kinds becomes one of the kind that the cluster can have.

    `it`: the keys of the other kind. `own`: those that only machines have.
    """
    if of_vms and cloud:
        return f"take {it} out"
    if of_vms:
        return "take `machine_type` and other keys of VMs out: there is no `cloud` to make VMs in"
    if own and cloud:
        return f"name a `machine_type`, and take {', '.join(sorted(own))} out"
    if own:
        return f"take {it} out"
    if cloud:
        return "add it, such as n1-standard-8"
    return (
        f"take {it} out and describe machines by `sockets`, `cores_per_socket` and `memory_mib`: "
        "there is no `cloud` to make VMs in"
    )


def _sections_of(key: str) -> list[str]:
    """The sections of the definition that have a key."""
    return [
        f"`{name}`"
        for name, field in Cluster.model_fields.items()
        if key in getattr(plain_type(field.annotation), "model_fields", ())
    ]


def _has_cpus(sources: Sources, error: SchemaError) -> bool:
    """Whether a missing key of machines is about CPUs, and an unknown one beside it is too."""
    return error.path[-1] in ("sockets", "cores_per_socket") and any(
        other.path[:-1] == error.path[:-1] and str(other.path[-1]).casefold() in _CPUS
        for other in _errors(sources, "extra_forbidden")
    )


@source_check("missing-key", "missing")
def missing_key(sources: Sources) -> Iterator[Finding]:
    """A required key that is not there."""
    misspelt = {error.meant for error in sources.schema_errors}
    said = {*_mixed_sets(sources), *_misspelt_types(sources), *_types_as_keys(sources)}
    for error in _errors(sources, "missing"):
        if error.path in misspelt or error.path[:-1] in said or _has_cpus(sources, error):
            continue  # the unknown key beside it is said already: one mistake, one error
        meaning = error.field.description if error.field else ""
        yield Finding(error.path, f'"{error.path[-1]}" is missing', f"add it: {meaning}".strip("."))


@source_check("not-text", "string_type")
def not_text(sources: Sources) -> Iterator[Finding]:
    """Something else where text belongs, such as a number without quotes."""
    for error in _errors(sources, "string_type"):
        spelt = _spelt(sources, error)
        kind = "empty" if error.value is None else f"{spelt} is not text"
        if isinstance(error.value, dict | list):
            remedy = "write one text here"
        else:
            remedy = "give a text" if error.value is None else f'put it in quotes: "{spelt}"'
        if type(error.value) is int and error.value > 0 and is_time(error):
            minutes = counted(error.value, "minute")
            remedy += f", which is {minutes} to SLURM; {counted(error.value, 'day')} "
            remedy += f'{"is" if error.value == 1 else "are"} "{error.value}-0"'
        yield Finding(error.path, kind, remedy)


def is_time(error: SchemaError) -> bool:
    """Whether the key takes a time as SLURM reads it."""
    if error.field is None:
        return False
    extra = error.field.json_schema_extra
    may_be_null = SlurmTime in get_args(error.field.annotation)
    return may_be_null or (isinstance(extra, dict) and extra.get("x-unit") == TIME_UNIT)


@source_check("not-a-number", "int_type", "int_from_float")
def not_a_number(sources: Sources) -> Iterator[Finding]:
    """Something else where a whole number belongs, such as `120G`."""
    for error in _errors(sources, "int_type", "int_from_float"):
        unit = " in MiB" if str(error.path[-1]).endswith("_mib") else ""
        yield Finding(
            error.path,
            f"{_spelt(sources, error)} is not a whole number",
            f"write a whole number{unit} without quotes and without a unit",
        )


@source_check("not-yes-or-no", "bool_type")
def not_yes_or_no(sources: Sources) -> Iterator[Finding]:
    """Something else where true or false belongs."""
    for error in _errors(sources, "bool_type"):
        yield Finding(
            error.path,
            f"{_spelt(sources, error)} is neither true nor false",
            "write true or false, without quotes",
        )


@source_check("not-a-list", "list_type")
def not_a_list(sources: Sources) -> Iterator[Finding]:
    """Something else where a list belongs, such as a single name."""
    for error in _errors(sources, "list_type"):
        spelt = _spelt(sources, error)
        text = error.value if isinstance(error.value, str) else spelt
        if error.value is None or isinstance(error.value, dict) or "\n" in text:
            remedy = "write a list: [a, b]"
        else:
            remedy = f"write [{', '.join(map(text_of, _items(text)))}]"
        yield Finding(error.path, f"{spelt} is not a list", remedy)


def _items(text: str) -> list[str]:
    """The items that are meant by one text: names between commas, or all of it."""
    items = [item.strip() for item in text.split(",")]
    return items if all(item and " " not in item for item in items) else [text]


@source_check("not-a-mapping", "dict_type", "model_type", "model_attributes_type")
def not_a_mapping(sources: Sources) -> Iterator[Finding]:
    """Something else where keys and values belong."""
    for error in _errors(sources, "dict_type", "model_type", "model_attributes_type"):
        if error.path:
            # Items of a list have no key.
            key = error.path[-1]
            before = f"{text_of(key)}: " if isinstance(key, str) else ""
            remedy = f"write {before}{example(error.wanted, error.field)}"
            if error.wanted is Gpus and isinstance(error.value, list):
                remedy = _of_listed_gpus(error.value) or remedy
            yield Finding(error.path, f"{_spelt(sources, error)} is not a mapping", remedy)


def _of_listed_gpus(items: list[Any]) -> str | None:
    """What to write in place of a list of GPUs; None if it does not say how many of which type."""
    counts: dict[str, int] = {}
    for item in items:
        match item:
            case {"count": int(count), "type": str(kind)}:
                counts[kind] = counts.get(kind, 0) + count
            case _:
                return None
    return _of_types("gpus", counts) if counts else None


def _of_types(key: str, counts: dict[str, int]) -> str:
    """What to write in place of GPUs of several types, or of one whose type is written as a key."""
    (kind, count), *others = counts.items()
    remedy = f"write {key}: {{count: {count}, type: {text_of(kind)}}}"
    if not others:
        return remedy
    remedy += f" and make another node set of nodes with {' or '.join(map(text_of, dict(others)))}"
    if key == "accelerators":
        return remedy
    return (
        f"{remedy}, or, if one node has all of them, write gpus: {{count: {sum(counts.values())}}} "
        "without a type"
    )


@source_check("not-a-choice", "literal_error")
def not_a_choice(sources: Sources) -> Iterator[Finding]:
    """A value that is not one of the choices."""
    for error in _errors(sources, "literal_error"):
        spelt = _spelt(sources, error)
        choices = error.context["expected"].replace("'", "").replace(" or ", ", ").split(", ")
        if spelt in choices:
            # 22.05 is a number for YAML, and the text "22.05" is a choice.
            yield Finding(error.path, f"{spelt} is a number", f'put it in quotes: "{spelt}"')
        else:
            near = nearest(spelt.strip('"'), choices)
            meant = f'did you mean "{near}"? ' if near else ""
            yield Finding(
                error.path, f"{spelt} is not possible", f"{meant}choose from {', '.join(choices)}"
            )


@source_check("number-too-small", "greater_than_equal")
def number_too_small(sources: Sources) -> Iterator[Finding]:
    """A number below the least that makes sense, such as no memory."""
    for error in _errors(sources, "greater_than_equal"):
        least = error.context["ge"]
        yield Finding(error.path, f"{error.value} is too small", f"give at least {least}")


@source_check("number-too-large", "less_than_equal")
def number_too_large(sources: Sources) -> Iterator[Finding]:
    """A number above the largest that there can be."""
    for error in _errors(sources, "less_than_equal"):
        most = error.context["le"]
        unit = " MiB (1 MiB is 1048576 bytes)" if str(error.path[-1]).endswith("_mib") else ""
        yield Finding(error.path, f"{error.value} is too large", f"give at most {most}{unit}")


@source_check("not-a-parameter-value", "union")
def not_a_parameter_value(sources: Sources) -> Iterator[Finding]:
    """A list or mapping where SLURM's configuration takes one value."""
    for error in _errors(sources, "union"):
        yield Finding(
            error.path,
            f"{_shown(error.value)} is not one value",
            "write text or a number, several values as text with commas",
        )
