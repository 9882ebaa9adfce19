"""The nodes to ask for now, in the order in which they get room.

By request, the oldest first, and in a request by job, in the order of SLURM_RESUME_FILE. Nodes
without a job come at the end of their request; those whose request was lost come last.
"""

from collections.abc import Collection, Iterator, Mapping
from itertools import chain, groupby

from muster.autoscaler.reconcile.allocate import NodeGroup
from muster.autoscaler.reconcile.model import NOT_UP, CapacityPool, NodeSet
from muster.autoscaler.reconcile.observed import ObservedState
from muster.autoscaler.reconcile.records import Phase, TrackedState, started
from muster.autoscaler.reconcile.vms import is_left_over, vm_of

REQUEST_S = 1.0
"""How long after a node's state has changed its request may come into the spool."""


def queued(
    observed: ObservedState, tracked: TrackedState, due: Mapping[str, NodeSet]
) -> Iterator[list[NodeGroup]]:
    """Yield which of the nodes are allocated together: a job's, by set, or neighbours of a set."""
    together: dict[int | str, list[str]] = {}
    for name in _ordered(observed, due):
        job = observed.jobs.get(name)
        together.setdefault(job.id if job else name, []).append(name)

    def alike(names: list[str]) -> object:
        """Key of neighbours that try the same choices: together they get the same as one by one."""
        job = observed.jobs.get(names[0])
        tried = (choice for choice, _ in started(tracked.node(names[0])).refused)
        return job.id if job else (due[names[0]].name, frozenset(tried))

    for _, neighbours in groupby(together.values(), alike):
        parts: dict[str, list[str]] = {}
        for name in chain.from_iterable(neighbours):
            parts.setdefault(due[name].name, []).append(name)
        yield [
            NodeGroup(
                due[names[0]],
                tuple(names),
                observed.jobs.get(names[0]),
                _job_pools(observed, tracked, due, names[0]),
            )
            for _, names in sorted(parts.items())
        ]


def _job_pools(
    observed: ObservedState, tracked: TrackedState, due: Mapping[str, NodeSet], name: str
) -> frozenset[CapacityPool]:
    """Return where the VMs of a job's other nodes are, of the same set, when one is made again."""
    job = observed.jobs.get(name)
    pools = set()
    for other in job.nodes if job else ():
        if other in due or observed.jobs.get(other) != job or observed.set_of(other) != due[name]:
            continue
        record = tracked.node(other)
        vm = vm_of(observed, record, other)
        if record.insert in tracked.inserts:
            pools.add(tracked.inserts[record.insert].choice.pool)
        elif record.vm and record.vm.pool:
            pools.add(record.vm.pool)
        elif vm and not is_left_over(observed.timeouts, record, vm) and vm.status not in NOT_UP:
            pools.add(vm.pool)
    return frozenset(pools)


def due_nodes(observed: ObservedState, tracked: TrackedState) -> list[str]:
    """Return the nodes that have no VM, and that may be asked for now."""
    if not observed.sets or not observed.vms_at:
        # The metadata is not read yet; or the VMs are not, which an earlier daemon may have made.
        return []
    return [name for name in observed.powering_up() if _is_due(observed, tracked, name)]


def without_unready_jobs(
    observed: ObservedState,
    tracked: TrackedState,
    due: Mapping[str, NodeSet],
    released: Collection[str],
) -> dict[str, NodeSet]:
    """Return the nodes that are due, without those of jobs of which another node is not due yet.

    A job's nodes are asked for by one insert, or room could be found for a part of them only, and
    in several places. They wait for a VM of one that must be gone first, or that an earlier daemon
    may have made; the job could not begin without that node. Nor do they get a VM while one of them
    is released, until slurmctld shows whether another job has them.
    """
    unready: dict[int, bool] = {}
    ready: dict[str, NodeSet] = {}
    for name, node_set in due.items():
        job = observed.jobs.get(name)
        if job and job.id not in unready:
            unready[job.id] = any(
                other not in due and _will_be_due(observed, tracked, other) for other in job.nodes
            ) or any(
                other in released or tracked.node(other).phase is Phase.RELEASED
                for other in (*job.nodes, *job.others)
            )
        if not job or not unready[job.id]:
            ready[name] = node_set
    return ready


def _will_be_due(observed: ObservedState, tracked: TrackedState, name: str) -> bool:
    """Whether a node may be asked for later: it has no VM, or only perhaps one."""
    record = tracked.node(name)
    if not observed.is_powering_up(name) or record.start is None or record.start.doubted_at:
        return False
    maybe = record.phase is Phase.CREATED and record.vm is not None and record.vm.pool is None
    return record.phase is Phase.WAITING or maybe


def _ordered(observed: ObservedState, due: Mapping[str, NodeSet]) -> list[str]:
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


def _is_due(observed: ObservedState, tracked: TrackedState, name: str) -> bool:
    record = tracked.node(name)
    if record.phase is not Phase.WAITING or record.insert or record.deletions:
        return False
    start = started(record)
    if vm_of(observed, record, name) is not None or start.again > observed.now:
        return False
    # While slurmctld does not answer its states still show a start that is over.
    if start.doubted_at or observed.now >= start.asked + observed.timeouts.verdict_s:
        return False
    if start.noticed_at:
        # SLURM changes the state before it calls ResumeProgram: the request may come in a moment,
        # and says which job needs the node.
        return name in observed.nodes and observed.nodes_at >= start.noticed_at + REQUEST_S
    return name in observed.nodes or observed.asked.get(name, 0) > observed.nodes_at
