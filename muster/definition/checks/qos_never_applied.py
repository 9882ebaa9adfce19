"""Checks of what a QoS says, and SLURM never applies: of preemption and of priority."""

from collections.abc import Iterator

from muster.definition.checks.limits import (
    NORMAL,
    chosen,
    has_unknown_qos,
    of_partitions,
    takes,
)
from muster.definition.checks.registry import Finding, check
from muster.definition.checks.slurm import parameter_words
from muster.definition.definition import Definition
from muster.definition.schema.limits import Qos

_BECAUSE = ("accounts",)
"""What is wrong there says which QoS nobody may choose."""


def _of_a_victim(qos: Qos) -> list[str]:
    """The keys that say how jobs of a QoS give way."""
    keys = ["preempt_mode"] if "preempt_mode" in qos.model_fields_set else []
    return [*keys, *(["grace_seconds"] if qos.grace_seconds else [])]


def _do_nothing(keys: list[str]) -> str:
    """Begin of a sentence about the first of some keys and the others."""
    return " and ".join(["it", *keys[1:]]) + (" do nothing" if len(keys) > 1 else " does nothing")


def _only_of_partitions(d: Definition) -> set[str]:
    return of_partitions(d) - chosen(d) - {NORMAL}


@check("qos-only-of-partitions")
def qos_only_of_partitions(d: Definition) -> Iterator[Finding]:
    """Priority or preemption of a QoS that no user may choose, only partitions have it.

    SLURM takes limits from the QoS of a partition, but these from the QoS of a job alone.
    """
    if has_unknown_qos(d):
        return
    only = _only_of_partitions(d)
    for name, qos in d.cluster.qos.items():
        keys = [key for key in ("priority", "preempt") if getattr(qos, key)] + _of_a_victim(qos)
        if name in only and keys:
            yield Finding(
                ("qos", name, keys[0]),
                f'{_do_nothing(keys)}: "{name}" is only the QoS of a partition, and SLURM takes '
                "only limits from that",
                f"take out {' and '.join(keys)}, or add {name} to `qos` of an account",
                because=_BECAUSE,
            )


@check("qos-preempts-no-job")
def qos_preempts_no_job(d: Definition) -> Iterator[Finding]:
    """A QoS in `preempt` that no job has, or whose jobs are on other nodes."""
    if has_unknown_qos(d):
        return
    only, by_users = _only_of_partitions(d), chosen(d) | {NORMAL}
    for name, qos in d.cluster.qos.items():
        for index, other in enumerate(qos.preempt):
            path = ("qos", name, "preempt", index)
            if name in only or name == other:
                continue  # has an error of its own
            if other in only:
                yield Finding(
                    path,
                    f'no job is in "{other}", which is only the QoS of a partition',
                    f"take it out, or add {other} to `qos` of an account",
                    because=_BECAUSE,
                )
            elif {name, other} <= by_users and _are_apart(d, name, other):
                yield Finding(
                    path,
                    f'jobs in "{name}" and "{other}" never run on the same nodes, by `allow_qos` '
                    "or `deny_qos` of the partitions",
                    "take it out, or let a partition with these nodes take both",
                    because=("partitions",),
                )


def _are_apart(d: Definition, *names: str) -> bool:
    """Whether jobs of two QoS, both of which run somewhere, have no node in common."""
    first, second = (
        {
            nodes
            for part in d.cluster.partitions.values()
            if takes(part, name)
            for nodes in part.nodes
        }
        for name in names
    )
    return bool(first and second) and not first & second


@check("qos-never-preempted")
def qos_never_preempted(d: Definition) -> Iterator[Finding]:
    """How jobs of a QoS give way, and no QoS that preempts it."""
    # With WITHIN jobs of one QoS preempt each other.
    if has_unknown_qos(d) or "within" in parameter_words(d, "preemptmode"):
        return
    preempted = {name for qos in d.cluster.qos.values() for name in qos.preempt}
    by_users = chosen(d) | {NORMAL}
    for name, qos in d.cluster.qos.items():
        keys = _of_a_victim(qos)
        if keys and name in by_users and name not in preempted:
            yield Finding(
                ("qos", name, keys[0]),
                f'{_do_nothing(keys)}: no QoS has "{name}" in `preempt`',
                f"take out {' and '.join(keys)}, or add {name} to `preempt` of another QoS",
                because=("qos",),
            )
