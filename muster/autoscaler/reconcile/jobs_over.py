"""Jobs of a request that have their nodes no more: cancelled, or queued again; pure.

SLURM gives a node that powers up to further jobs, without another call of ResumeProgram. So what a
request says of jobs holds until a reading shows one of their nodes without any job. When one node
of a job that waits is released, the others are without a job at once (22.05 and 24.11, tried).
"""

from collections.abc import Mapping
from dataclasses import replace

from muster.autoscaler.reconcile.model import OFF, Job
from muster.autoscaler.reconcile.observed import ObservedState
from muster.autoscaler.reconcile.records import POWERING_UP, TrackedState
from muster.autoscaler.reconcile.transitions import Evidence
from muster.autoscaler.reconcile.verdicts import Release, Verdicts

UNUSED = "no job has it any more"
"""So begins the reason of a release that rests on that."""


def jobs_over(observed: ObservedState, tracked: TrackedState) -> Mapping[str, Mapping[int, Job]]:
    """Return `TrackedState.jobs_over` after the newest reading of slurmctld."""
    over: dict[str, Mapping[int, Job]] = {}
    for request in observed.requests:
        jobs = tracked.jobs_over.get(request.id, {})
        if observed.nodes_at >= request.asked:
            # A job's nodes are allocated before SLURM calls ResumeProgram.
            left = (job for job in request.jobs if job.id not in jobs)
            jobs = {**jobs, **{job.id: job for job in left if _is_over(observed, job)}}
        if jobs:
            over[request.id] = jobs
    return over


def _is_over(observed: ObservedState, job: Job) -> bool:
    nodes = (observed.nodes.get(name) for name in job.nodes)
    return any(node is not None and not node.busy for node in nodes)


def without_jobs_over(observed: ObservedState, tracked: TrackedState) -> ObservedState:
    """Return the observed state with requests that name no job that is over."""
    if not tracked.jobs_over:
        return observed
    requests = []
    for request in observed.requests:
        over = tracked.jobs_over.get(request.id, {})
        left = tuple(job for job in request.jobs if job.id not in over)
        requests.append(replace(request, jobs=left) if over else request)
    return replace(observed, requests=requests)


def check_jobs_over(observed: ObservedState, tracked: TrackedState) -> Verdicts:
    """Release the nodes of jobs that were queued again, unless another job has them by now.

    Such a job had a node that is powered down. Those of a job that was cancelled stay, and are idle
    when they come, unless one of them fails.
    """
    release: dict[str, Release] = {}
    if not tracked.fresh or not tracked.jobs_over:
        return Verdicts()
    asked_alone = _asked_without_job(observed, tracked)
    for request in observed.requests:
        if request.asked <= observed.now - observed.timeouts.resume_s:
            # It was closed, and its file could not be removed.
            continue
        for job in tracked.jobs_over.get(request.id, {}).values():
            names = (*job.nodes, *job.others)
            if down := next((name for name in names if _is_down(observed, tracked, name)), None):
                reason = f"{UNUSED}: one needed it and {down}, which is powered down"
                due = Release(Evidence.JOB_RELEASED, reason)
                release |= {
                    name: due
                    for name in names
                    if observed.asked.get(name, 0) <= request.asked
                    and _is_unused(observed, tracked, name)
                    and name not in asked_alone
                }
    return Verdicts(release=release)


def _asked_without_job(observed: ObservedState, tracked: TrackedState) -> set[str]:
    """The nodes that somebody powers up for no job: they stay when they come."""
    names: set[str] = set()
    for request in observed.requests:
        jobs = (*request.jobs, *tracked.jobs_over.get(request.id, {}).values())
        names.update(set(request.nodes).difference(*(job.nodes for job in jobs)))
    return names


def _is_down(observed: ObservedState, tracked: TrackedState, name: str) -> bool:
    """Whether a node is powered down; a released one in service is when its jobs have ended."""
    node = observed.nodes.get(name)
    if node is None or not (node.power in OFF or tracked.node(name).released_at > 0):
        return False
    return not observed.is_powering_up(name)


def _is_unused(observed: ObservedState, tracked: TrackedState, name: str) -> bool:
    """Whether SLURM waits for a node that no job has."""
    node, record = observed.nodes.get(name), tracked.node(name)
    if node is None or node.busy or not observed.is_powering_up(name):
        return False
    # While it is in doubt of which start it is, it may be of a later one.
    in_doubt = record.start is None or record.start.doubted_at > 0
    return record.phase in POWERING_UP and not in_doubt
