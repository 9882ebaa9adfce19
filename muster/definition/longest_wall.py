"""The time that limits give a job that asks for none, where its partition gives none."""

from collections.abc import Iterable, Iterator
from math import isfinite

from muster.definition.checks.contradicting_limits import accounts_above
from muster.definition.checks.limits import NORMAL, allowed, usable
from muster.definition.definition import Definition
from muster.definition.schema.limits import Association, Qos
from muster.definition.schema.node_sets import Partition
from muster.definition.schema.times import seconds

Limits = tuple[str, Association | Qos]
"""Limits with their key."""


def longest_wall(definition: Definition, partition: Partition) -> tuple[float, str, str] | None:
    """Return the longest `max_wall` of jobs in a partition, as seconds and text, and its key.

    Of the QoS of the partition, the job's, and its association and accounts upwards the first one
    that has a time gives it.
    """
    qos = definition.cluster.qos
    taken = {
        name for name in (NORMAL, *qos) if any(one is partition for one in usable(definition, name))
    }
    found = []
    for names, levels in _people(definition):
        for name in taken.intersection(names):
            both = [(f"qos.{one}", qos[one]) for one in (partition.qos, name) if one in qos]
            found += _walls([*both, *levels])[:1]
    return max(found, default=None)


def _people(definition: Definition) -> Iterator[tuple[list[str], list[Limits]]]:
    """The QoS and limits of each association, and of the other users of each account."""
    for name, account in definition.cluster.accounts.items():
        above = [(".".join(map(str, path)), one) for path, one in accounts_above(definition, name)]
        own = {user: one for user, one in account.associations.items() if user in account.users}
        for user, one in own.items():
            key = f"accounts.{name}.associations.{user}"
            yield allowed(definition, name, one.qos), [(key, one), *above]
        if len(own) < len(account.users):
            yield allowed(definition, name), [*above]


def _walls(levels: Iterable[Limits]) -> list[tuple[float, str, str]]:
    """The times of those that have one."""
    given = [(one.max_wall, key) for key, one in levels if one.max_wall is not None]
    walls = [(seconds(text), text, f"{key}.max_wall") for text, key in given]
    return [wall for wall in walls if isfinite(wall[0])]
