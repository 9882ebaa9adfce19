"""VMs that nobody needs: of nodes that are off or unknown, or from before SLURM asked."""

from collections.abc import Iterator
from dataclasses import replace

from muster.autoscaler.reconcile.model import Action, Delete, Power, Vm, Withdraw
from muster.autoscaler.reconcile.observed import ObservedState
from muster.autoscaler.reconcile.records import Deletion, NodeRecord, Phase, TrackedState, put
from muster.autoscaler.reconcile.verdicts import Verdicts
from muster.autoscaler.reconcile.vms import COMING, LEAVING, RUNNING, is_gone, left_over

LEFT_OVER = "it is from before SLURM asked for the node"


def collect_garbage(observed: ObservedState, tracked: TrackedState) -> Verdicts:
    """Return the deletions that are due, and those that are not wanted any more."""
    records: dict[str, NodeRecord] = {}
    deletions: list[Action] = []
    unwanted: set[str] = set()
    for vm, why in _unwanted(observed, tracked):
        unwanted.add(vm.id)
        record = records.get(vm.name) or tracked.node(vm.name)
        before = record.deletions.get(vm.id)
        urgent = why == LEFT_OVER
        if before and before.again > observed.now and not (urgent and not before.urgent):
            continue
        if vm.status not in LEAVING and not is_gone(observed, record, vm):
            deletion = Deletion(vm, before.since if before else observed.now, urgent=urgent)
            records[vm.name] = replace(record, deletions=put(record.deletions, vm.id, deletion))
            deletions.append(Delete(vm, why, urgent))
    return Verdicts(records, actions=[*deletions, *_withdrawn(observed, tracked, unwanted)])


def _unwanted(observed: ObservedState, tracked: TrackedState) -> Iterator[tuple[Vm, str]]:
    """Yield the VMs that may go, and why.

    Two VMs of a node in service stay: it is not known on which one its slurmd runs.
    """
    if not observed.nodes:
        # slurmctld has not been read yet.
        return
    for vm in observed.vms:
        node, record = observed.nodes.get(vm.name), tracked.node(vm.name)
        if observed.is_powering_up(vm.name):
            if left_over(record, vm):
                yield vm, LEFT_OVER
        elif record.phase is Phase.RELEASED:
            # Not before slurmctld shows the release: until then the node may come into service.
            works = vm.status in (RUNNING, *COMING)
            if not (node and node.power is Power.UP and not node.down and works):
                yield vm, "its node was released"
        elif record.insert:
            continue
        elif node is None:
            if vm.created < min(observed.now, observed.nodes_at) - observed.limits.orphan_s:
                yield vm, "SLURM knows no such node"
        elif node.power in (Power.POWERING_DOWN, Power.OFF):
            yield vm, "its node is powered down"


def _withdrawn(
    observed: ObservedState, tracked: TrackedState, unwanted: set[str]
) -> Iterator[Withdraw]:
    """Yield the deletions that wait, and whose VMs are listed and wanted again."""
    for record in tracked.nodes.values():
        for vm_id, deletion in record.deletions.items():
            if deletion.under_way and vm_id not in unwanted and vm_id in observed.vm_ids:
                yield Withdraw(deletion.vm)
