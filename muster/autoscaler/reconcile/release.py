"""Nodes that are released: each once, with those that its job can't use without it."""

from collections.abc import Mapping
from dataclasses import replace

from muster.autoscaler.reconcile.model import Node, Power, ReleaseNodes
from muster.autoscaler.reconcile.observed import ObservedState
from muster.autoscaler.reconcile.records import NodeRecord, Phase, TrackedState
from muster.autoscaler.reconcile.transitions import Evidence, step
from muster.autoscaler.reconcile.verdicts import Release


def with_jobs(
    observed: ObservedState, tracked: TrackedState, release: Mapping[str, Release]
) -> dict[str, Release]:
    """Return the nodes to release, with those that wait for the same jobs.

    None while slurmctld does not answer: a node may have come into service since.
    """
    released: dict[str, Release] = {}
    if observed.stale:
        return released
    for name, due in release.items():
        if name in released or tracked.node(name).phase is Phase.RELEASED:
            continue
        released[name] = due
        job = observed.jobs.get(name)
        if job is None or not observed.is_powering_up(name) or _is_without_job(observed, name):
            continue
        for other in job.nodes:
            over = tracked.node(other).phase is Phase.RELEASED or other in released
            if not over and observed.is_powering_up(other):
                # The same words for all jobs: each reason costs slurmctld a call.
                reason = f"its job needs all of its nodes: {due.reason}"
                released[other] = Release(Evidence.JOB_RELEASED, reason)
    return released


def _is_without_job(observed: ObservedState, name: str) -> bool:
    """Whether slurmctld has said since the request that no job has a node.

    The job of the request was cancelled: another one may have its other nodes.
    """
    node = observed.nodes.get(name)
    newer = observed.nodes_at >= observed.asked.get(name, 0)
    return node is not None and newer and not node.busy


def records(
    tracked: TrackedState, released: Mapping[str, Release], at: float
) -> dict[str, NodeRecord]:
    """Return the records of nodes that are released."""
    records: dict[str, NodeRecord] = {}
    for name, due in released.items():
        record = tracked.node(name)
        phase, _ = step(record.phase, due.evidence)
        # What is under way may end before the release does.
        records[name] = replace(record.to(phase, at), lookup=None, released_at=0.0)
    return records


def actions(observed: ObservedState, released: Mapping[str, Release]) -> list[ReleaseNodes]:
    """Return one action for each reason and state."""
    names: dict[tuple[str, tuple[Power, bool, bool]], list[str]] = {}
    for name, due in released.items():
        node = observed.nodes.get(name)
        if node is None or (observed.is_powering_up(name) and node.power is not Power.POWERING_UP):
            # SLURM changes the state before it calls ResumeProgram.
            node = Node(name, Power.POWERING_UP)
        names.setdefault((due.reason, node.state), []).append(name)
    return [ReleaseNodes(tuple(each), reason, state) for (reason, state), each in names.items()]
