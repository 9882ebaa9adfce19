"""The time that limits give a job that asks for none, where its partition gives none."""

from collections.abc import Iterable
from math import isfinite

from muster.definition.checks.contradicting_limits import Level, people_limits
from muster.definition.checks.limits import NORMAL, usable
from muster.definition.definition import Definition
from muster.definition.schema.node_sets import Partition
from muster.definition.schema.times import seconds


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
    for names, levels in people_limits(definition):
        for name in taken.intersection(names):
            both = [(("qos", one), qos[one]) for one in (partition.qos, name) if one in qos]
            found += _walls([*both, *levels])[:1]
    return max(found, default=None)


def _walls(levels: Iterable[Level]) -> list[tuple[float, str, str]]:
    """The times of those that have one."""
    given = [(one.max_wall, key) for key, one in levels if one.max_wall is not None]
    walls = [(seconds(text), text, ".".join(map(str, (*key, "max_wall")))) for text, key in given]
    return [wall for wall in walls if isfinite(wall[0])]
