"""Which VMs are asked for, where, and how many at once; pure.

Nodes that stand for themselves become one insert for each node set and choice, whatever the number
of jobs; those of a job that needs several become an insert of their own that makes all or none. Are
they of several sets, nothing is asked for before all of them have a place.
"""

import hashlib
from dataclasses import replace

from muster.autoscaler.reconcile.allocate import (
    NO_QUOTA,
    Group,
    Placing,
    Room,
    left,
    no_room,
    place,
)
from muster.autoscaler.reconcile.model import Choice, Insert
from muster.autoscaler.reconcile.observed import World
from muster.autoscaler.reconcile.queue import turns
from muster.autoscaler.reconcile.release import Returns
from muster.autoscaler.reconcile.tracked import Memory

MOST = 5000
"""VMs of one bulkInsert: https://cloud.google.com/compute/docs/instances/using-bulk-api."""


def ask(world: World, memory: Memory, back: Returns) -> list[Insert]:
    """Return the inserts that are due; nodes that no choice has room for are given back."""
    room: Room | None = None
    asked: dict[tuple[str, Choice, int], tuple[Group, list[str]]] = {}
    for groups in turns(world, memory, back):
        # Counted only when somebody is to be asked for, which is seldom.
        room = room or Room(left(world, memory))
        placings, less = place(world, memory, groups, room)
        job = groups[0].job
        if job and any(placing.without for placing in placings):
            for placing in placings:
                _without(world, memory, back, placing)
        elif not (job and any(placing.waits for placing in placings)):
            room = less
            for placing in placings:
                _without(world, memory, back, placing)
                for choice, names in placing.asked:
                    # One-node jobs are one call, whoever stands between them.
                    key = placing.group.node_set.name, choice, job.id if job else 0
                    asked.setdefault(key, (placing.group, []))[1].extend(names)
    return [
        _insert(memory, group, choice, tuple(names[first : first + MOST]))
        for (_, choice, _), (group, names) in asked.items()
        for first in range(0, len(names), MOST)
    ]


def _without(world: World, memory: Memory, back: Returns, placing: Placing) -> None:
    """Give back what has no place."""
    for name, choice in placing.no_quota:
        memory.refused[name] = (*memory.refused.get(name, ()), (choice, NO_QUOTA))
    for name in placing.without:
        back.give(name, no_room(world, memory, placing.group, name))


def _insert(memory: Memory, group: Group, choice: Choice, names: tuple[str, ...]) -> Insert:
    tries = max(memory.attempts.get(name, 0) for name in names) + 1
    since = max(memory.rising[name] for name in names)
    # The same for a successor: Google does a call with an id that it knows only once.
    facts = f"{choice} {tries} {since:.3f} {' '.join(sorted(names))}"
    found = Insert(
        id=hashlib.sha256(facts.encode()).hexdigest()[:32],
        choice=choice,
        names=names,
        least=len(names) if group.job else 1,
        job=group.job.id if group.job else 0,
        placement=group.job is not None and group.node_set.compact,
    )
    memory.asks[found.id] = found
    for name in names:
        memory.asking[name] = found.id
        memory.attempts[name] = tries
        memory.pause.pop(name, None)
    breaker = memory.breakers.get(choice.market)
    if breaker and group.need >= breaker.size:
        memory.breakers[choice.market] = replace(breaker, trial=found.id)
    return found
