"""Nodes that are released: each once, with those that its jobs can't use without it."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain

from muster.autoscaler.reconcile.model import Job, Node, NodeState, Power, ReleaseNodes
from muster.autoscaler.reconcile.observed import ObservedState
from muster.autoscaler.reconcile.records import NodeRecord, Phase, TrackedState
from muster.autoscaler.reconcile.transitions import Evidence, step
from muster.autoscaler.reconcile.verdicts import Release


def with_jobs(
    observed: ObservedState, tracked: TrackedState, release: Mapping[str, Release]
) -> dict[str, Release]:
    """Return the nodes to release, with those that no job needs then.

    SLURM queues all jobs of a released node again. Their other nodes stay only for another job.
    None while slurmctld does not answer: a node may have come into service since.
    """
    released: dict[str, Release] = {}
    if not release or observed.stale:
        return released
    due_now = {
        name: due for name, due in release.items() if tracked.node(name).phase is not Phase.RELEASED
    }
    jobs_of = {name: _waiting_jobs(observed, name) for name in due_now}
    queued_again = dict.fromkeys((job.id for jobs in jobs_of.values() for job in jobs), True)
    for name, due in due_now.items():
        if name in released:
            continue
        released[name] = due
        for other in chain.from_iterable((*job.nodes, *job.others) for job in jobs_of[name]):
            over = tracked.node(other).phase is Phase.RELEASED or other in released
            if over or not observed.is_powering_up(other):
                continue
            jobs = observed.all_jobs.get(other, ())
            for job in jobs:
                if job.id not in queued_again:
                    queued_again[job.id] = _is_queued_again(observed, tracked, job)
            if other in due_now or (jobs and all(queued_again[job.id] for job in jobs)):
                # The same words for all jobs: each reason costs slurmctld a call.
                reason = f"its job needs all of its nodes: {due.reason}"
                released[other] = Release(Evidence.JOB_RELEASED, reason)
    return released


def _waiting_jobs(observed: ObservedState, name: str) -> tuple[Job, ...]:
    """Return the jobs that wait for a node."""
    if not observed.is_powering_up(name) or _is_without_job(observed, name):
        return ()
    return observed.all_jobs.get(name, ())


def _is_queued_again(observed: ObservedState, tracked: TrackedState, job: Job) -> bool:
    """Whether a node of a job was released before, so that the job needs none of them any more."""
    for name in (*job.nodes, *job.others):
        node = observed.nodes.get(name)
        off = node is not None and node.power in (Power.POWERING_DOWN, Power.OFF)
        if tracked.node(name).phase is Phase.RELEASED or (
            off and not observed.is_powering_up(name)
        ):
            return True
    return False


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
        phase, _ = step(record.phase, due.evidence, name)
        # What is under way may end before the release does.
        records[name] = replace(record.to(phase, at), lookup=None, released_at=0.0)
    return records


def actions(observed: ObservedState, released: Mapping[str, Release]) -> list[ReleaseNodes]:
    """Return one action for each reason and state."""
    names: dict[tuple[str, NodeState, bool], list[str]] = {}
    for name, due in released.items():
        node = observed.nodes.get(name)
        if node is None or (observed.is_powering_up(name) and node.power is not Power.POWERING_UP):
            # SLURM changes the state before it calls ResumeProgram.
            node = Node(name, Power.POWERING_UP)
        vm_gone = due.evidence in (Evidence.ABSENT, Evidence.SHUT_DOWN)
        names.setdefault((due.reason, node.state, vm_gone), []).append(name)
    return [ReleaseNodes(tuple(each), *key) for key, each in names.items()]
