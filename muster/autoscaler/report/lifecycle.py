"""The stage of each node: how far it is, as one word for people; pure.

A stage follows from SLURM's state of the node, from its VM and from the actions under way. The time
plays no part, so that nothing changes as long as nothing is read or done.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

from muster.autoscaler.reconcile.model import CapacityPool, Node, Power, Vm
from muster.autoscaler.reconcile.node_reasons import is_not_responding
from muster.autoscaler.reconcile.observed import ObservedState
from muster.autoscaler.reconcile.records import NOTHING, NodeRecord, Phase, TrackedState
from muster.autoscaler.reconcile.retry_policy import sentence
from muster.autoscaler.reconcile.vms import vm_of


class Stage(StrEnum):
    """How far a node is, from its first request to its end."""

    OFF = "off"
    WAITING = "waiting"
    """SLURM needs it; the cloud has not been asked yet, or is asked again in a while."""
    INSERTING = "inserting"
    """The cloud is making its VM."""
    CREATED = "created"
    """Its VM is there and does not run yet."""
    BOOTING = "booting"
    """Its VM runs, and slurmd has not registered."""
    STUCK = "stuck"
    """It has been booting for longer than a boot takes."""
    IDLE = "idle"
    BUSY = "busy"
    LEAVING = "leaving"
    """It takes no more jobs, and is powered down when its last one has ended."""
    DRAINED = "drained"
    """Kept for somebody to look at."""
    DOWN = "down"
    """It takes no jobs until somebody acts."""
    NOT_RESPONDING = "not responding"
    """Its VM runs, and slurmd does not answer."""
    VERIFYING = "verifying"
    """In service, but a list lacks its VM or has it as stopped: the VM is read by its name."""
    RELEASED = "released"
    """Taken out of its jobs; SLURM has not powered it down yet."""
    GOING = "going"
    """Powered down: its VM is deleted, or about to be."""
    ORPHAN = "orphan"
    """A VM whose node SLURM does not know."""


POWERING_UP = frozenset({Stage.WAITING, Stage.INSERTING, Stage.CREATED, Stage.BOOTING, Stage.STUCK})
IN_SERVICE = frozenset({Stage.IDLE, Stage.BUSY, Stage.LEAVING})


@dataclass(frozen=True, slots=True)
class View:
    """A node as it is shown."""

    stage: Stage
    state: str = ""
    """SLURM's state, with the signs of sinfo: `idle~`; empty: it knows no such node."""
    zone: str = ""
    machine_type: str = ""
    spot: bool = False
    reason: str = ""
    """Why it is not in service; SLURM's reason, or what blocks it now."""
    retry: float = 0
    """When the cloud is asked for it again, in seconds since the epoch; 0 = no such time is set."""
    gpus: str = ""
    """GPUs that are attached to it."""

    @property
    def pool(self) -> CapacityPool:
        """The capacity pool that it is made from."""
        return CapacityPool(self.zone, self.machine_type, self.spot, self.gpus)


def stages(
    observed: ObservedState, tracked: TrackedState, released_for: Mapping[str, str]
) -> dict[str, View]:
    """Return all nodes, and VMs without one, as they are after a reconcile pass.

    `released_for`: reasons of nodes that were released, until slurmctld shows them.
    """
    if not observed.nodes_at:
        # slurmctld has not been read yet.
        return {}
    names = {**observed.nodes, **observed.vms.by_name}
    views = ((name, stage(observed, tracked, released_for, name)) for name in names)
    return {name: view for name, view in views if view}


def touched(
    before: tuple[ObservedState, TrackedState], now: tuple[ObservedState, TrackedState]
) -> set[str]:
    """Return the names whose stage may have changed from one reconcile pass to the next.

    Nodes, VMs and records are compared.
    """
    (old, old_tracked), (new, new_tracked) = before, now
    names = _differing(old.nodes, new.nodes)
    if old.vms is not new.vms:
        names |= _differing(old.vms.by_name, new.vms.by_name)
    names |= _differing(old_tracked.nodes, new_tracked.nodes)
    if old.started != new.started:
        # The dates in their views have changed.
        names |= old_tracked.nodes.keys() | new_tracked.nodes.keys()
    if old.requests is not new.requests or old.nodes_at != new.nodes_at:
        # Whether SLURM waits for a node follows from both.
        names.update(old.asked, new.asked)
    return names


def _differing(old: Mapping[str, object], new: Mapping[str, object]) -> set[str]:
    if old is new:
        return set()
    changed = {
        name
        for name, value in new.items()
        # Most are the same objects, which takes less time to see than that they are equal.
        if (before := old.get(name)) is not value and before != value
    }
    return changed | (old.keys() - new.keys())


def stage(
    observed: ObservedState, tracked: TrackedState, released_for: Mapping[str, str], name: str
) -> View | None:
    """Return one of `stages`; None where there is neither a node nor a VM of that name."""
    node = observed.nodes.get(name)
    record = tracked.nodes.get(name, NOTHING)
    if node is None:
        vms = observed.vms.by_name.get(name)
        return _shown(Stage.ORPHAN, "", vms[0].pool) if vms else None
    if node.power is Power.OFF and record is NOTHING and name not in observed.vms.by_name:
        # Nearly all of thousands of nodes: the quick way.
        return _off(node.reason, node.down, node.drained)
    return _view(observed, tracked, node, released_for.get(name, ""))


@lru_cache(maxsize=1024)
def _off(reason: str, down: bool, drained: bool) -> View:
    return View(Stage.OFF, _state(Power.OFF, (down, drained, False, False, False)), reason=reason)


def _view(observed: ObservedState, tracked: TrackedState, node: Node, released_for: str) -> View:
    record = tracked.node(node.name)
    vm = vm_of(observed, record, node.name)
    reason, retry = node.reason, 0.0
    if record.phase in _STAGES:
        stage = _STAGES[record.phase]
        if record.phase is Phase.RELEASED:
            reason = released_for or reason
        else:
            reason, again = _trouble(record)
            retry = observed.date(again)
    elif node.power is Power.UP:
        stage = _in_service(record, node)
    elif node.power is Power.POWERING_DOWN or vm is not None or record.deletions:
        stage = Stage.GOING
    else:
        stage = Stage.OFF
    if stage is Stage.CREATED and record.vm and not record.vm.pool:
        # Perhaps an earlier daemon made it.
        stage = Stage.WAITING
    flags = (node.down, node.drained, node.not_responding, node.busy, node.leaving)
    shown = _shown(stage, _state(node.power, flags), _pool(tracked, record, vm))
    return replace(shown, reason=reason, retry=retry)


_STAGES = {
    Phase.WAITING: Stage.WAITING,
    Phase.INSERTING: Stage.INSERTING,
    Phase.CREATED: Stage.CREATED,
    Phase.BOOTING: Stage.BOOTING,
    Phase.STUCK: Stage.STUCK,
    Phase.RELEASED: Stage.RELEASED,
}


def _shown(stage: Stage, state: str, at: CapacityPool | None) -> View:
    if at is None:
        return View(stage, state)
    return View(stage, state, at.zone, at.machine_type, at.spot, gpus=at.gpus)


def _in_service(record: NodeRecord, node: Node) -> Stage:
    if node.down:
        return Stage.NOT_RESPONDING if is_not_responding(node) else Stage.DOWN
    if record.phase is Phase.VERIFYING:
        return Stage.VERIFYING
    if node.leaving:
        return Stage.LEAVING
    if node.drained:
        return Stage.DRAINED
    return Stage.BUSY if node.busy else Stage.IDLE


def _trouble(record: NodeRecord) -> tuple[str, float]:
    """What blocks a node that powers up, and when it is tried again."""
    start = record.start
    if start is None:
        return "", 0
    if start.failure:
        return sentence(start.failure), start.again
    if record.vm and record.vm.report:
        return f"its VM says: {record.vm.report}", 0
    if start.refused:
        choice, failure = start.refused[-1]
        return f"{sentence(failure)} ({choice.pool})", 0
    return "", 0


def _pool(tracked: TrackedState, record: NodeRecord, vm: Vm | None) -> CapacityPool | None:
    if vm is not None:
        return vm.pool
    insert = tracked.inserts.get(record.insert)
    return insert.choice.pool if insert else record.vm.pool if record.vm else None


@lru_cache(maxsize=256)
def _state(power: Power, flags: tuple[bool, bool, bool, bool, bool]) -> str:
    """Return a state as sinfo writes it: https://slurm.schedmd.com/sinfo.html#lbAG."""
    down, drained, not_responding, busy, leaving = flags
    words = {"down": down, "drained": drained and not busy, "draining": drained, "busy": busy}
    word = next((word for word, so in words.items() if so), "idle")
    if not_responding and power is Power.UP:
        return f"{word}*"
    if leaving:
        return f"{word}!"
    return (
        word
        + {Power.UP: "", Power.POWERING_UP: "#", Power.POWERING_DOWN: "%", Power.OFF: "~"}[power]
    )
