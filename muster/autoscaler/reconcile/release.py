"""Nodes that are released: each once."""

from collections.abc import Mapping
from dataclasses import replace

from muster.autoscaler.reconcile.model import Node, NodeState, Power, ReleaseNodes
from muster.autoscaler.reconcile.observed import ObservedState
from muster.autoscaler.reconcile.records import NodeRecord, Phase, TrackedState
from muster.autoscaler.reconcile.transitions import Evidence, step
from muster.autoscaler.reconcile.verdicts import Release


def due(
    observed: ObservedState, tracked: TrackedState, release: Mapping[str, Release]
) -> dict[str, Release]:
    """Return the nodes to release now, each once.

    SLURM queues all jobs of a released node again. Their other nodes follow when slurmctld shows
    that no other job has them (`jobs_over`). None while slurmctld does not answer: a node may have
    come into service since.
    """
    if not release or observed.stale:
        return {}
    return {
        name: due for name, due in release.items() if tracked.node(name).phase is not Phase.RELEASED
    }


def records(
    tracked: TrackedState, released: Mapping[str, Release], at: float
) -> dict[str, NodeRecord]:
    """Return the records of nodes that are released."""
    records: dict[str, NodeRecord] = {}
    for name, due in released.items():
        record = tracked.node(name)
        phase, _ = step(record.phase, due.evidence, name)
        # What is under way may end before the release does.
        records[name] = replace(record.to(phase, at), lookup=None, released_at=0.0)
    return records


def actions(observed: ObservedState, released: Mapping[str, Release]) -> list[ReleaseNodes]:
    """Return one action for each reason and state."""
    names: dict[tuple[str, NodeState, bool, bool], list[str]] = {}
    for name, due in released.items():
        node = observed.nodes.get(name)
        if node is None or (observed.is_powering_up(name) and node.power is not Power.POWERING_UP):
            # SLURM changes the state before it calls ResumeProgram.
            node = Node(name, Power.POWERING_UP)
        vm_gone = due.evidence in (Evidence.ABSENT, Evidence.SHUT_DOWN)
        unused = due.evidence is Evidence.JOB_RELEASED
        names.setdefault((due.reason, node.state, vm_gone, unused), []).append(name)
    return [ReleaseNodes(tuple(each), *key) for key, each in names.items()]
