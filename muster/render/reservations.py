"""Reservations: definition -> what the role `slurmctld` takes. Pure."""

from typing import Any

from muster.definition import Definition
from muster.definition.schema.reservations import Reservation
from muster.definition.schema.times import seconds

FOR_ADMINISTRATORS = "root"
"""User of a maintenance: SLURM makes no reservation for nobody, and root has an association."""


def reservations(definition: Definition) -> list[dict[str, Any]]:
    """Return the reservations, durations in minutes, rounded up, accounts as slurmctld has them.

    Of people only those who are there. A reservation for people who are all absent is left out:
    without them it would be one for their whole accounts, or for nobody, which SLURM refuses.
    """
    people = definition.cluster.users.people
    absent = {name for name, person in people.items() if person.state == "absent"}
    return [
        _one(name, reservation, absent)
        for name, reservation in definition.cluster.reservations.items()
        if not reservation.users or set(reservation.users) - absent
    ]


def _one(name: str, reservation: Reservation, absent: set[str]) -> dict[str, Any]:
    users = [FOR_ADMINISTRATORS] if reservation.maintenance else reservation.users
    return {
        "name": name,
        "start": reservation.start,
        "minutes": int(-(-seconds(reservation.duration) // 60)),
        "repeat": reservation.repeat,
        "partition": reservation.partition,
        "node_count": reservation.node_count,
        # sacctmgr stores accounts in small letters.
        "accounts": sorted(account.lower() for account in reservation.accounts),
        "users": sorted(set(users) - absent),
        "maintenance": reservation.maintenance,
    }
