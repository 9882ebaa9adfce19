"""Where nodes that are asked for may be had: tried on what is known, nothing is changed; pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from muster.autoscaler.reconcile.circuit_breaker import BreakerState
from muster.autoscaler.reconcile.model import CapacityPool, Choice, Failure, Job, NodeSet, Quotas
from muster.autoscaler.reconcile.observed import ObservedState
from muster.autoscaler.reconcile.powering_up import gone
from muster.autoscaler.reconcile.tracked import TrackedState

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
        """How many VMs a pool must have room for at once."""
        return len(self.names) if self.job else 1


@dataclass(slots=True)
class Allocation:
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
    trials: frozenset[CapacityPool] = frozenset()
    """Markets without room till now that those before them try."""


def left(observed: ObservedState, tracked: TrackedState) -> Quotas:
    """What the quotas leave now: as read, less what was asked for since, more what is gone."""
    quotas = observed.quotas
    if not quotas.uses:
        return quotas
    asked = {name: tracked.asks[of].choice.pool for name, of in tracked.asking.items()}
    made = {name: pool for name, (at, pool) in tracked.made.items() if pool and at >= quotas.at}
    since = Counter(pool for name, pool in (made | asked).items() if name not in observed.vm)
    for vm in observed.vms:
        counted, there = vm.created <= quotas.at, not gone(observed, tracked, vm)
        if counted != there:
            since[vm.pool] += there - counted
    for pool, count in since.items():
        quotas = quotas.less(pool, count)
    return quotas


def allocate(
    observed: ObservedState, tracked: TrackedState, groups: Sequence[Group], room: Room
) -> tuple[list[Allocation], Room]:
    """Try the choices of each group's set, the best one first; return what is left then, too."""
    found, less = [], room
    for group in groups:
        # The sets of a job don't wait for each other.
        allocation, less = _allocate(observed, tracked, group, less, room.trials)
        found.append(allocation)
    return found, less


def _allocate(
    observed: ObservedState,
    tracked: TrackedState,
    group: Group,
    room: Room,
    trials: frozenset[CapacityPool],
) -> tuple[Allocation, Room]:
    found, quotas, tries = Allocation(group), room.quotas, room.trials
    names = list(group.names)
    for choice in group.node_set.choices:
        pool = choice.pool
        breaker = tracked.breakers.get(pool)
        state = breaker.state(observed.now, group.need) if breaker else BreakerState.CLOSED
        trial = breaker is not None and group.need >= breaker.size
        fit = [name for name in names if not refused(tracked, name, choice)]
        if state is BreakerState.OPEN or not fit or (group.job and len(fit) < len(names)):
            # A job's nodes stand together: a choice that refused one of them is none.
            continue
        if state is BreakerState.HALF_OPEN or (trial and pool in trials):
            found.waits += fit
        else:
            most = quotas.room(pool)
            most = len(fit) if most is None else most
            if group.job and most < len(fit):
                most = 0
            found.no_quota += [(name, choice) for name in fit[most:]]
            fit = fit[:most]
            quotas = quotas.less(pool, len(fit))
            if fit:
                found.asked.append((choice, fit))
                tries |= {pool} if trial else set()
        placed = set(fit)
        names = [name for name in names if name not in placed]
    found.without = names
    return found, Room(quotas, tries)


def refused(tracked: TrackedState, name: str, choice: Choice) -> list[Failure]:
    """Why a choice had no room for a node."""
    return [why for before, why in tracked.refused.get(name, ()) if before == choice]


def no_room(observed: ObservedState, tracked: TrackedState, group: Group, name: str) -> str:
    """Why none of the choices is possible for a node, in their order."""
    found = []
    for choice in group.node_set.choices:
        pool = choice.pool
        breaker = tracked.breakers.get(pool)
        why = refused(tracked, name, choice)
        if why:
            found.append(f"{why[-1].code} of {pool}")
        elif breaker and breaker.state(observed.now, group.need) is BreakerState.OPEN:
            wait = max(0, breaker.until - observed.now)
            found.append(f"{breaker.code} of {pool}, tried again in {wait:.0f} s")
        else:
            found.append(f"{pool} has no room for another node of its job")
    return "; ".join(found)
