"""Nodes in service: each has a VM that runs, or comes back to be made again; pure."""

from dataclasses import replace

from muster.autoscaler.reconcile.model import Look, Node, Power, Vm
from muster.autoscaler.reconcile.observed import World
from muster.autoscaler.reconcile.probes import spare
from muster.autoscaler.reconcile.release import Returns
from muster.autoscaler.reconcile.tracked import Memory, Miss

STOPPED = ("TERMINATED", "STOPPED", "SUSPENDED", "SUSPENDING")
"""A VM that does nothing. STOPPING comes before: it is looked at again."""
UP = Power.UP
"""Looked up once: in Python 3.11 that takes longer than all else that is asked of most nodes."""
OURS = "muster:"
"""Beginning of Muster's own reasons: nobody is to look at such a node."""
IN_VAIN = "ResumeTimeout reached"
"""What SLURM says of a node that it has given up; 24.11 appends it to an earlier reason."""
TAKEN = "muster: Google takes this spot VM back"
"""What a spot VM says when it leaves SLURM: roles/cloud_node, spot.py."""
SILENT = "Not responding"
"""slurmctld's reason for a node whose slurmd doesn't answer; 24.11 appends it to an earlier one."""


def keep(world: World, memory: Memory, back: Returns) -> list[Look]:
    """Give back the nodes in service that have no VM any more; return the looks due before."""
    lost: list[str] = []
    before, memory.taken = memory.taken, {}
    for name, node in world.nodes.items():
        # A request that is newer than what slurmctld said takes the node out of service.
        wanted = world.asked.get(name, 0) > world.nodes_at
        if node.down and node.power is Power.OFF and _ours(node.reason):
            # SLURM waited in vain while nobody was here; it leaves such nodes down for ever.
            back.give(name, _why(node.reason))
        elif node.power is not UP or wanted or (node.leaving and not node.busy):
            memory.missing.pop(name, None)
            memory.silent.pop(name, None)
        elif name not in memory.given:
            if _taken(node):
                memory.taken[name] = before.get(name, world.now)
            if _keep(world, memory, back, node):
                lost.append(name)
    return _looks(world, memory, lost)


def _keep(world: World, memory: Memory, back: Returns, node: Node) -> bool:
    """Return whether its VM is to be looked for."""
    name = node.name
    silent = node.down and (node.silent or SILENT in node.reason)
    if node.down and not silent and _ours(node.reason):
        back.give(name, _why(node.reason))
        return False
    vm = world.vm.get(name)
    if (node.drained or (node.down and not silent)) and not node.busy:
        # Somebody looks at it, or at its disk.
        if node.invalid and not node.down and vm and _of_before(world, vm):
            back.give(
                name,
                f"its VM in {vm.zone} is of the type {vm.market.kind}, which its set does not "
                "have any more",
            )
        return False
    if vm is None:
        return _missing(world, memory, back, node)
    memory.missing.pop(name, None)
    if vm.status in STOPPED:
        how = "was taken back (spot)" if vm.spot else f"is {vm.status}"
        back.give(name, f"its VM in {vm.zone} {how}")
    elif silent:
        _silent(world, memory, back, vm)
    else:
        memory.silent.pop(name, None)
    return False


def _of_before(world: World, vm: Vm) -> bool:
    """Whether a VM is of a type that its set had before the definition was changed.

    One of a type that the set has would be drained again: SLURM expects too much of all of them.
    """
    node_set = world.set_of(vm.name)
    types = {choice.market.kind for choice in node_set.choices} if node_set else set()
    return bool(types) and vm.market.kind not in types


def _taken(node: Node) -> bool:
    """Whether Google takes its VM; the reason alone may be of an earlier one."""
    return node.leaving and TAKEN in node.reason


def _ours(reason: str) -> bool:
    return reason.startswith(OURS) or IN_VAIN in reason


def _why(reason: str) -> str:
    """The last of what was said: 24.11 appends it to what was said before."""
    return reason.rpartition(" : ")[2].removeprefix(OURS).strip()


def _silent(world: World, memory: Memory, back: Returns, vm: Vm) -> None:
    since = memory.silent.setdefault(vm.name, world.now)
    if world.now >= since + world.limits.silent_s:
        back.give(
            vm.name,
            f"its VM in {vm.zone} runs and slurmd has not answered for "
            f"{world.limits.silent_s:.0f} s",
        )


def _missing(world: World, memory: Memory, back: Returns, node: Node) -> bool:
    """A VM that a list lacks may be there all the same: it is gone when all zones say so."""
    name = node.name
    if world.vms_at == 0 or world.vms_at < world.nodes_at - world.limits.missing_s:
        # The list may be older than the node's service.
        return False
    if _taken(node):
        # It said itself that it goes; a list from before that may be older than the VM.
        if world.vms_at > memory.taken[name]:
            back.give(name, "its VM was taken back (spot)")
        return False
    miss = memory.missing.setdefault(name, Miss(world.vms_at))
    zones = _zones(world, name)
    if zones and zones <= miss.without:
        del memory.missing[name]
        back.give(name, "its VM is gone, and nobody here deleted it")
        return False
    return world.vms_at >= miss.since + world.limits.missing_s


def _looks(world: World, memory: Memory, names: list[str]) -> list[Look]:
    """Ask for VMs in all zones of their sets; those that have been missing for longest first."""
    found: list[Look] = []
    most = spare(memory)
    for name in sorted(names, key=lambda name: memory.missing[name].since):
        if len(found) >= most:
            break
        miss = memory.missing[name]
        # None: its set was removed from the definition while the node was in service.
        due = _zones(world, name) - miss.asked
        memory.missing[name] = replace(miss, asked=miss.asked | due)
        found += [Look(name, zone) for zone in sorted(due)]
    return found


def _zones(world: World, name: str) -> frozenset[str]:
    node_set = world.set_of(name)
    return frozenset(choice.zone for choice in node_set.choices) if node_set else frozenset()
