"""Where nodes that are asked for may be had: tried on what is known, nothing is changed; pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from muster.autoscaler.reconcile.circuit_breaker import Gate
from muster.autoscaler.reconcile.model import Choice, Failure, Job, Market, NodeSet, Quotas
from muster.autoscaler.reconcile.observed import World
from muster.autoscaler.reconcile.powering_up import gone
from muster.autoscaler.reconcile.tracked import Memory

NO_QUOTA = Failure("QUOTA_EXCEEDED", "the project's quota has no room for it")


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes of one set that are asked for together."""

    node_set: NodeSet
    names: tuple[str, ...]
    job: Job | None = None
    """The job that needs all of them; None: each counts for itself."""

    @property
    def need(self) -> int:
        """How many VMs a market must have room for at once."""
        return len(self.names) if self.job else 1


@dataclass(slots=True)
class Placing:
    """How far a group's nodes find a place."""

    group: Group
    asked: list[tuple[Choice, list[str]]] = field(default_factory=list)
    """Who may be asked for where."""
    waits: list[str] = field(default_factory=list)
    """Of these it will be known in a moment whether there is room."""
    no_quota: list[tuple[str, Choice]] = field(default_factory=list)
    """What the quotas have no room for."""
    without: list[str] = field(default_factory=list)
    """These have no place."""


@dataclass(frozen=True, slots=True)
class Room:
    """What those whose turn comes next find."""

    quotas: Quotas
    trials: frozenset[Market] = frozenset()
    """Markets without room till now that those before them try."""


def left(world: World, memory: Memory) -> Quotas:
    """What the quotas leave now: as read, less what was asked for since, more what is gone."""
    quotas = world.quotas
    if not quotas.uses:
        return quotas
    asked = {name: memory.asks[of].choice.market for name, of in memory.asking.items()}
    made = {
        name: market for name, (at, market) in memory.made.items() if market and at >= quotas.at
    }
    since = Counter(market for name, market in (made | asked).items() if name not in world.vm)
    for vm in world.vms:
        counted, there = vm.created <= quotas.at, not gone(world, memory, vm)
        if counted != there:
            since[vm.market] += there - counted
    for market, count in since.items():
        quotas = quotas.less(market, count)
    return quotas


def place(
    world: World, memory: Memory, groups: Sequence[Group], room: Room
) -> tuple[list[Placing], Room]:
    """Try the choices of each group's set, the best one first; return what is left then, too."""
    found, less = [], room
    for group in groups:
        # The sets of a job don't wait for each other.
        placing, less = _place(world, memory, group, less, room.trials)
        found.append(placing)
    return found, less


def _place(
    world: World, memory: Memory, group: Group, room: Room, trials: frozenset[Market]
) -> tuple[Placing, Room]:
    found, quotas, tries = Placing(group), room.quotas, room.trials
    names = list(group.names)
    for choice in group.node_set.choices:
        market = choice.market
        breaker = memory.breakers.get(market)
        gate = breaker.gate(world.now, group.need) if breaker else Gate.OPEN
        trial = breaker is not None and group.need >= breaker.size
        fit = [name for name in names if not refused(memory, name, choice)]
        if gate is Gate.SHUT or not fit or (group.job and len(fit) < len(names)):
            # A job's nodes stand together: a choice that refused one of them is none.
            continue
        if gate is Gate.ON_TRIAL or (trial and market in trials):
            found.waits += fit
        else:
            most = quotas.room(market)
            most = len(fit) if most is None else most
            if group.job and most < len(fit):
                most = 0
            found.no_quota += [(name, choice) for name in fit[most:]]
            fit = fit[:most]
            quotas = quotas.less(market, len(fit))
            if fit:
                found.asked.append((choice, fit))
                tries |= {market} if trial else set()
        placed = set(fit)
        names = [name for name in names if name not in placed]
    found.without = names
    return found, Room(quotas, tries)


def refused(memory: Memory, name: str, choice: Choice) -> list[Failure]:
    """Why a choice had no room for a node."""
    return [why for before, why in memory.refused.get(name, ()) if before == choice]


def no_room(world: World, memory: Memory, group: Group, name: str) -> str:
    """Why none of the choices is possible for a node, in their order."""
    found = []
    for choice in group.node_set.choices:
        market = choice.market
        breaker = memory.breakers.get(market)
        why = refused(memory, name, choice)
        if why:
            found.append(f"{why[-1].code} of {market}")
        elif breaker and breaker.gate(world.now, group.need) is Gate.SHUT:
            wait = max(0, breaker.until - world.now)
            found.append(f"{breaker.code} of {market}, tried again in {wait:.0f} s")
        else:
            found.append(f"{market} has no room for another node of its job")
    return "; ".join(found)
