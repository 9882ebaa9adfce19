"""Checks of the shape: pydantic's errors, reworded for people."""

from collections.abc import Iterator
from typing import Any

from muster.definition.checks.registry import Finding, source_check, suggestion
from muster.definition.examples import example, key_of
from muster.definition.schema.cluster import Cluster
from muster.definition.schema.node_sets import Machines, VirtualMachines
from muster.definition.schema_errors import MISPLACED, SchemaError, plain_type
from muster.definition.sources import Sources
from muster.definition.spelling import nearest
from muster.definition.yaml_file import KeyPath

_REFERENCE = "docs/reference/cluster.md has all keys"
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
    for error in mixed.values():
        yield _mixed(sources, error)
    for error in _errors(sources, "extra_forbidden"):
        key = str(error.path[-1])
        if error.path[:-1] in mixed and (error.gpu_key or _of_the_other_kind(error)):
            continue
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
            sections = " or ".join(_sections_of(key)) if len(error.path) == 1 else ""
            near = suggestion(key, _keys(error), _REFERENCE)
            remedy = f"it is a key of {sections}" if sections else near
            yield Finding(error.path, f'unknown key "{key}"', remedy)


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


_OTHER_KIND: dict[Any, tuple[Any, str, str]] = {
    Machines: (VirtualMachines, "VMs", "machines"),
    VirtualMachines: (Machines, "machines", "VMs"),
}


def _of_the_other_kind(error: SchemaError) -> bool:
    """Whether an unknown key of a node set is one of the other kind of node sets."""
    if error.owner not in _OTHER_KIND or error.gpu_key:
        return False
    return str(error.path[-1]) in _OTHER_KIND[error.owner][0].model_fields


def _mixed_sets(sources: Sources) -> dict[KeyPath, SchemaError]:
    """Node sets with keys of the other kind, and the first of those keys."""
    first: dict[KeyPath, SchemaError] = {}
    for error in _errors(sources, "extra_forbidden"):
        if _of_the_other_kind(error):
            first.setdefault(error.path[:-1], error)
    return first


def _mixed(sources: Sources, error: SchemaError) -> Finding:
    """One error for all keys of the other kind in a node set."""
    _, theirs, ours = _OTHER_KIND[error.owner]
    keys = [
        str(other.path[-1])
        for other in _errors(sources, "extra_forbidden")
        if other.path[:-1] == error.path[:-1] and _of_the_other_kind(other)
    ]
    verb = "is a key" if len(keys) == 1 else "are keys"
    return Finding(
        error.path,
        f"{', '.join(keys)} {verb} of a node set of {theirs}, and `machine_type` makes this one "
        "of VMs"
        if ours == "VMs"
        else f"{', '.join(keys)} {verb} of a node set of {theirs}, and this is one of {ours}",
        f"take {'it' if len(keys) == 1 else 'them'} out; without `machine_type` a node set is one "
        "of machines",
    )


def _sections_of(key: str) -> list[str]:
    """The sections of the definition that have a key."""
    return [
        f"`{name}`"
        for name, field in Cluster.model_fields.items()
        if key in getattr(plain_type(field.annotation), "model_fields", ())
    ]


@source_check("missing-key", "missing")
def missing_key(sources: Sources) -> Iterator[Finding]:
    """A required key that is not there."""
    misspelt = {error.meant for error in sources.schema_errors}
    mixed = _mixed_sets(sources)
    for error in _errors(sources, "missing"):
        if error.path in misspelt or error.path[:-1] in mixed:
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
        yield Finding(error.path, kind, remedy)


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
        scalar = not isinstance(error.value, dict) and error.value is not None
        bare = spelt.strip('"')
        remedy = f"write [{bare}]" if scalar else "write a list: [a, b]"
        yield Finding(error.path, f"{spelt} is not a list", remedy)


@source_check("not-a-mapping", "dict_type", "model_type", "model_attributes_type")
def not_a_mapping(sources: Sources) -> Iterator[Finding]:
    """Something else where keys and values belong."""
    for error in _errors(sources, "dict_type", "model_type", "model_attributes_type"):
        if error.path:
            # Items of a list have no key.
            key = error.path[-1]
            before = f"{key_of(key)}: " if isinstance(key, str) else ""
            yield Finding(
                error.path,
                f"{_spelt(sources, error)} is not a mapping",
                f"write {before}{example(error.wanted, error.field)}",
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
