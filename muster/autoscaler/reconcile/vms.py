"""Which listed VM a node has; pure."""

import math
from dataclasses import replace

from muster.autoscaler.reconcile.model import NOT_UP, REPAIRING, RUNNING, Vm
from muster.autoscaler.reconcile.observed import ObservedState, Timeouts
from muster.autoscaler.reconcile.records import NodeRecord, VmFacts


def vm_of(observed: ObservedState, record: NodeRecord, name: str) -> Vm | None:
    """Return a node's VM, without those that have gone since they were listed.

    Where one was made for it, that one, whatever another one of its name does. Else, of several,
    the one that most likely works: it runs, is not left over, and is older.
    """
    vms = observed.vms.by_name.get(name, ())
    if record.vm and record.vm.pool:
        vms = _own(record.vm, vms)
    if len(vms) == 1:
        return None if is_gone(observed, record, vms[0]) else vms[0]
    return min(
        (vm for vm in vms if not is_gone(observed, record, vm)),
        key=lambda vm: (
            vm.status != RUNNING,
            is_left_over(observed.timeouts, record, vm),
            vm.created,
        ),
        default=None,
    )


def _own(facts: VmFacts, vms: tuple[Vm, ...]) -> tuple[Vm, ...]:
    """Return the VM that was made: by its id, or until a list has had it by its zone.

    A zone has one VM of a name at a time. If the one of that id is not listed, any later one may be
    the node's: it may have been replaced.
    """
    if facts.id:
        own = tuple(vm for vm in vms if vm.id == facts.id)
        return own or tuple(vm for vm in vms if vm.created > facts.created)
    return tuple(vm for vm in vms if facts.pool and vm.zone == facts.pool.zone)


def is_gone(observed: ObservedState, record: NodeRecord, vm: Vm) -> bool:
    """Whether a VM has gone since it was listed, or was never really made."""
    return gone_at(observed, record, vm) < math.inf


def gone_at(observed: ObservedState, record: NodeRecord, vm: Vm) -> float:
    """Return when Google said that a listed VM has gone, or was never made; inf: it has not."""
    if vm.id in record.gone:
        return record.gone[vm.id].at
    refused_at = record.no_room.get(vm.zone, -math.inf)
    # The list of a zone that is not reached is older. One that was made since is another one.
    older = vm.zone in observed.vms.unreachable and refused_at >= vm.created
    return refused_at if older or refused_at >= observed.vms_at else math.inf


def as_known(record: NodeRecord, vm: Vm) -> Vm:
    """Return a listed VM as lists had it before, if that is further: this one is older, then."""
    start, facts = record.start, record.vm
    if vm.status in NOT_UP:
        return vm
    if start is not None and vm.id in start.leaving:
        return replace(vm, status="STOPPING")
    runs = facts is not None and facts.id == vm.id and facts.running_at > 0
    return replace(vm, status=RUNNING) if runs and vm.status != REPAIRING else vm


def is_left_over(timeouts: Timeouts, record: NodeRecord, vm: Vm) -> bool:
    """Whether a VM is from before SLURM asked, and not the node's: the only judgement of that.

    SLURM accepts no registration of a VM that booted before. One that did not run yet when SLURM
    asked, such as one that was made for an earlier request and came late, is accepted, also where
    the node has another one by now: so a VM that runs is left over only if it ran before, by a
    list, or as its time to run was over then. One that is coming is the node's, unless that has
    another one and this time is over.
    """
    start, own = record.start, record.vm.id if record.vm else ""
    if start is None or vm.created >= start.accepted_from or vm.id == own:
        return False
    status = as_known(record, vm).status
    if status in NOT_UP:
        return True
    ran_by = start.ran_by.get(vm.id, vm.created + timeouts.made_s)
    return (own != "" or status == RUNNING) and ran_by <= start.accepted_from
