"""The schema applied to data: what pydantic finds, and a stand-in to check the rest with."""

import copy
import itertools
import types
import typing
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ValidationError

from muster.cluster.model import Cluster
from muster.cluster.nodes import KINDS
from muster.cluster.yamlfile import KeyPath

# Values for required keys that are missing or wrong, so that the other checks can run.
_STAND_INS: dict[str, Any] = {
    "name": "cluster",
    "os": "debian-12",
    "slurm_version": "22.05",
    "memory_mib": 2**30,
    "path": "/stand-in",
    "relay": "relay.example.org",
    "domain": "example.org",
    "nodes": {},
    "partitions": {},
    "machine_type": "n1-standard-2",
    "zone": "europe-west4-a",
}


@dataclass(frozen=True)
class SchemaError:
    """One place where the data has not the shape of the schema."""

    kind: str
    """pydantic's name of the error, such as `missing`; `union` where several types are allowed."""
    path: KeyPath
    place: KeyPath
    """As `path`, with pydantic's words for which kind of node set it is."""
    value: Any
    context: dict[str, Any]

    @property
    def owner(self) -> type[BaseModel] | None:
        """The model that has, or ought to have, the key."""
        here = _type_at(self.place[:-1])
        return here if isinstance(here, type) and issubclass(here, BaseModel) else None


def _type_at(place: KeyPath) -> Any:
    here: Any = Cluster
    for key in place:
        here = KINDS[str(key)] if key in KINDS else _below(here, key)
    return plain_type(here)


def plain_type(annotation: Any) -> Any:
    """Without `| None` and annotations."""
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

    With errors the models hold stand-ins at their paths; None where nothing could be made of it.
    """
    try:
        return Cluster.model_validate(data), []
    except ValidationError as error:
        errors = _errors(error, data)
    mended = copy.deepcopy(data)
    numbers = itertools.count(1_000_000_000)
    # A wrong value may hide others (a missing mapping), so mending may take another round.
    for _ in range(4):
        if not isinstance(mended, dict):
            return None, errors
        try:
            return Cluster.model_validate(mended), errors
        except ValidationError as error:
            for wrong in _errors(error, mended):
                _mend(mended, wrong, numbers)
    return None, errors


def _errors(error: ValidationError, data: Any) -> list[SchemaError]:
    found: dict[KeyPath, SchemaError] = {}
    for detail in error.errors(include_url=False):
        kind = detail["type"]
        if kind == "default_factory_not_called":
            continue  # the value that the default is made from is itself reported
        place: KeyPath = detail["loc"]
        if kind not in ("missing", "extra_forbidden"):
            place = _existing(place, data)
        path = tuple(key for key in place if key not in KINDS)
        if path in found:
            # The members of a union are reported one by one.
            kind = "union"
        found[path] = SchemaError(kind, path, place, detail["input"], detail.get("ctx", {}))
    return list(found.values())


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


def _mend(data: Any, wrong: SchemaError, numbers: "itertools.count[int]") -> None:
    """Replaces or removes what is wrong, so that models can be made of the rest."""
    *parents, key = wrong.path or ("",)
    here = data
    for parent in parents:
        here = here[parent]
    if isinstance(here, list):
        here[int(key)] = "stand-in"
        return
    known = wrong.owner.model_fields.get(str(key)) if wrong.owner else None
    if wrong.kind == "extra_forbidden" or (known and not known.is_required()):
        here.pop(key, None)
    else:
        here[key] = _stand_in(str(key), _type_at(wrong.place), numbers)


def _stand_in(key: str, kind: Any, numbers: "itertools.count[int]") -> Any:
    if key in ("uid", "gid"):
        return next(numbers)
    if key in _STAND_INS:
        return _STAND_INS[key]
    if typing.get_origin(kind) is list:
        return []
    if typing.get_origin(kind) is dict or (isinstance(kind, type) and issubclass(kind, BaseModel)):
        return {}
    return "stand-in" if kind is str else 1
