"""The time of a job that asks for none: that of limits, or of its partition beyond limits."""

from collections.abc import Iterable, Iterator
from math import isfinite

from muster.definition.checks.contradicting_limits import Level, denies, people_limits
from muster.definition.checks.limits import NORMAL, allowed, associations, takes, usable
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


def below_defaults(definition: Definition) -> Iterator[str]:
    """Return sentences about accounts and users whose jobs must ask for a time.

    What their jobs have otherwise is beyond their `max_wall`, in each partition. No errors: people
    may be told so.
    """
    qos = definition.cluster.qos
    for path, account, association in associations(definition):
        for wall, _, key in _walls([(path, association)]):
            # Where a QoS has a time, that one holds.
            jobs = [
                (name, partition)
                for name in allowed(definition, account, association.qos)
                for partition in definition.cluster.partitions.values()
                if takes(partition, name)
                and not _walls([((), qos[one]) for one in (partition.qos, name) if one in qos])
            ]
            defaults = [
                (seconds(p.default_time), p.default_time) for _, p in jobs if p.default_time
            ]
            # Without a `default_time` they have what is allowed.
            if not jobs or len(defaults) < len(jobs) or wall >= min(defaults)[0]:
                continue
            outcomes = {
                "are refused"
                if denies(definition, name) or denies(definition, partition.qos)
                else "wait for ever"
                for name, partition in jobs
            }
            yield (
                f"{key}: jobs that ask for no time have {min(defaults)[1]} or more, by "
                f"`default_time` of their partition, and {' or '.join(sorted(outcomes))}; lower "
                "that or raise `max_wall`, or tell people to use --time"
            )
