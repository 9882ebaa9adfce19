"""VMs that nobody needs: of nodes that are off or unknown, or from before SLURM asked."""

from collections.abc import Iterator

from muster.autoscaler.reconcile.model import Delete, Power, Vm
from muster.autoscaler.reconcile.observed import ObservedState
from muster.autoscaler.reconcile.powering_up import COMING, LEAVING, RUNNING, gone
from muster.autoscaler.reconcile.tracked import Deletion, TrackedState, put

LEFT_OVER = "it is from before SLURM asked for the node"


def collect_garbage(observed: ObservedState, tracked: TrackedState) -> list[Delete]:
    """Return the deletions that are due, and track them."""
    deletions = []
    for vm, why in _unwanted(observed, tracked):
        before = tracked.deleting.get(vm.name, {}).get(vm.id)
        urgent = why == LEFT_OVER
        if before and before.again > observed.now and not (urgent and not before.urgent):
            continue
        if not gone(observed, tracked, vm) and vm.status not in LEAVING:
            since = before.since if before else observed.now
            put(tracked.deleting, vm.name, vm.id, Deletion(since, urgent=urgent))
            tracked.made.pop(vm.name, None)
            deletions.append(Delete(vm, why, urgent))
    return deletions


def _unwanted(observed: ObservedState, tracked: TrackedState) -> Iterator[tuple[Vm, str]]:
    """Yield the VMs that may go, and why.

    Two VMs of a node in service stay: it is not known on which one its slurmd runs.
    """
    if not observed.nodes:
        # slurmctld has not been read yet.
        return
    for vm in observed.vms:
        node = observed.nodes.get(vm.name)
        if observed.is_powering_up(vm.name):
            if observed.left_over(vm):
                yield vm, LEFT_OVER
        elif vm.name in tracked.released:
            # Not before slurmctld shows the release: until then the node may come into service.
            works = vm.status in (RUNNING, *COMING)
            if not (node and node.power is Power.UP and not node.down and works):
                yield vm, "its node was released"
        elif vm.name in tracked.asking:
            continue
        elif node is None:
            if vm.created < min(observed.now, observed.nodes_at) - observed.limits.orphan_s:
                yield vm, "SLURM knows no such node"
        elif node.power in (Power.POWERING_DOWN, Power.OFF):
            yield vm, "its node is powered down"
