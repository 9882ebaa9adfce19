"""Reservations: definition -> what the role `slurmctld` takes. Pure."""

from typing import Any

from muster.definition import Definition
from muster.definition.schema.times import seconds

FOR_ADMINISTRATORS = "root"
"""User of a maintenance: SLURM makes no reservation for nobody, and root has an association."""


def reservations(definition: Definition) -> list[dict[str, Any]]:
    """Return the reservations, durations in minutes, rounded up, accounts as slurmctld has them.

    Of people only those who are there; a reservation for nobody else is left out, since SLURM
    refuses it.
    """
    absent = {
        name for name, one in definition.cluster.users.people.items() if one.state == "absent"
    }
    found = [
        {
            "name": name,
            "start": reservation.start,
            "minutes": int(-(-seconds(reservation.duration) // 60)),
            "repeat": reservation.repeat,
            "partition": reservation.partition,
            "node_count": reservation.node_count,
            # sacctmgr stores accounts in small letters.
            "accounts": sorted(account.lower() for account in reservation.accounts),
            "users": [FOR_ADMINISTRATORS]
            if reservation.maintenance
            else sorted(set(reservation.users) - absent),
            "maintenance": reservation.maintenance,
        }
        for name, reservation in definition.cluster.reservations.items()
    ]
    # One for people in accounts would be for the whole accounts without them.
    return [
        one
        for one in found
        if one["users"] or not definition.cluster.reservations[one["name"]].users
    ]
