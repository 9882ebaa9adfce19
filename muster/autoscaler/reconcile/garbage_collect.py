"""VMs that nobody needs: of nodes that are off or unknown, or from before SLURM asked.

A deletion may wait for minutes until it is sent: each that is under way is judged again after each
reading, also while lists lack its VM.
"""

from collections.abc import Iterable
from dataclasses import replace
from enum import StrEnum
from itertools import chain

from muster.autoscaler.reconcile.expire import DELETION_S
from muster.autoscaler.reconcile.model import (
    LEAVING,
    NOT_UP,
    OFF,
    Action,
    Delete,
    Vm,
    Withdraw,
)
from muster.autoscaler.reconcile.observed import ObservedState
from muster.autoscaler.reconcile.records import Deletion, NodeRecord, Phase, TrackedState, put, take
from muster.autoscaler.reconcile.verdicts import Verdicts
from muster.autoscaler.reconcile.vms import is_gone, is_left_over


class Unwanted(StrEnum):
    """Why a VM may go."""

    LEFT_OVER = "it is from before SLURM asked for the node"
    RELEASED = "its node was released"
    UNKNOWN = "SLURM knows no such node"
    OFF = "its node is powered down"


def collect_garbage(observed: ObservedState, tracked: TrackedState) -> Verdicts:
    """Return the deletions that are due, and those that are not wanted any more."""
    records: dict[str, NodeRecord] = {}
    actions: list[Action] = []
    for vm in _to_check(observed, tracked):
        record = records.get(vm.name) or tracked.node(vm.name)
        unknown_at = 0.0 if vm.name in observed.nodes else record.unknown_at or observed.now
        if unknown_at != record.unknown_at:
            record = records[vm.name] = replace(record, unknown_at=unknown_at)
        before = record.deletions.get(vm.id)
        why = _unwanted(observed, record, vm)
        if why:
            urgent = why is Unwanted.LEFT_OVER
            due = before is None or _is_due(observed, before) or (urgent and not before.urgent)
            if due and vm.status not in LEAVING and not is_gone(observed, record, vm):
                failed_at = before.failed_at if before else 0.0
                deletion = Deletion(vm, failed_at, asked_at=observed.now, urgent=urgent)
                records[vm.name] = replace(record, deletions=put(record.deletions, vm.id, deletion))
                actions.append(Delete(vm, why, urgent))
        elif before and not before.under_way:
            # A later deletion fails for the first time.
            records[vm.name] = replace(record, deletions=take(record.deletions, vm.id))
        elif before and not before.withdrawn:
            records[vm.name] = _withdrawn(record, before)
            actions.append(Withdraw(vm))
    for deletion in _unlisted(observed, tracked):
        vm = deletion.vm
        record = records.get(vm.name) or tracked.node(vm.name)
        why = _unwanted(observed, record, vm)
        if not why:
            records[vm.name] = _withdrawn(record, deletion)
            actions.append(Withdraw(vm))
        elif why is Unwanted.LEFT_OVER and not deletion.urgent:
            # Its node waits for that deletion, which tells at once that the VM is gone, if it is.
            now_urgent = replace(deletion, urgent=True)
            records[vm.name] = replace(record, deletions=put(record.deletions, vm.id, now_urgent))
            actions.append(Delete(vm, why, urgent=True))
    return Verdicts(records, actions=actions)


def _is_due(observed: ObservedState, deletion: Deletion) -> bool:
    """Whether to ask for a deletion again: it has failed, or its end was never told."""
    untold = deletion.under_way and observed.now >= deletion.asked_at + DELETION_S
    return untold or deletion.again <= observed.now


def _withdrawn(record: NodeRecord, deletion: Deletion) -> NodeRecord:
    withdrawn = replace(deletion, withdrawn=True)
    return replace(record, deletions=put(record.deletions, deletion.vm.id, withdrawn))


def _to_check(observed: ObservedState, tracked: TrackedState) -> Iterable[Vm]:
    """All VMs, if anything was read since the last pass; else those of nodes with a record."""
    if not observed.nodes_at:
        # slurmctld has not been read yet.
        return ()
    if tracked.fresh:
        return observed.vms
    by_name = observed.vms.by_name
    return chain.from_iterable(by_name.get(name, ()) for name in tracked.nodes)


def _unlisted(observed: ObservedState, tracked: TrackedState) -> list[Deletion]:
    """Deletions that are under way, of VMs that the newest list lacks."""
    if not tracked.fresh:
        # Only what is read makes a VM wanted.
        return []
    ids = observed.vms.ids
    return [
        deletion
        for record in tracked.nodes.values()
        for vm_id, deletion in record.deletions.items()
        if vm_id not in ids and deletion.under_way and not deletion.withdrawn
    ]


def _unwanted(observed: ObservedState, record: NodeRecord, vm: Vm) -> Unwanted | None:
    """Why a VM may go; None: it is wanted.

    Two VMs of a node in service stay: it is not known on which one its slurmd runs.
    """
    node = observed.nodes.get(vm.name)
    if observed.is_powering_up(vm.name):
        left_over = is_left_over(observed.timeouts, record, vm)
        return Unwanted.LEFT_OVER if left_over else None
    if record.phase is Phase.RELEASED:
        # Not before slurmctld shows the release: until then the node may come into service, or
        # somebody sets it down and it is not released.
        is_released = node is None or node.power in OFF
        return Unwanted.RELEASED if is_released or vm.status in NOT_UP else None
    asked = observed.asked.get(vm.name, 0)
    if record.insert or max(vm.created, asked) >= observed.nodes_at:
        # Somebody needed it after the states were read.
        return None
    if node is None:
        # Counted from the first reading without it: one alone may be wrong, or be from before its
        # node was added.
        long = observed.nodes_at >= record.unknown_at + observed.timeouts.orphan_s
        return Unwanted.UNKNOWN if record.unknown_at and long else None
    return Unwanted.OFF if node.power in OFF else None
