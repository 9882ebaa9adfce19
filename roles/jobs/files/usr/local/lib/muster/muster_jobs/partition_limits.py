# SPDX-License-Identifier: Apache-2.0
"""The limit of a partition for which a job waits, from `scontrol show partition`."""

from collections.abc import Sequence

from muster_jobs.asks import Asks
from muster_jobs.holders import Values, values_of
from muster_jobs.records import Run, output
from muster_jobs.units import duration, number, seconds, shown

PARTITION_LIMITS = ("PartitionTimeLimit", "PartitionNodeLimit", "MaxMemPerLimit")
"""Reasons that a limit of the partition is behind."""
_SCONTROL = ["/usr/bin/scontrol", "--oneliner", "show", "partition"]
_OTHER = ", or another partition (--partition)"


def partition_limit(
    reason: str, asked: Asks, partitions: Sequence[str], run: Run
) -> "tuple[str, str] | None":
    """Return what the limit says, and what to do; None where the job is within it.

    Raises:
        NotKnownError: scontrol failed.

    """
    of_reason = {
        "PartitionTimeLimit": _time,
        "PartitionNodeLimit": _nodes,
        "MaxMemPerLimit": _memory,
    }[reason]
    for name in partitions:
        if told := of_reason(values_of(output([*_SCONTROL, name], run)), asked):
            allows, asks_for, remedy = told
            says = f"The limit: partition {name} {allows}, and this job asks for {asks_for}"
            return says, f"{remedy}{_OTHER}"
    return None


def _time(values: Values, asked: Asks) -> "tuple[str, str, str] | None":
    most = seconds(values.get("MaxTime", ""))
    if not most or asked.minutes * 60 <= most:
        return None
    allowed = duration(most)
    return (
        f"allows a job at most {allowed}",
        duration(asked.minutes * 60),
        f"scontrol update jobid=JOB timelimit={allowed}",
    )


def _nodes(values: Values, asked: Asks) -> "tuple[str, str, str] | None":
    wants = int(asked.tres.get("node", 0))
    least = number(values.get("MinNodes", ""))
    if wants and wants < least:
        return (
            f"wants a job to have at least {_of_nodes(least)}",
            _of_nodes(wants),
            f"scontrol update jobid=JOB numnodes={least}",
        )
    for field, says in (("MaxNodes", "allows a job at most"), ("TotalNodes", "has only")):
        most = number(values.get(field, ""))
        if most and wants > most:
            return (
                f"{says} {_of_nodes(most)}",
                _of_nodes(wants),
                f"scontrol update jobid=JOB numnodes={most}",
            )
    return None


def _memory(values: Values, asked: Asks) -> "tuple[str, str, str] | None":
    memory = asked.tres.get("mem", 0)
    for field, where, count in (
        ("MaxMemPerNode", "on each node", "node"),
        ("MaxMemPerCPU", "for each CPU", "cpu"),
    ):
        most = number(values.get(field, ""))
        wants = memory / max(1, asked.tres.get(count, 1))
        if most and wants > most:
            return (
                f"allows a job at most {shown(most * 2**20)} of memory {where}",
                shown(wants * 2**20),
                "scancel JOB, and ask for less memory (--mem)",
            )
    return None


def _of_nodes(count: int) -> str:
    return f"{count} node{'s' if count != 1 else ''}"
