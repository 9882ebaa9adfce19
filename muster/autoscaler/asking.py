"""Which VMs are asked for, where, and how many at once; pure.

Nodes that stand for themselves become one insert for each node set and choice, whatever the number
of jobs; those of a job that needs several become an insert of their own that makes all or none.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from muster.autoscaler.breakers import Gate
from muster.autoscaler.memory import Memory
from muster.autoscaler.model import Choice, Failure, Insert, Job, Market, NodeSet
from muster.autoscaler.returns import Returns
from muster.autoscaler.rising import present
from muster.autoscaler.world import World

MOST = 5000
"""VMs of one bulkInsert: https://cloud.google.com/compute/docs/instances/using-bulk-api."""


def ask(world: World, memory: Memory, back: Returns) -> list[Insert]:
    """Return the inserts that are due; nodes that no choice has room for are given back."""
    left = dict(world.room)
    inserts: list[Insert] = []
    # Jobs that need several nodes first, in their order: a burst of others must not take the room.
    for group in _groups(world, memory, back):
        inserts += group.place(left)
        for name in group.names:
            back.give(name, group.no_room(name))
    return inserts


def _groups(world: World, memory: Memory, back: Returns) -> Iterator["_Group"]:
    if not world.sets or not world.vms_at:
        # The metadata has not been read yet; or an earlier self may have made the VMs elsewhere.
        return
    alone: dict[str, list[str]] = {}
    together: dict[tuple[int, str], list[str]] = {}
    for name in world.rising():
        if not _due(world, memory, name):
            continue
        node_set = world.set_of(name)
        if name not in world.nodes and world.asked.get(name, 0) <= world.nodes_at:
            continue
        if node_set is None or not node_set.choices:
            back.give(name, "the controller's metadata has no template for it; run `pulumi up`")
        elif name in world.jobs:
            together.setdefault((world.jobs[name].id, node_set.name), []).append(name)
        else:
            alone.setdefault(node_set.name, []).append(name)
    for (_, of), names in sorted(together.items()):
        # Another part of the job may have been given back.
        still = [name for name in names if name not in memory.given]
        if still:
            yield _Group(world, memory, world.sets[of], world.jobs[still[0]], still)
    for of, names in alone.items():
        yield _Group(world, memory, world.sets[of], None, names)


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


@dataclass
class _Group:
    """Nodes that are asked for together; `names` are those without a place as yet."""

    world: World
    memory: Memory
    node_set: NodeSet
    job: Job | None
    names: list[str]

    def place(self, left: dict[Market, int]) -> Iterator[Insert]:
        """Yield inserts at the best choices that may have room; `left` is what quotas allow."""
        for choice in self.node_set.choices:
            market = choice.market
            breaker = self.memory.breakers.get(market)
            gate = breaker.gate(self.world.now) if breaker else Gate.OPEN
            fit = [name for name in self.names if not self._refused(name, choice)]
            if gate is Gate.SHUT or not fit or (self.job and len(fit) < len(self.names)):
                # A job's nodes stand together: a choice that refused one of them is none.
                continue
            if gate is Gate.OPEN:
                room = max(0, left.get(market, len(fit)))
                if self.job and room < len(fit):
                    room = 0
                self._no_quota(choice, fit[room:])
                fit = fit[:room]
                if market in left:
                    left[market] = room - len(fit)
                for first in range(0, len(fit), MOST):
                    yield self._insert(choice, tuple(fit[first : first + MOST]))
            # Else it will be known in a moment whether there is room.
            placed = set(fit)
            self.names = [name for name in self.names if name not in placed]

    def _refused(self, name: str, choice: Choice) -> bool:
        return any(before == choice for before, _ in self.memory.refused.get(name, ()))

    def _no_quota(self, choice: Choice, names: list[str]) -> None:
        failure = Failure("QUOTA_EXCEEDED", "the project's quota has no room for it")
        for name in names:
            self.memory.refused[name] = (*self.memory.refused.get(name, ()), (choice, failure))

    def _insert(self, choice: Choice, names: tuple[str, ...]) -> Insert:
        memory = self.memory
        tries = max(memory.attempts.get(name, 0) for name in names) + 1
        since = max(memory.rising[name] for name in names)
        # The same for a successor: Google does a call with an id that it knows only once.
        facts = f"{choice} {tries} {since:.3f} {' '.join(sorted(names))}"
        found = Insert(
            id=hashlib.sha256(facts.encode()).hexdigest()[:32],
            choice=choice,
            names=names,
            least=len(names) if self.job else 1,
            job=self.job.id if self.job else 0,
            placement=self.job is not None and self.node_set.compact,
        )
        memory.asks[found.id] = found
        for name in names:
            memory.asking[name] = found.id
            memory.attempts[name] = tries
            memory.pause.pop(name, None)
        breaker = memory.breakers.get(choice.market)
        if breaker:
            memory.breakers[choice.market] = replace(breaker, trial=found.id)
        return found

    def no_room(self, name: str) -> str:
        """Why none of the choices is possible for a node, in their order."""
        found = []
        for choice in self.node_set.choices:
            market = choice.market
            breaker = self.memory.breakers.get(market)
            refused = [
                failure.code
                for before, failure in self.memory.refused.get(name, ())
                if before == choice
            ]
            if refused:
                found.append(f"{refused[-1]} of {market}")
            elif breaker:
                wait = max(0, breaker.until - self.world.now)
                found.append(f"{breaker.code} of {market}, tried again in {wait:.0f} s")
            else:
                found.append(f"{market} has no room for another node of its job")
        return "; ".join(found)
