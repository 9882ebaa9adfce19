"""The stage of each node: how far it is, as one word for people; pure.

A stage follows from SLURM's state of the node, from its VM and from the actions under way. The time
plays no part, so that nothing changes as long as nothing is read or done.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

from muster.autoscaler.reconcile.in_service import NOT_RESPONDING
from muster.autoscaler.reconcile.model import CapacityPool, Node, Power, Vm
from muster.autoscaler.reconcile.observed import ObservedState
from muster.autoscaler.reconcile.powering_up import COMING, LEAVING, RUNNING, present
from muster.autoscaler.reconcile.retry_policy import sentence
from muster.autoscaler.reconcile.tracked import TrackedState


class Stage(StrEnum):
    """How far a node is, from its first request to its end."""

    OFF = "off"
    WAITING = "waiting"
    """SLURM needs it; the cloud has not been asked yet, or is asked again in a while."""
    ASKED = "asked"
    """The cloud is making its VM."""
    MADE = "made"
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
    MISSING = "missing"
    """In service, and its VM is in no list: the VM is being asked for by name."""
    RELEASED = "released"
    """Taken out of its jobs; SLURM has not powered it down yet."""
    GOING = "going"
    """Powered down: its VM is deleted, or about to be."""
    STRAY = "stray"
    """A VM whose node SLURM does not know."""


POWERING_UP = frozenset({Stage.WAITING, Stage.ASKED, Stage.MADE, Stage.BOOTING, Stage.STUCK})
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
    if not observed.nodes:
        # slurmctld has not been read yet.
        return {}
    names = {**observed.nodes, **observed.vm}
    views = ((name, stage(observed, tracked, released_for, name)) for name in names)
    return {name: view for name, view in views if view}


def touched(
    before: tuple[ObservedState, TrackedState], now: tuple[ObservedState, TrackedState]
) -> set[str]:
    """Return the names whose stage may have changed from one reconcile pass to the next.

    Nodes and VMs that were read again are compared. Of the tracked state all names count if
    something was read or the requests changed, else those whose entries changed.
    """
    (old, old_tracked), (new, new_tracked) = before, now
    names = _differing(old.nodes, new.nodes)
    if old.vms is not new.vms:
        names |= _differing(old.vm, new.vm)
    read = old.nodes_at != new.nodes_at or old.vms_at != new.vms_at
    for field in _BY_NAME:
        old_part, new_part = getattr(old_tracked, field), getattr(new_tracked, field)
        if read or old.requests is not new.requests:
            names.update(old_part, new_part)
        else:
            names |= _differing(old_part, new_part)
    return names


_BY_NAME = (
    *("asking", "made", "gone", "no_room", "deleting", "released", "powering_up"),
    *("backoff", "said", "refused", "inspecting", "missing"),
)
"""Fields of TrackedState from which stages follow."""


def _differing(old: Mapping[str, object], new: Mapping[str, object]) -> set[str]:
    if old is new:
        return set()
    changed = {name for name, value in new.items() if old.get(name) != value}
    return changed | (old.keys() - new.keys())


def stage(
    observed: ObservedState, tracked: TrackedState, released_for: Mapping[str, str], name: str
) -> View | None:
    """Return one of `stages`; None where there is neither a node nor a VM of that name."""
    node = observed.nodes.get(name)
    vm = observed.vm.get(name)
    if node is None:
        return _shown(Stage.STRAY, "", vm.pool) if vm else None
    if (
        node.power is Power.OFF
        and vm is None
        and name not in tracked.powering_up
        and name not in tracked.released
        and name not in tracked.deleting
    ):
        # Nearly all of thousands of nodes: the quick way.
        return _off(node.reason, node.down, node.drained)
    return _view(observed, tracked, node, released_for.get(name, ""))


@lru_cache(maxsize=1024)
def _off(reason: str, down: bool, drained: bool) -> View:
    return View(Stage.OFF, _state(Power.OFF, (down, drained, False, False, False)), reason=reason)


def _view(observed: ObservedState, tracked: TrackedState, node: Node, released_for: str) -> View:
    name = node.name
    vm = present(observed, tracked, name)
    reason, retry = node.reason, 0.0
    if name in tracked.released:
        stage = Stage.RELEASED
        reason = released_for or reason
    elif observed.is_powering_up(name):
        stage = _powering_up(observed, tracked, name, vm)
        reason, retry = _trouble(tracked, name)
        retry = observed.date(retry)
    elif node.power is Power.UP:
        stage = _in_service(tracked, node)
    elif node.power is Power.POWERING_DOWN or vm is not None or name in tracked.deleting:
        stage = Stage.GOING
    else:
        stage = Stage.OFF
    flags = (node.down, node.drained, node.not_responding, node.busy, node.leaving)
    shown = _shown(stage, _state(node.power, flags), _place(tracked, name, vm))
    return replace(shown, reason=reason, retry=retry)


def _shown(stage: Stage, state: str, at: CapacityPool | None) -> View:
    if at is None:
        return View(stage, state)
    return View(stage, state, at.zone, at.machine_type, at.spot, gpus=at.gpus)


def _powering_up(observed: ObservedState, tracked: TrackedState, name: str, vm: Vm | None) -> Stage:
    if vm is None or vm.id in tracked.deleting.get(name, ()) or vm.status in LEAVING:
        # A VM from before SLURM asked is deleted first.
        if name in tracked.asking:
            return Stage.ASKED
        newer = name in tracked.made and tracked.made[name][0] >= observed.vms_at
        return Stage.MADE if newer else Stage.WAITING
    if vm.status == RUNNING:
        return Stage.STUCK if name in tracked.inspecting else Stage.BOOTING
    return Stage.MADE if vm.status in COMING else Stage.WAITING


def _in_service(tracked: TrackedState, node: Node) -> Stage:
    if node.down:
        return Stage.NOT_RESPONDING if NOT_RESPONDING in node.reason else Stage.DOWN
    if node.name in tracked.missing:
        return Stage.MISSING
    if node.leaving:
        return Stage.LEAVING
    if node.drained:
        return Stage.DRAINED
    return Stage.BUSY if node.busy else Stage.IDLE


def _trouble(tracked: TrackedState, name: str) -> tuple[str, float]:
    """What blocks a node that powers up, and when it is tried again."""
    if name in tracked.backoff:
        retry, failure = tracked.backoff[name]
        return sentence(failure), retry
    if tracked.said.get(name):
        return f"its VM says: {tracked.said[name]}", 0
    if name in tracked.refused:
        choice, failure = tracked.refused[name][-1]
        return f"{sentence(failure)} ({choice.pool})", 0
    return "", 0


def _place(tracked: TrackedState, name: str, vm: Vm | None) -> CapacityPool | None:
    if vm is not None:
        return vm.pool
    ask = tracked.asks.get(tracked.asking.get(name, ""))
    return ask.choice.pool if ask else tracked.made[name][1] if name in tracked.made else None


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
