"""The nodes to ask for now, in the order in which they get room.

By request, the oldest first, and in a request by job, in the order of SLURM_RESUME_FILE. Nodes
without a job come at the end of their request; those whose request was lost come last.
"""

from collections.abc import Iterator
from itertools import chain, groupby

from muster.autoscaler.reconcile.allocate import Group
from muster.autoscaler.reconcile.model import NodeSet
from muster.autoscaler.reconcile.observed import ObservedState
from muster.autoscaler.reconcile.powering_up import present
from muster.autoscaler.reconcile.release import Releases
from muster.autoscaler.reconcile.tracked import TrackedState


def queued(
    observed: ObservedState, tracked: TrackedState, releases: Releases
) -> Iterator[list[Group]]:
    """Yield what is allocated together: a job's nodes, by set; or neighbours of one set."""
    if not observed.sets or not observed.vms_at:
        # The metadata is not read yet; or the VMs are not, which an earlier daemon may have made.
        return
    sets = _due(observed, tracked, releases)
    together: dict[int | str, list[str]] = {}
    for name in _ordered(observed, sets):
        job = observed.jobs.get(name)
        together.setdefault(job.id if job else name, []).append(name)

    def alike(names: list[str]) -> object:
        """Key of neighbours that try the same choices: together they get the same as one by one."""
        job = observed.jobs.get(names[0])
        tried = (choice for choice, _ in tracked.refused.get(names[0], ()))
        return job.id if job else (sets[names[0]].name, frozenset(tried))

    for _, neighbours in groupby(together.values(), alike):
        parts: dict[str, list[str]] = {}
        for name in chain.from_iterable(neighbours):
            # Another part of the job may have been released.
            if name not in tracked.released:
                parts.setdefault(sets[name].name, []).append(name)
        if parts:
            yield [
                Group(sets[names[0]], tuple(names), observed.jobs.get(names[0]))
                for _, names in sorted(parts.items())
            ]


def _due(observed: ObservedState, tracked: TrackedState, releases: Releases) -> dict[str, NodeSet]:
    """Return the nodes to ask for now; release those whose set has no template."""
    due = {}
    for name in observed.powering_up():
        if not _needs_vm(observed, tracked, name):
            continue
        if name not in observed.nodes and observed.asked.get(name, 0) <= observed.nodes_at:
            continue
        node_set = observed.set_of(name)
        if node_set is None or not node_set.choices:
            releases.add(name, "the controller's metadata has no template for it; run `pulumi up`")
        else:
            due[name] = node_set
    return due


def _ordered(observed: ObservedState, due: dict[str, NodeSet]) -> list[str]:
    """Return nodes in their order; of several jobs that need a node the first one counts."""
    if not due:
        return []
    line: dict[str, None] = {}
    for request in sorted(observed.requests, key=lambda request: request.asked):
        for name in request.nodes:
            # SLURM asks for it again: its place is with this request.
            line.pop(name, None)
        line |= dict.fromkeys(chain(*(job.nodes for job in request.jobs), request.nodes))
    place = {name: number for number, name in enumerate(line)}
    return sorted(due, key=lambda name: place.get(name, len(place)))


def _needs_vm(observed: ObservedState, tracked: TrackedState, name: str) -> bool:
    """Whether a node has no VM, none is on its way, and it may be asked for now."""
    if name in tracked.released or name in tracked.asking or name in tracked.deleting:
        return False
    if present(observed, tracked, name) is not None:
        return False
    if name in tracked.made and observed.vms_at <= _may_lack_until(observed, tracked, name):
        return False
    return name not in tracked.backoff or tracked.backoff[name][0] <= observed.now


def _may_lack_until(observed: ObservedState, tracked: TrackedState, name: str) -> float:
    """Return until when lists may lack a VM that was made.

    Counted from the first list that lacks it: there may have been no list for a while since the
    last one that had it, and then a single list would decide.
    """
    return tracked.lacking.get(name, observed.vms_at) + observed.limits.missing_s
