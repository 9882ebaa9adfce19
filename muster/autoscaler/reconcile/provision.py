"""Which VMs the autoscaler asks for, where, and how many at once.

Nodes of one-node jobs, and nodes without a job, become one insert for each node set and choice, for
any number of jobs. If a job needs several nodes, these become one insert that makes all or none. If
these nodes are of several sets, the autoscaler waits until all of them have a place.
"""

import hashlib
from dataclasses import replace

from muster.autoscaler.reconcile.allocate import (
    NO_QUOTA,
    Allocation,
    Group,
    Room,
    allocate,
    left,
    no_room,
)
from muster.autoscaler.reconcile.model import Choice, Insert
from muster.autoscaler.reconcile.observed import ObservedState
from muster.autoscaler.reconcile.queue import queued
from muster.autoscaler.reconcile.release import Releases
from muster.autoscaler.reconcile.tracked import TrackedState

MOST = 5000
"""Most VMs of one bulkInsert: https://cloud.google.com/compute/docs/instances/using-bulk-api."""


def provision(observed: ObservedState, tracked: TrackedState, releases: Releases) -> list[Insert]:
    """Return the inserts that are due; release a node if no choice has room for it."""
    room: Room | None = None
    asked: dict[tuple[str, Choice, int], tuple[Group, list[str]]] = {}
    for groups in queued(observed, tracked, releases):
        # Count the room only if a node is due: this is rare.
        room = room or Room(left(observed, tracked))
        allocations, remaining = allocate(observed, tracked, groups, room)
        job = groups[0].job
        if job and any(allocation.without for allocation in allocations):
            for allocation in allocations:
                _without(observed, tracked, releases, allocation)
        elif not (job and any(allocation.waits for allocation in allocations)):
            room = remaining
            for allocation in allocations:
                _without(observed, tracked, releases, allocation)
                for choice, names in allocation.asked:
                    # One-node jobs make one call, even if other jobs are between them.
                    key = allocation.group.node_set.name, choice, job.id if job else 0
                    asked.setdefault(key, (allocation.group, []))[1].extend(names)
    return [
        _insert(tracked, group, choice, tuple(names[first : first + MOST]))
        for (_, choice, _), (group, names) in asked.items()
        for first in range(0, len(names), MOST)
    ]


def _without(
    observed: ObservedState, tracked: TrackedState, releases: Releases, allocation: Allocation
) -> None:
    """Release the nodes without a place; track which choices had no quota for them."""
    for name, choice in allocation.no_quota:
        tracked.refused[name] = (*tracked.refused.get(name, ()), (choice, NO_QUOTA))
    for name in allocation.without:
        releases.add(name, no_room(observed, tracked, allocation.group, name))


def _insert(tracked: TrackedState, group: Group, choice: Choice, names: tuple[str, ...]) -> Insert:
    tries = max(tracked.attempts.get(name, 0) for name in names) + 1
    since = max(tracked.powering_up[name] for name in names)
    # The id is the same after a restart of the daemon: Google does each id only once.
    facts = f"{choice} {tries} {since:.3f} {' '.join(sorted(names))}"
    insert = Insert(
        id=hashlib.sha256(facts.encode()).hexdigest()[:32],
        choice=choice,
        names=names,
        least=len(names) if group.job else 1,
        job=group.job.id if group.job else 0,
        placement=group.job is not None and group.node_set.compact,
    )
    tracked.asks[insert.id] = insert
    for name in names:
        tracked.asking[name] = insert.id
        tracked.attempts[name] = tries
        tracked.backoff.pop(name, None)
    breaker = tracked.breakers.get(choice.pool)
    if breaker and group.need >= breaker.size:
        tracked.breakers[choice.pool] = replace(breaker, trial=insert.id)
    return insert
