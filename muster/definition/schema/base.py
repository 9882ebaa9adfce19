"""What all parts of the definition have in common: the base model and the types with a unit."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from muster.definition.schema import patterns
from muster.definition.schema.patterns import whole


class Model(BaseModel):
    """A mapping of the definition: unknown keys refused, no conversion of types, read-only."""

    # strict: "122880" for a number is refused instead of converted, so that every tool reads a
    # definition in the same way.
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


MOST_MEMORY_MIB = 2**30
"""1 PiB, far above any machine: a larger number is bytes."""
Mebibytes = Annotated[int, Field(le=MOST_MEMORY_MIB, json_schema_extra={"x-unit": "MiB"})]
TIME_UNIT = "days-hours:min:s"
SlurmTime = Annotated[
    str, Field(json_schema_extra={"x-unit": TIME_UNIT, **whole(patterns.SLURM_TIME)})
]
# A value of slurm.conf or cgroup.conf as YAML gives it; yes and no arrive as bool.
Scalar = str | int | float | bool


def named(pattern: str) -> dict[str, JsonValue]:
    """Return a part of a JSON schema: the pattern of the keys of a mapping."""
    return {"propertyNames": {**whole(pattern)}}
