"""The stage of each node: how far it is, as one word for people; pure.

A stage follows from what SLURM says of the node, from its VM and from what the plan has under way.
The time plays no part, so that nothing changes as long as nothing is read or done.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

from muster.autoscaler.reconcile.in_service import SILENT
from muster.autoscaler.reconcile.model import Market, Node, Power, Vm
from muster.autoscaler.reconcile.observed import World
from muster.autoscaler.reconcile.powering_up import COMING, LEAVING, RUNNING, present
from muster.autoscaler.reconcile.retry_policy import sentence
from muster.autoscaler.reconcile.tracked import Memory


class Stage(StrEnum):
    """How far a node is, from its first request to its end."""

    OFF = "off"
    WAITING = "waiting"
    """SLURM wants it; the cloud has not been asked yet, or is asked again in a while."""
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
    """It takes no more jobs, and is powered down when those that it has are off it."""
    DRAINED = "drained"
    """Kept for somebody to look at."""
    DOWN = "down"
    """It takes no jobs until somebody acts."""
    SILENT = "silent"
    """Its VM runs, and slurmd does not answer."""
    MISSING = "missing"
    """In service, and its VM is in no list: it is being asked for by name."""
    GIVEN_BACK = "given back"
    """Taken out of its jobs; SLURM has not powered it down yet."""
    GOING = "going"
    """Powered down: its VM is deleted, or about to be."""
    STRAY = "stray"
    """A VM whose node SLURM does not know."""


RISING = frozenset({Stage.WAITING, Stage.ASKED, Stage.MADE, Stage.BOOTING, Stage.STUCK})
IN_SERVICE = frozenset({Stage.IDLE, Stage.BUSY, Stage.LEAVING})


@dataclass(frozen=True, slots=True)
class View:
    """A node as it is shown."""

    stage: Stage
    state: str = ""
    """What SLURM says, with the signs of sinfo: `idle~`; empty: it knows no such node."""
    zone: str = ""
    machine_type: str = ""
    spot: bool = False
    reason: str = ""
    """Why it is not in service; SLURM's reason, or what stands in its way now."""
    retry: float = 0
    """When the cloud is asked for it again; 0 = no such time is set."""
    gpus: str = ""
    """GPUs that are attached to it."""

    @property
    def market(self) -> Market:
        """Where it takes its room from."""
        return Market(self.zone, self.machine_type, self.spot, self.gpus)


def stages(world: World, memory: Memory, given: Mapping[str, str]) -> dict[str, View]:
    """Return all nodes, and VMs without one, as they are after a plan.

    `given`: reasons of nodes that were given back, until slurmctld shows them.
    """
    if not world.nodes:
        # slurmctld has not said yet what there is.
        return {}
    names = {**world.nodes, **world.vm}
    views = ((name, stage(world, memory, given, name)) for name in names)
    return {name: view for name, view in views if view}


def touched(before: tuple[World, Memory], now: tuple[World, Memory]) -> set[str]:
    """Return the names whose stage may have changed from one plan to the next.

    What was read anew is compared; then, and with other requests, whatever the plans have under way
    is looked at again, else what is new or other in it.
    """
    (old, old_memory), (new, new_memory) = before, now
    names = _differing(old.nodes, new.nodes)
    if old.vms is not new.vms:
        names |= _differing(old.vm, new.vm)
    read = old.nodes_at != new.nodes_at or old.vms_at != new.vms_at
    for field in _BY_NAME:
        was, found = getattr(old_memory, field), getattr(new_memory, field)
        if read or old.requests is not new.requests:
            names.update(was, found)
        else:
            names |= _differing(was, found)
    return names


_BY_NAME = (
    *("asking", "made", "gone", "deleting", "given", "rising"),
    *("pause", "said", "refused", "inspecting", "missing"),
)
"""Parts of the memory from which stages follow."""


def _differing(old: Mapping[str, object], new: Mapping[str, object]) -> set[str]:
    if old is new:
        return set()
    found = {name for name, each in new.items() if old.get(name) != each}
    return found | (old.keys() - new.keys())


def stage(world: World, memory: Memory, given: Mapping[str, str], name: str) -> View | None:
    """Return one of `stages`; None where there is neither a node nor a VM of that name."""
    node = world.nodes.get(name)
    vm = world.vm.get(name)
    if node is None:
        return _shown(Stage.STRAY, "", vm.market) if vm else None
    if (
        node.power is Power.OFF
        and vm is None
        and name not in memory.rising
        and name not in memory.given
        and name not in memory.deleting
    ):
        # Of thousands nearly all.
        return _off(node.reason, node.down, node.drained)
    return _view(world, memory, node, given.get(name, ""))


@lru_cache(maxsize=1024)
def _off(reason: str, down: bool, drained: bool) -> View:
    return View(Stage.OFF, _state(Power.OFF, (down, drained, False, False, False)), reason=reason)


def _view(world: World, memory: Memory, node: Node, given: str) -> View:
    name = node.name
    vm = present(world, memory, name)
    reason, retry = node.reason, 0.0
    if name in memory.given:
        stage = Stage.GIVEN_BACK
        reason = given or reason
    elif world.rises(name):
        stage = _rising(world, memory, name, vm)
        reason, retry = _trouble(memory, name)
    elif node.power is Power.UP:
        stage = _in_service(memory, node)
    elif node.power is Power.FALLING or vm is not None or name in memory.deleting:
        stage = Stage.GOING
    else:
        stage = Stage.OFF
    flags = (node.down, node.drained, node.silent, node.busy, node.leaving)
    shown = _shown(stage, _state(node.power, flags), _place(memory, name, vm))
    return replace(shown, reason=reason, retry=retry)


def _shown(stage: Stage, state: str, at: Market | None) -> View:
    if at is None:
        return View(stage, state)
    return View(stage, state, at.zone, at.machine_type, at.spot, gpus=at.gpus)


def _rising(world: World, memory: Memory, name: str, vm: Vm | None) -> Stage:
    if vm is None or vm.zone in memory.deleting.get(name, ()) or vm.status in LEAVING:
        # A VM from before goes first.
        if name in memory.asking:
            return Stage.ASKED
        newer = name in memory.made and memory.made[name][0] >= world.vms_at
        return Stage.MADE if newer else Stage.WAITING
    if vm.status == RUNNING:
        return Stage.STUCK if name in memory.inspecting else Stage.BOOTING
    return Stage.MADE if vm.status in COMING else Stage.WAITING


def _in_service(memory: Memory, node: Node) -> Stage:
    if node.down:
        return Stage.SILENT if SILENT in node.reason else Stage.DOWN
    if node.name in memory.missing:
        return Stage.MISSING
    if node.leaving:
        return Stage.LEAVING
    if node.drained:
        return Stage.DRAINED
    return Stage.BUSY if node.busy else Stage.IDLE


def _trouble(memory: Memory, name: str) -> tuple[str, float]:
    """What stands in the way of a node that rises, and when it is tried again."""
    if name in memory.pause:
        retry, failure = memory.pause[name]
        return sentence(failure), retry
    if memory.said.get(name):
        return f"its VM says: {memory.said[name]}", 0
    if name in memory.refused:
        choice, failure = memory.refused[name][-1]
        return f"{sentence(failure)} ({choice.market})", 0
    return "", 0


def _place(memory: Memory, name: str, vm: Vm | None) -> Market | None:
    if vm is not None:
        return vm.market
    ask = memory.asks.get(memory.asking.get(name, ""))
    return ask.choice.market if ask else memory.made[name][1] if name in memory.made else None


@lru_cache(maxsize=256)
def _state(power: Power, flags: tuple[bool, bool, bool, bool, bool]) -> str:
    """Return a state as sinfo writes it: https://slurm.schedmd.com/sinfo.html#lbAG."""
    down, drained, silent, busy, leaving = flags
    words = {"down": down, "drained": drained and not busy, "draining": drained, "busy": busy}
    word = next((word for word, so in words.items() if so), "idle")
    if silent and power is Power.UP:
        return f"{word}*"
    if leaving:
        return f"{word}!"
    return word + {Power.UP: "", Power.RISING: "#", Power.FALLING: "%", Power.OFF: "~"}[power]
