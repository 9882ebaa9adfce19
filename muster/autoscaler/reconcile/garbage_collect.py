"""VMs that nobody needs: of nodes that are off, of nodes that are none, from before; pure."""

from collections.abc import Iterator

from muster.autoscaler.reconcile.model import Delete, Power, Vm
from muster.autoscaler.reconcile.observed import World
from muster.autoscaler.reconcile.powering_up import LEAVING, RUNNING
from muster.autoscaler.reconcile.tracked import Memory, put

LEFT_OVER = "it is from before SLURM asked for the node"


def clear(world: World, memory: Memory) -> list[Delete]:
    """Return the deletions that are due."""
    found = []
    for vm, why in _unwanted(world, memory):
        gone_at = memory.gone.get(vm.name, {}).get(vm.zone, 0)
        if gone_at < world.vms_at and vm.status not in LEAVING:
            put(memory.deleting, vm.name, vm.zone, world.now + world.limits.deletion_s)
            memory.made.pop(vm.name, None)
            found.append(Delete(vm, why))
    return found


def _unwanted(world: World, memory: Memory) -> Iterator[tuple[Vm, str]]:
    """Yield what may go and is not being deleted.

    Two VMs of a node in service stay, as nobody knows which one it is.
    """
    if not world.nodes:
        # slurmctld has not said yet what there is.
        return
    for vm in world.vms:
        if vm.zone in memory.deleting.get(vm.name, ()):
            continue
        node = world.nodes.get(vm.name)
        if world.rises(vm.name):
            if world.left_over(vm):
                yield vm, LEFT_OVER
        elif vm.name in memory.given:
            # Not before slurmctld has taken it: until then the node may come into service.
            if not (node and node.power is Power.UP and not node.down and vm.status == RUNNING):
                yield vm, "its node was given back"
        elif vm.name in memory.asking:
            continue
        elif node is None:
            if vm.created < min(world.now, world.nodes_at) - world.limits.orphan_s:
                yield vm, "SLURM knows no such node"
        elif node.power in (Power.FALLING, Power.OFF):
            yield vm, "its node is powered down"
