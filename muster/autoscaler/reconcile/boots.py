"""By when each VM ran, as far as lists have said; pure."""

from collections.abc import Mapping
from dataclasses import replace

from muster.autoscaler.reconcile.model import LEAVING, REPAIRING, RUNNING, STOPPED, Vm
from muster.autoscaler.reconcile.observed import ObservedState, Timeouts
from muster.autoscaler.reconcile.records import Boot, NodeRecord, TrackedState


def boots_after(observed: ObservedState, tracked: TrackedState) -> Mapping[str, Boot]:
    """Return `TrackedState.boots` after the newest list.

    What is known of a VM that the list lacks stays for a while, and while its deletion is under
    way, or has failed: a later list may have it.
    """
    read = tracked.read
    if read and read.vms is observed.vms and read.vms_at == observed.vms_at:
        return tracked.boots
    deletions = {vm_id for record in tracked.nodes.values() for vm_id in record.deletions}
    boots: dict[str, Boot] = {}
    for vm_id, known in tracked.boots.items():
        if vm_id not in observed.vms.ids:
            lacking = replace(known, lacking_at=known.lacking_at or observed.vms_at)
            if vm_id in deletions or not _is_missing(observed, lacking):
                boots[vm_id] = lacking
    for vm in observed.vms:
        if boot := _boot(observed, tracked.boots.get(vm.id), vm):
            boots[vm.id] = boot
    return boots


def _is_missing(observed: ObservedState, boot: Boot) -> bool:
    """Whether lists have lacked a VM for so long that it is gone."""
    return observed.vms_at > boot.lacking_at + observed.timeouts.missing_s


def _boot(observed: ObservedState, before: Boot | None, vm: Vm) -> Boot | None:
    made_s = observed.timeouts.made_s
    if before and before.lacking_at:
        before = replace(before, lacking_at=0.0)
    if vm.status == RUNNING:
        if before and before.ran:
            return before
        # No list may have had it between the last one as coming and this one.
        ran_by = before.ran_by if before else vm.created + made_s
        return Boot(vm.name, vm.zone, min(observed.now, ran_by), ran=True)
    # One that has run is coming only in an older list, or as Google repairs it. If one that has
    # stopped is started again, that is another boot.
    older = before is not None and before.ran and vm.status not in (REPAIRING, *STOPPED)
    if vm.status in LEAVING or older or vm.zone in observed.vms.unreachable:
        return before
    return Boot(vm.name, vm.zone, observed.vms_at + made_s)


def lacking_of(observed: ObservedState, tracked: TrackedState) -> Mapping[str, dict[str, str]]:
    """Return node's name -> id and zone of its VMs that lists lack, not so long that it is gone."""
    found: dict[str, dict[str, str]] = {}
    for vm_id, boot in tracked.boots.items():
        if boot.lacking_at and not _is_missing(observed, boot):
            found.setdefault(boot.name, {})[vm_id] = boot.zone
    return found


def with_boots(
    observed: ObservedState, tracked: TrackedState, record: NodeRecord, name: str
) -> NodeRecord:
    """Return a node's record with `Start.ran_by` as the newest list has it."""
    start = record.start
    if start is None:
        return record
    known: dict[str, float] = {}
    deleted = (deletion.vm for deletion in record.deletions.values())
    for vm in (*observed.vms.by_name.get(name, ()), *deleted):
        boot = tracked.boots.get(vm.id)
        if boot is None or vm.created >= start.accepted_from:
            continue
        if not is_coming_since(observed.timeouts, boot, start.asked):
            known[vm.id] = boot.ran_by
    if known.items() <= start.ran_by.items():
        return record
    return replace(record, start=replace(start, ran_by={**start.ran_by, **known}))


def is_coming_since(timeouts: Timeouts, boot: Boot | None, asked: float) -> bool:
    """Whether a list that was asked for after a time has a VM as coming."""
    return boot is not None and not boot.ran and boot.ran_by > asked + timeouts.made_s
