"""The schema applied to data: what pydantic finds, and a stand-in to check the rest with."""

import copy
import itertools
import types
import typing
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from muster.definition.other_keys import OtherKey, other_key
from muster.definition.schema.cluster import Cluster
from muster.definition.schema.node_sets import KINDS, Machines, VirtualMachines
from muster.definition.spelling import nearest
from muster.definition.yaml_file import KeyPath

# Values for required keys that are missing or wrong, so that the other checks can run.
_STAND_INS: dict[str, Any] = {
    "name": "cluster",
    "os": "debian-12",
    "slurm_version": "22.05",
    "memory_mib": 2**30,
    "path": "/stand-in",
    "relay": "relay.example.org",
    "domain": "example.org",
    "machine_type": "n1-standard-2",
    "zone": "europe-west4-a",
}

# The key for GPUs in the other kind of node set, and in this one.
_GPU_KEYS: dict[Any, tuple[str, str]] = {
    Machines: ("accelerators", "gpus"),
    VirtualMachines: ("gpus", "accelerators"),
}


MACHINE_TYPE = "machine_type"
"""The key that makes a node set one of VMs."""
_MACHINE_TYPES = ("type", "machine", "instance_type", "vm_type")
_LIKENESS = 0.75

MISPLACED = "misplaced_key"
"""Kind of a key that belongs into another mapping, which muster.definition.indentation finds."""
UNVERSIONED = "unversioned"
"""Kind of a module without a version above its content, which module_versions finds."""
MOVED = ("extra_forbidden", MISPLACED, UNVERSIONED)
"""Kinds of errors after which all values are as they are written, maybe under other keys."""


@dataclass(frozen=True)
class SchemaError:
    """One place where the data does not have the shape of the schema."""

    kind: str
    """pydantic's name of the error, such as `missing`; `union` where several types are allowed."""
    path: KeyPath
    place: KeyPath
    """As `path`, with pydantic's tag for the kind of node set."""
    value: Any
    context: dict[str, Any]
    beside: frozenset[str] = frozenset()
    """The keys of the mapping that has an unknown key."""

    @property
    def owner(self) -> type[BaseModel] | None:
        """The model that has, or should have, the key."""
        here = _type_at(self.place[:-1])
        return here if isinstance(here, type) and issubclass(here, BaseModel) else None

    @property
    def field(self) -> FieldInfo | None:
        """The key's field in the schema; None for a key that people choose, or an unknown one."""
        return self.owner.model_fields.get(str(self.path[-1])) if self.owner else None

    @property
    def wanted(self) -> Any:
        """The type that the value should have."""
        return _type_at(self.place)

    @property
    def gpu_key(self) -> str | None:
        """The key for GPUs, if the file has nearly that of the other kind of node set."""
        if self.owner not in _GPU_KEYS:
            return None
        theirs, ours = _GPU_KEYS[self.owner]
        # `cpus` is no key, but it is near to `gpus`.
        return ours if nearest(str(self.path[-1]), (theirs, "cpus")) == theirs else None

    @property
    def is_of_other_kind(self) -> bool:
        """Whether an unknown key of a node set is one of the other kind of node sets."""
        if self.kind != "extra_forbidden" or self.owner not in _GPU_KEYS or self.gpu_key:
            return False
        fields = (plain_type(kind).model_fields for kind in KINDS.values())
        return any(str(self.path[-1]) in of_kind for of_kind in fields)

    @property
    def is_machine_type(self) -> bool:
        """Whether the key is meant to say that a node set is one of VMs."""
        if self.kind != "extra_forbidden" or self.owner is not Machines:
            return False
        key = str(self.path[-1]).casefold()
        return key in _MACHINE_TYPES or nearest(key, (MACHINE_TYPE,), _LIKENESS) is not None

    @property
    def other_key(self) -> OtherKey | None:
        """What to write in place of an unknown key that is no misspelling."""
        return other_key(self.owner, str(self.path[-1]))

    @property
    def meant(self) -> KeyPath | None:
        """The key that an unknown key was likely meant to be, if that one is missing."""
        if self.kind in (MISPLACED, UNVERSIONED):
            meant: KeyPath = self.context["meant"]
            return meant
        if self.kind != "extra_forbidden" or self.owner is None:
            return None
        if self.other_key:
            near = self.other_key.meant
        else:
            near = self.gpu_key or (MACHINE_TYPE if self.is_machine_type else None)
            near = near or nearest(str(self.path[-1]), self.owner.model_fields)
        return (*self.path[:-1], near) if near and near not in self.beside else None


def _type_at(place: KeyPath) -> Any:
    here: Any = Cluster
    for key in place:
        here = KINDS[str(key)] if key in KINDS else _below(here, key)
    return plain_type(here)


def plain_type(annotation: Any) -> Any:
    """Return the type without `| None` and annotations."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        options = [option for option in typing.get_args(annotation) if option is not type(None)]
        annotation = options[0] if len(options) == 1 else annotation
    if typing.get_origin(annotation) is Annotated:
        return typing.get_args(annotation)[0]
    return annotation


def _below(annotation: Any, key: str | int) -> Any:
    here = plain_type(annotation)
    if isinstance(here, type) and issubclass(here, BaseModel):
        known = here.model_fields.get(str(key))
        return known.annotation if known else None
    if typing.get_origin(here) in (dict, list):
        return typing.get_args(here)[-1]
    return None


def apply(data: Any) -> tuple[Cluster | None, list[SchemaError]]:
    """The definition as models, and what is wrong with its shape.

    With errors the models hold stand-ins at their paths; None where models can't be made.
    """
    try:
        return Cluster.model_validate(data), []
    except ValidationError as error:
        errors = _errors(error, data)
    repaired = copy.deepcopy(data)
    numbers = itertools.count(1_000_000_000)
    # A wrong value may hide others (a missing mapping), so this may take more rounds.
    for _ in range(6):
        if not isinstance(repaired, dict):
            return None, errors
        try:
            return Cluster.model_validate(repaired), errors
        except ValidationError as error:
            # A key that is missing may be there under another name: unknown ones come first.
            still_wrong = _errors(error, repaired)
            for wrong in sorted(
                still_wrong, key=lambda schema_error: schema_error.kind != "extra_forbidden"
            ):
                _repair(repaired, wrong, numbers)
    return None, errors


def _errors(error: ValidationError, data: Any) -> list[SchemaError]:
    by_path: dict[KeyPath, SchemaError] = {}
    for detail in error.errors(include_url=False):
        kind = detail["type"]
        if kind == "default_factory_not_called":
            continue  # the value that the default is made from is itself reported
        place: KeyPath = detail["loc"]
        if kind not in ("missing", "extra_forbidden"):
            place = _existing(place, data)
        path = tuple(key for key in place if key not in KINDS)
        if path in by_path:
            # The members of a union are reported one by one.
            kind = "union"
        beside = _keys_at(data, path[:-1]) if kind == "extra_forbidden" else frozenset()
        context = detail.get("ctx", {})
        by_path[path] = SchemaError(kind, path, place, detail["input"], context, beside)
    return list(by_path.values())


def _keys_at(data: Any, path: KeyPath) -> frozenset[str]:
    for key in path:
        data = data[key]
    return frozenset(data)


def _existing(place: KeyPath, data: Any) -> KeyPath:
    """The part of pydantic's location that is in the data: without names of types."""
    for length, key in enumerate(place):
        if key in KINDS:
            continue
        try:
            data = data[key]
        except (KeyError, IndexError, TypeError):
            return place[:length]
    return place


def _repair(data: Any, wrong: SchemaError, numbers: "itertools.count[int]") -> None:
    """Replaces or removes what is wrong, so that models can be made of the rest."""
    *parents, key = wrong.path or ("",)
    here = data
    for parent in parents:
        here = here[parent]
    if wrong.kind == "extra_forbidden":
        value = here.pop(key, None)
        # The value may be of another kind or unit, such as GiB for MiB.
        if wrong.meant and not wrong.other_key:
            here.setdefault(wrong.meant[-1], value)
    elif wrong.field and not wrong.field.is_required() and not is_collection(wrong.wanted):
        here.pop(key, None)
    elif wrong.kind != "missing" or key not in here:
        here[key] = _stand_in(str(key), wrong, numbers)


def is_collection(kind: Any) -> bool:
    """Return whether values of a type have parts."""
    is_model = isinstance(kind, type) and issubclass(kind, BaseModel)
    return is_model or typing.get_origin(kind) in (dict, list)


def _stand_in(key: str, wrong: SchemaError, numbers: "itertools.count[int]") -> Any:
    kind = wrong.wanted
    if is_collection(kind):
        return _named_in(wrong.value, typing.get_origin(kind))
    if key in ("uid", "gid"):
        return next(numbers)
    if key in _STAND_INS:
        return _STAND_INS[key]
    if typing.get_origin(kind) is typing.Literal:
        return typing.get_args(kind)[0]
    return "stand-in" if kind is str else 1


def _named_in(value: Any, origin: Any) -> Any:
    """The names in a value of another shape, as a list or mapping: other keys refer to them."""
    if origin is list:
        return [value] if isinstance(value, str) else []
    if origin is dict and isinstance(value, list):
        return dict.fromkeys(name for name in value if isinstance(name, str))
    return {}
