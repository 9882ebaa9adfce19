"""Nodes that are released: each once, with those that its job can't use without it."""

from collections.abc import Iterable, Mapping

from muster.autoscaler.reconcile.model import Power, ReleaseNodes
from muster.autoscaler.reconcile.observed import ObservedState
from muster.autoscaler.reconcile.records import NodeRecord, Phase, TrackedState


def with_jobs(
    observed: ObservedState, tracked: TrackedState, release: Mapping[str, str]
) -> dict[str, str]:
    """Return the nodes to release and why, with those that wait for the same jobs.

    None while slurmctld does not answer: a node may have come into service since.
    """
    reasons: dict[str, str] = {}
    if observed.stale:
        return reasons
    for name, reason in release.items():
        if name in reasons or tracked.node(name).phase is Phase.RELEASED:
            continue
        reasons[name] = reason
        job = observed.jobs.get(name)
        if job is None or not observed.is_powering_up(name):
            continue
        for other in job.nodes:
            released = tracked.node(other).phase is Phase.RELEASED or other in reasons
            if not released and observed.is_powering_up(other):
                # The same words for all jobs: each reason costs slurmctld a call.
                reasons[other] = f"its job needs all of its nodes: {reason}"
    return reasons


def records(
    observed: ObservedState, tracked: TrackedState, released: Iterable[str]
) -> dict[str, NodeRecord]:
    """Return the records of nodes that are released."""
    return {name: tracked.node(name).to(Phase.RELEASED, observed.now) for name in released}


def actions(observed: ObservedState, reasons: Mapping[str, str]) -> list[ReleaseNodes]:
    """Return one action for each reason and power."""
    names: dict[tuple[str, Power], list[str]] = {}
    for name, reason in reasons.items():
        node = observed.nodes.get(name)
        power = Power.POWERING_UP if observed.is_powering_up(name) or not node else node.power
        names.setdefault((reason, power), []).append(name)
    return [ReleaseNodes(tuple(each), reason, power) for (reason, power), each in names.items()]
