"""Which VMs are asked for, where, and how many at once; pure.

Nodes that stand for themselves become one insert for each node set and choice, whatever the number
of jobs; those of a job that needs several become an insert of their own that makes all or none. Are
they of several sets, nothing is asked for before all of them have a place.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import replace

from muster.autoscaler.memory import Memory
from muster.autoscaler.model import Choice, Insert, Quotas
from muster.autoscaler.placing import NO_QUOTA, Group, Placing, left, no_room, place
from muster.autoscaler.returns import Returns
from muster.autoscaler.rising import present
from muster.autoscaler.world import World

MOST = 5000
"""VMs of one bulkInsert: https://cloud.google.com/compute/docs/instances/using-bulk-api."""


def ask(world: World, memory: Memory, back: Returns) -> list[Insert]:
    """Return the inserts that are due; nodes that no choice has room for are given back."""
    quotas: Quotas | None = None
    inserts: list[Insert] = []
    for groups in _groups(world, memory, back):
        # Counted only when somebody is to be asked for, which is seldom.
        quotas = quotas or left(world, memory)
        placings, less = [], quotas
        for group in groups:
            placing, less = place(world, memory, group, less)
            placings.append(placing)
        if groups[0].job and any(placing.without for placing in placings):
            for placing in placings:
                _without(world, memory, back, placing)
        elif not (groups[0].job and any(placing.waits for placing in placings)):
            quotas = less
            for placing in placings:
                inserts += _inserts(memory, placing)
                _without(world, memory, back, placing)
    return inserts


def _without(world: World, memory: Memory, back: Returns, placing: Placing) -> None:
    """Give back what has no place."""
    for name, choice in placing.no_quota:
        memory.refused[name] = (*memory.refused.get(name, ()), (choice, NO_QUOTA))
    for name in placing.without:
        back.give(name, no_room(world, memory, placing.group, name))


def _groups(world: World, memory: Memory, back: Returns) -> Iterator[list[Group]]:
    """Yield what stands or falls together.

    Jobs that need several nodes come first, in their order: others must not take the room.
    """
    if not world.sets or not world.vms_at:
        # The metadata has not been read yet; or an earlier self may have made the VMs elsewhere.
        return
    alone: dict[str, list[str]] = {}
    together: dict[int, dict[str, list[str]]] = {}
    for name in world.rising():
        if not _due(world, memory, name):
            continue
        node_set = world.set_of(name)
        if name not in world.nodes and world.asked.get(name, 0) <= world.nodes_at:
            continue
        if node_set is None or not node_set.choices:
            back.give(name, "the controller's metadata has no template for it; run `pulumi up`")
        elif name in world.jobs:
            of_job = together.setdefault(world.jobs[name].id, {})
            of_job.setdefault(node_set.name, []).append(name)
        else:
            alone.setdefault(node_set.name, []).append(name)
    for _, parts in sorted(together.items()):
        # Another part of the job may have been given back.
        found = [
            Group(world.sets[of], tuple(still), world.jobs[still[0]])
            for of, names in sorted(parts.items())
            if (still := [name for name in names if name not in memory.given])
        ]
        if found:
            yield found
    for of, names in alone.items():
        yield [Group(world.sets[of], tuple(names))]


def _due(world: World, memory: Memory, name: str) -> bool:
    """Whether a node has no VM, none is on its way, and it may be asked for now."""
    if name in memory.given or name in memory.asking or name in memory.deleting:
        return False
    if present(world, memory, name) is not None:
        return False
    if name in memory.made and world.vms_at <= memory.made[name][0] + world.limits.missing_s:
        # Made after the list, or a list lacks it.
        return False
    return name not in memory.pause or memory.pause[name][0] <= world.now


def _inserts(memory: Memory, placing: Placing) -> Iterator[Insert]:
    for choice, names in placing.asked:
        for first in range(0, len(names), MOST):
            yield _insert(memory, placing.group, choice, tuple(names[first : first + MOST]))


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
