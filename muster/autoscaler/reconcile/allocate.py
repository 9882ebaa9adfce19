"""Which capacity pools have room for nodes, by breakers, refusals and quotas; pure."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from muster.autoscaler.reconcile.circuit_breaker import BreakerState
from muster.autoscaler.reconcile.model import CapacityPool, Choice, Failure, Job, NodeSet, Quotas
from muster.autoscaler.reconcile.observed import ObservedState
from muster.autoscaler.reconcile.records import NodeRecord, TrackedState, started
from muster.autoscaler.reconcile.retry_policy import NAME_TAKEN
from muster.autoscaler.reconcile.vms import gone_at

NO_QUOTA = Failure("QUOTA_EXCEEDED", "the project's quota has no room for it")


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes of one set that are asked for together."""

    node_set: NodeSet
    names: tuple[str, ...]
    job: Job | None = None
    """The job that needs all of them; None: each counts for itself."""
    job_pools: frozenset[CapacityPool] = frozenset()
    """Where other nodes of the job and the set have their VMs: these go there too. Empty: none has
    one."""

    @property
    def need(self) -> int:
        """How many VMs a pool must have room for at once."""
        return len(self.names) if self.job else 1


@dataclass(slots=True)
class Allocation:
    """Which of a group's nodes have a place, and where."""

    group: NodeGroup
    asked: list[tuple[Choice, list[str]]] = field(default_factory=list)
    """Choices and the nodes that may be asked for there."""
    waits: list[str] = field(default_factory=list)
    """Nodes whose pool another insert is trying: its result says whether there is room. And nodes
    of which newer quotas say it."""
    no_quota: list[tuple[str, Choice]] = field(default_factory=list)
    """Nodes that the quotas have no room for, and where."""
    without: list[str] = field(default_factory=list)
    """Nodes that no choice has room for."""


@dataclass(frozen=True, slots=True)
class Room:
    """What is left for the groups that come next."""

    quotas: Quotas
    """For certain."""
    most: Quotas
    """If the quotas count all VMs of which that is not known: those being made, and gone."""
    trials: frozenset[CapacityPool] = frozenset()
    """Pools that had no room and that a group before them tries."""


def left(observed: ObservedState, tracked: TrackedState) -> Room:
    """What the quotas leave now: as read, less the VMs asked for since, more those gone since.

    It is not known whether they count a VM whose insert had not ended when they were read, or one
    whose deletion has ended since, if the list's answer came late and lacks it.
    """
    quotas = observed.quotas
    if not quotas.uses:
        return Room(quotas, quotas)
    since: Counter[CapacityPool] = Counter()
    perhaps: Counter[CapacityPool] = Counter()
    gone: Counter[CapacityPool] = Counter()
    for name, record in tracked.nodes.items():
        for vm_id, deleted in record.gone.items():
            if deleted.at > quotas.at and vm_id not in observed.vms.ids:
                gone[deleted.pool] += 1
        insert = tracked.inserts.get(record.insert)
        made = record.vm.pool if record.vm and record.vm.known_at >= quotas.at else None
        pool = insert.choice.pool if insert else made
        listed = observed.vms.by_name.get(name, ())
        # One in another zone is another VM.
        if pool and all(vm.zone != pool.zone for vm in listed):
            perhaps[pool] += 1
    for vm in observed.vms:
        ended_at = gone_at(observed, tracked.node(vm.name), vm)
        # Lists may have a VM for some time after the quotas have its room back.
        counted = vm.created <= quotas.at < ended_at
        exists = ended_at == math.inf
        if counted != exists:
            since[vm.pool] += exists - counted
    for pool, count in since.items():
        quotas = quotas.less(pool, count)
    most = quotas
    for pool, count in gone.items():
        most = most.less(pool, -count)
    for pool, count in perhaps.items():
        quotas = quotas.less(pool, count)
    return Room(quotas, most)


def allocate(
    observed: ObservedState, tracked: TrackedState, groups: Sequence[NodeGroup], room: Room
) -> tuple[list[Allocation], Room]:
    """Try the choices of each group's set, the best one first; return also the room left over."""
    allocations, remaining = [], room
    for group in groups:
        # Only with trials from before these groups: the sets of a job don't wait for each other.
        allocation, remaining = _allocate(observed, tracked, group, remaining, room.trials)
        allocations.append(allocation)
    return allocations, remaining


def _allocate(
    observed: ObservedState,
    tracked: TrackedState,
    group: NodeGroup,
    room: Room,
    trials: frozenset[CapacityPool],
) -> tuple[Allocation, Room]:
    allocation, quotas, most, tries = Allocation(group), room.quotas, room.most, room.trials
    names, read_at = list(group.names), observed.quotas.at
    for choice in group.node_set.choices:
        pool = choice.pool
        breaker = tracked.breakers.get(pool)
        state = breaker.state(observed.now, group.need) if breaker else BreakerState.CLOSED
        trial = breaker is not None and group.need >= breaker.size
        fit = [name for name in names if not refused(tracked, name, choice)]
        if state is BreakerState.OPEN or not fit or (group.job and len(fit) < len(names)):
            # A job's nodes go together: a choice that refused one of them is out.
            continue
        if group.job_pools and pool not in group.job_pools:
            continue
        if state is BreakerState.HALF_OPEN or (trial and pool in trials):
            allocation.waits += fit
        else:
            count, at_most = (_count(quota, group, pool, fit) for quota in (quotas, most))
            asked, waits, short = fit[:count], fit[count:at_most], fit[at_most:]
            # In a zone that is not reached they may count a node's VM that no list has.
            unlisted = pool.zone in observed.vms.unreachable
            late = {name for name in short if unlisted or _changed_at(tracked.node(name)) > read_at}
            if group.job and late:
                late.update(short)
            waits += [name for name in short if name in late]
            allocation.waits += waits
            allocation.no_quota += [(name, choice) for name in short if name not in late]
            fit = [*asked, *waits]
            quotas, most = quotas.less(pool, len(asked)), most.less(pool, len(asked))
            if asked:
                allocation.asked.append((choice, asked))
                tries |= {pool} if trial else set()
        placed = set(fit)
        names = [name for name in names if name not in placed]
    allocation.without = names
    return allocation, Room(quotas, most, tries)


def _changed_at(record: NodeRecord) -> float:
    """When SLURM asked for a node, or its insert or its VM ended: the latest of these.

    Quotas that were read before may count what is gone, and do not decide.
    """
    gone = (gone.at for gone in record.gone.values())
    return max(started(record).asked, record.since, *gone, *record.no_room.values())


def _count(quotas: Quotas, group: NodeGroup, pool: CapacityPool, names: list[str]) -> int:
    """Of how many of a group's nodes, of the first ones, quotas have room for a VM in a pool."""
    room = quotas.room(pool)
    if room is None or room >= len(names):
        return len(names)
    return 0 if group.job else room


def refused(tracked: TrackedState, name: str, choice: Choice) -> list[Failure]:
    """Why a choice had no room for a node."""
    start = tracked.node(name).start
    return [failure for tried, failure in start.refused if tried == choice] if start else []


def no_room(observed: ObservedState, tracked: TrackedState, group: NodeGroup, name: str) -> str:
    """Why none of the choices is possible for a node, in their order."""
    reasons = []
    for choice in group.node_set.choices:
        pool = choice.pool
        breaker = tracked.breakers.get(pool)
        failures = refused(tracked, name, choice)
        if group.job_pools and pool not in group.job_pools:
            reasons.append(f"{pool} is not where the other VMs of its job are")
        elif failures and failures[-1].code == NAME_TAKEN:
            # Of all pools of the zone.
            reasons.append(failures[-1].message)
        elif failures:
            reasons.append(f"{failures[-1].code} of {pool}")
        elif breaker and breaker.state(observed.now, group.need) is BreakerState.OPEN:
            wait = max(0, breaker.until - observed.now)
            reasons.append(f"{breaker.code} of {pool}, tried again in {wait:.0f} s")
        else:
            reasons.append(f"{pool} has no room for another node of its job")
    return "; ".join(dict.fromkeys(reasons))
