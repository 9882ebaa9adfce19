"""Nodes that SLURM waits for: what their VMs' states and the time say of them; pure.

Each stage has a time of its own, so that a reason says where it ended: asked for, VM runs, booted,
registered (with which SLURM takes it into service).
"""

from muster.autoscaler.reconcile.model import Look, Vm
from muster.autoscaler.reconcile.observed import World
from muster.autoscaler.reconcile.probes import spare
from muster.autoscaler.reconcile.release import Returns
from muster.autoscaler.reconcile.retry_policy import sentence
from muster.autoscaler.reconcile.tracked import Memory

COMING = ("PROVISIONING", "STAGING", "PENDING", "REPAIRING")
RUNNING = "RUNNING"
LEAVING = ("STOPPING", "PENDING_STOP", "DEPROVISIONING")
LOOK_S = 20.0
"""How long a VM's word about its boot is waited for."""


def judge(world: World, memory: Memory, back: Returns) -> list[Look]:
    """Give back the nodes on their way that won't come; return the looks that are due before."""
    mute = [
        vm
        for name in world.rising()
        if name not in memory.given and (vm := _judge(world, memory, back, name))
    ]
    # Those whose time is over first; whose turn doesn't come has its verdict without.
    mute.sort(key=lambda vm: memory.running[vm.name])
    due = [vm for vm in mute if vm.name not in memory.given][: spare(memory)]
    memory.inspecting |= {vm.name: world.now for vm in due}
    return [Look(vm.name, vm.zone) for vm in due]


def _judge(world: World, memory: Memory, back: Returns, name: str) -> Vm | None:
    """Return its VM if that is to be asked what it says of its boot."""
    begun = memory.rising[name]
    limits = world.limits
    vm = present(world, memory, name)
    _note(world, memory, name, vm)
    if name in memory.hopeless:
        back.give(name, memory.hopeless[name])
    elif world.now >= begun + limits.verdict_s:
        back.give(name, _too_late(world, memory, name, vm))
    elif vm is None:
        if world.now >= begun + limits.made_s:
            back.give(name, f"no VM within {limits.made_s:.0f} s{_trouble(memory, name)}")
    elif world.left_over(vm):
        # It is deleted (`clearing`), then a new one is made.
        pass
    elif vm.status == RUNNING:
        return _boots(world, memory, back, vm)
    elif vm.status in COMING:
        if world.now >= begun + limits.made_s:
            back.give(
                name,
                f"its VM in {vm.zone} is {vm.status} and does not run {limits.made_s:.0f} s "
                "after it was asked for",
            )
    elif vm.status not in LEAVING:
        # It had run, or never will. What leaves is gone soon, and then asked for again.
        how = "taken back (spot)" if vm.spot else "stopped"
        back.give(name, f"its VM in {vm.zone} was {how} while it booted")
    return None


def _note(world: World, memory: Memory, name: str, vm: Vm | None) -> None:
    """Remember how far a node's VM is."""
    if vm is None or vm.status != RUNNING:
        # The next one that runs begins its boot then.
        for of in (memory.running, memory.said, memory.inspecting):
            of.pop(name, None)
    if vm is not None:
        memory.lacking.pop(name, None)
    elif name in memory.made and world.vms_at > memory.made[name][0]:
        memory.lacking.setdefault(name, world.vms_at)
    if vm is not None and vm.status in LEAVING:
        # Its absence from the next list is no gap in the list.
        memory.made.pop(name, None)
    elif vm is not None and vm.status in (*COMING, RUNNING) and not world.left_over(vm):
        # One list that lacks it will not mean that it is gone.
        made_at = memory.made.get(name, (0.0, None))[0]
        memory.made[name] = (max(made_at, world.vms_at), vm.market)


def present(world: World, memory: Memory, name: str) -> Vm | None:
    """A node's VM, unless the list is older than its end."""
    vm = world.vm.get(name)
    return None if vm is None or gone(world, memory, vm) else vm


def gone(world: World, memory: Memory, vm: Vm) -> bool:
    """Whether the list is older than a VM's end."""
    return memory.gone.get(vm.name, {}).get(vm.zone, 0) >= world.vms_at


def _boots(world: World, memory: Memory, back: Returns, vm: Vm) -> Vm | None:
    name = vm.name
    since = memory.running.setdefault(name, world.now)
    late = world.now - since - world.limits.boot_s
    if late < 0:
        return None
    if name in memory.said or late >= LOOK_S:
        back.give(name, _stuck(world, memory, vm))
        return None
    return None if name in memory.inspecting else vm


def _stuck(world: World, memory: Memory, vm: Vm) -> str:
    said = memory.said.get(vm.name, "")
    waited = f"its VM in {vm.zone} has run for {world.limits.boot_s:.0f} s"
    if said:
        return f"{waited} and slurmd has not registered; it says: {said}"
    return f"{waited} and nothing is heard of its system; look at its console"


def _too_late(world: World, memory: Memory, name: str, vm: Vm | None) -> str:
    waited = f"{world.limits.verdict_s:.0f} s"
    if vm is None:
        return f"no VM within {waited}{_trouble(memory, name)}"
    if world.left_over(vm):
        failure = memory.undeleted.get(name)
        why = f": {sentence(failure)}" if failure else ""
        return f"its VM of before in {vm.zone} is {vm.status} and not deleted within {waited}{why}"
    return f"its VM in {vm.zone} is {vm.status}, and slurmd has not registered within {waited}"


def _trouble(memory: Memory, name: str) -> str:
    if name in memory.pause:
        return f": {sentence(memory.pause[name][1])}"
    if name in memory.refused:
        return f": {sentence(memory.refused[name][-1][1])}"
    return ""
