"""Which VMs the autoscaler asks for, where, and how many at once.

Nodes of one-node jobs, and nodes without a job, become one insert for each node set and choice, for
any number of jobs. If a job needs several nodes, these become one insert that makes all or none. If
these nodes are of several sets, the autoscaler waits until all of them have a place.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace

from muster.autoscaler.reconcile.allocate import (
    NO_QUOTA,
    Allocation,
    NodeGroup,
    allocate,
    left,
    no_room,
)
from muster.autoscaler.reconcile.circuit_breaker import Breaker
from muster.autoscaler.reconcile.model import CapacityPool, Choice, Insert, NodeSet
from muster.autoscaler.reconcile.observed import ObservedState
from muster.autoscaler.reconcile.order import due_nodes, queued, without_unready_jobs
from muster.autoscaler.reconcile.records import NodeRecord, TrackedState, started
from muster.autoscaler.reconcile.transitions import Evidence, step
from muster.autoscaler.reconcile.verdicts import Release, Verdicts

NO_TEMPLATE = "the controller's metadata has no template for it; run `pulumi up`"
MOST = 5000
"""Most VMs of one bulkInsert: https://cloud.google.com/compute/docs/instances/using-bulk-api."""


def provision(observed: ObservedState, tracked: TrackedState) -> Verdicts:
    """Return the inserts that are due; release the nodes that no choice has room for."""
    due: dict[str, NodeSet] = {}
    release: dict[str, Release] = {}
    for name in due_nodes(observed, tracked):
        node_set = observed.set_of(name)
        if node_set and node_set.choices:
            due[name] = node_set
        elif observed.sets_at >= started(tracked.node(name)).asked:
            # Metadata from before SLURM asked may lack a set that has been added since.
            release[name] = Release(Evidence.NO_TEMPLATE, NO_TEMPLATE)
    due = without_unready_jobs(observed, tracked, due, release)
    if not due:
        return Verdicts(release=release)
    placed: dict[tuple[str, Choice, int], tuple[NodeGroup, list[str]]] = {}
    refused: dict[str, NodeRecord] = {}
    for allocation in _allocations(observed, tracked, due):
        refused |= _no_quota(tracked, allocation)
        if allocation.without:
            noted = tracked.with_nodes(refused)
            release |= {
                name: Release(Evidence.NO_PLACE, no_room(observed, noted, allocation.group, name))
                for name in allocation.without
            }
        job = allocation.group.job
        for choice, names in allocation.asked:
            # One-node jobs make one call, even if other jobs are between them.
            key = allocation.group.node_set.name, choice, job.id if job else 0
            placed.setdefault(key, (allocation.group, []))[1].extend(names)
    return _inserts(observed, tracked, placed, refused, release)


def _allocations(
    observed: ObservedState, tracked: TrackedState, due: Mapping[str, NodeSet]
) -> Iterator[Allocation]:
    """Yield what each group has got; a job gets all or nothing, and may wait."""
    room = left(observed, tracked)
    for groups in queued(observed, tracked, due):
        allocations, remaining = allocate(observed, tracked, groups, room)
        in_job = groups[0].job is not None
        if in_job and any(allocation.without for allocation in allocations):
            yield from (replace(allocation, asked=[]) for allocation in allocations)
        elif not (in_job and any(allocation.waits for allocation in allocations)):
            room = remaining
            yield from allocations


def _no_quota(tracked: TrackedState, allocation: Allocation) -> dict[str, NodeRecord]:
    """Track which choices had no quota for a node."""
    records: dict[str, NodeRecord] = {}
    for name, choice in allocation.no_quota:
        record = records.get(name) or tracked.node(name)
        start = started(record)
        tried = replace(start, refused=(*start.refused, (choice, NO_QUOTA)))
        records[name] = replace(record, start=tried)
    return records


def _inserts(
    observed: ObservedState,
    tracked: TrackedState,
    placed: Mapping[tuple[str, Choice, int], tuple[NodeGroup, list[str]]],
    refused: Mapping[str, NodeRecord],
    release: Mapping[str, Release],
) -> Verdicts:
    records = dict(refused)
    breakers: dict[CapacityPool, Breaker] = {}
    inserts: list[Insert] = []
    for (_, choice, _), (group, names) in placed.items():
        for first in range(0, len(names), MOST):
            part = {
                name: records.get(name) or tracked.node(name)
                for name in names[first : first + MOST]
            }
            tries = max(started(record).attempts for record in part.values()) + 1
            insert = _insert(observed, group, choice, part, tries)
            inserts.append(insert)
            now = observed.now
            records |= {
                name: _sent(now, name, record, insert, tries) for name, record in part.items()
            }
            breaker = tracked.breakers.get(choice.pool)
            if breaker and group.need >= breaker.size:
                breakers[choice.pool] = replace(breaker, trial=insert.id)
    return Verdicts(records, breakers, release, inserts)


def _insert(
    observed: ObservedState,
    group: NodeGroup,
    choice: Choice,
    part: Mapping[str, NodeRecord],
    tries: int,
) -> Insert:
    since = max(started(record).asked for record in part.values())
    # The id is the same after a restart of the daemon: Google does each id only once.
    facts = f"{choice} {tries} {since:.3f} {' '.join(sorted(part))}"
    return Insert(
        id=hashlib.sha256(facts.encode()).hexdigest()[:32],
        choice=choice,
        names=tuple(part),
        least=len(part) if group.job else 1,
        job=group.job.id if group.job else 0,
        placement=group.job is not None and group.node_set.compact,
        sent_at=observed.now,
    )


def _sent(now: float, name: str, record: NodeRecord, insert: Insert, tries: int) -> NodeRecord:
    start = replace(
        started(record),
        attempts=tries,
        inserted_at=now,
        insert=insert.id,
        again=0.0,
        failure=None,
    )
    phase, _ = step(record.phase, Evidence.ROOM, name)
    record = record.to(phase, start.asked).without_vm()
    return replace(record, start=start, insert=insert.id)
