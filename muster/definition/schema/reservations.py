"""Reservations: nodes that are kept for some people, or for maintenance, at some time."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from muster.definition.schema import patterns
from muster.definition.schema.base import Model, SlurmTime
from muster.definition.schema.patterns import whole

START = "%Y-%m-%dT%H:%M"
"""How a reservation's start is written."""


class Reservation(Model):
    """Nodes that SLURM keeps for some jobs, once or again and again."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "start": "2027-01-11T14:00",
                    "duration": "02:00:00",
                    "repeat": "weekly",
                    "partition": "ml-gpu",
                    "node_count": 1,
                    "accounts": ["students"],
                }
            ]
        }
    )

    start: Annotated[
        str,
        Field(
            description="Day and time of the (first) begin, by the controller's clock.",
            examples=["2027-01-11T14:00"],
            json_schema_extra={"x-unit": "YEAR-MONTH-DAYThour:min", **whole(patterns.DATE_TIME)},
        ),
    ]
    duration: Annotated[SlurmTime, Field(description="How long it lasts.", examples=["02:00:00"])]
    repeat: Annotated[
        Literal["daily", "weekday", "weekend", "weekly"] | None,
        Field(
            description="When it comes again, at the same time: each day, from Monday to Friday, "
            "on Saturday and Sunday, or on the same day of the week; null: never."
        ),
    ] = None
    partition: Annotated[
        str | None,
        Field(description="Partition whose nodes are kept; null: all nodes of the cluster."),
    ] = None
    node_count: Annotated[
        int | None,
        Field(
            ge=1,
            description="How many nodes of the partition, chosen by SLURM; null: all of them.",
        ),
    ] = None
    accounts: Annotated[
        list[str],
        Field(
            description="Accounts whose jobs may run there, those below included.",
            examples=[["students"]],
        ),
    ] = []
    users: Annotated[
        list[str],
        Field(
            description="People whose jobs may run there; with `accounts` only those jobs that "
            "they charge to one of these, and each person must be in each account.",
            examples=[["ada"]],
        ),
    ] = []
    maintenance: Annotated[
        bool,
        Field(
            description="For administrators: no jobs run, and SLURM's reports count the nodes as "
            "planned to be down. It may overlap other reservations."
        ),
    ] = False
