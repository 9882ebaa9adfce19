"""Nodes that SLURM waits for: released when their VMs' states or the time say so.

Each stage has its own deadline, so that a reason says where the start ended: asked for, VM runs,
booted, registered (then SLURM takes the node into service). A deadline is over when a reading from
after it shows nothing better.
"""

from collections.abc import Mapping
from dataclasses import replace

from muster.autoscaler.reconcile.boots import is_coming_since
from muster.autoscaler.reconcile.model import (
    LEAVING,
    NOT_UP,
    RUNNING,
    STOPPED,
    Probe,
    Vm,
)
from muster.autoscaler.reconcile.observed import ObservedState, Timeouts
from muster.autoscaler.reconcile.powering_up_rules import (
    all_listed,
    evidence_of,
    lacking_s,
    ran,
    zones_of,
)
from muster.autoscaler.reconcile.probes import Places
from muster.autoscaler.reconcile.records import (
    POWERING_UP,
    Lookup,
    NodeRecord,
    Phase,
    Start,
    TrackedState,
    VmFacts,
    started,
)
from muster.autoscaler.reconcile.retry_policy import sentence
from muster.autoscaler.reconcile.transitions import Act, Evidence, step
from muster.autoscaler.reconcile.verdicts import Release, Verdicts
from muster.autoscaler.reconcile.vms import as_known, is_left_over, vm_of

TRACKED_ONLY = (Act.NOTHING, Act.DELETE)
"""What changes no more than the record here: `garbage_collect` deletes."""


def check_powering_up(observed: ObservedState, tracked: TrackedState) -> Verdicts:
    """Release the nodes that will not come in time; read the reports of those that are late."""
    records: dict[str, NodeRecord] = {}
    release: dict[str, Release] = {}
    overdue: list[tuple[float, Vm, NodeRecord]] = []
    lost: dict[str, NodeRecord] = {}
    for name in observed.powering_up() if tracked.fresh else tracked.changed:
        before = tracked.node(name)
        if before.phase not in POWERING_UP or started(before).doubted_at:
            continue
        vm = _current(observed, before, vm_of(observed, before, name))
        record = _noted(observed, tracked, before, vm)
        evidence = evidence_of(observed, tracked, record, vm)
        phase, act = step(record.phase, evidence, name)
        if act in TRACKED_ONLY:
            record = record.to(phase, observed.vms_at)
            if phase is Phase.WAITING:
                record = record.without_vm()
        elif act is Act.RELEASE:
            release[name] = Release(evidence, _reason(observed.timeouts, evidence, record, vm))
        elif act is Act.LOOK_UP:
            lost[name] = record
        elif vm and (facts := record.vm):
            record = record.to(phase, observed.nodes_at)
            if not facts.probed:
                overdue.append((facts.running_at, vm, record))
        if record is not before:
            records[name] = record
    # Those whose time was over first come first; the others are released without a report.
    overdue.sort(key=lambda late: late[0])
    places = Places(tracked)
    due = [late for late in overdue if late[1].name not in release and places.take([late[1].zone])]
    records |= {vm.name: _probed(record) for _, vm, record in due}
    probes = [Probe(vm.name, vm.zone, report=True) for _, vm, _ in due]
    more, looked_up = _look_up(observed, tracked, lost, places)
    return Verdicts(records | looked_up, release=release, actions=[*probes, *more])


def _probed(record: NodeRecord) -> NodeRecord:
    """Return the record of a node whose VM is asked for its report."""
    return replace(record, vm=replace(record.vm, probed=True)) if record.vm else record


def _look_up(
    observed: ObservedState, tracked: TrackedState, lost: Mapping[str, NodeRecord], places: Places
) -> tuple[list[Probe], dict[str, NodeRecord]]:
    """Read VMs by their names where they were made, or may be."""
    probes: list[Probe] = []
    records: dict[str, NodeRecord] = {}
    for name, record in lost.items():
        lookup = record.lookup or Lookup(observed.now)
        if observed.vms_at < lookup.again:
            continue
        due = places.take(zones_of(record, tracked.zones) - lookup.asked)
        if due:
            looked = replace(lookup, asked=lookup.asked | due)
            records[name] = replace(record, lookup=looked)
            probes += [Probe(name, zone) for zone in sorted(due)]
        elif _is_gone_by_lists(observed, record):
            phase, _ = step(record.phase, Evidence.NO_VM, name)
            records[name] = record.to(phase, observed.vms_at).without_vm()
    return probes, records


def _is_gone_by_lists(observed: ObservedState, record: NodeRecord) -> bool:
    """Whether lists alone show that an earlier daemon has made no VM.

    Of very many nodes not each VM can be read by its name in time. Where that was tried, having no
    answer does not mean that the VM is gone.
    """
    facts = record.vm
    if facts is None or facts.pool is not None or record.lookup is not None:
        return False
    return lacking_s(observed, facts) > 2 * observed.timeouts.missing_s


def _current(observed: ObservedState, record: NodeRecord, vm: Vm | None) -> Vm | None:
    """Return a listed VM, but for one that stopped and may be from before the last insert.

    Lists may have it for a while, until they have the one that was inserted.
    """
    if vm is not None:
        vm = as_known(record, vm)
    if vm is None or vm.status not in NOT_UP:
        return vm
    if record.insert:
        return None
    facts = record.vm
    if facts and vm.id == facts.id:
        return vm
    if vm.created < started(record).inserted_at:
        return None
    if facts is None or facts.pool is None:
        return vm
    return None if observed.vms_at <= facts.known_at + observed.timeouts.missing_s else vm


def _noted(
    observed: ObservedState, tracked: TrackedState, record: NodeRecord, vm: Vm | None
) -> NodeRecord:
    """Take from the newest list how far a node's VM is."""
    facts = record.vm
    if vm is None or is_left_over(observed.timeouts, record, vm):
        if (
            facts
            and not facts.lacking_at
            and observed.vms_at > facts.known_at
            and all_listed(observed, tracked.zones, record)
        ):
            return replace(record, vm=replace(facts, lacking_at=observed.now))
        return record
    start = started(record)
    if vm.status in LEAVING:
        # When the next list lacks it, it is gone: that is no gap in the list.
        if vm.id not in start.leaving:
            record = replace(record, start=replace(start, leaving=start.leaving | {vm.id}))
        return record.without_vm()
    if vm.status in STOPPED:
        return record
    boot = tracked.boots.get(vm.id)
    if (
        vm.status != RUNNING
        and vm.created < start.accepted_from
        and not is_coming_since(observed.timeouts, boot, start.asked)
    ):
        # It may have run before SLURM asked: a later list says what it is. If that lacks it, it may
        # still be there.
        if not facts:
            older = {each.id: each.zone for each in observed.vms.by_name[vm.name]}
            # An insert that runs may make another one.
            record = replace(record, vm=VmFacts(observed.now, older={} if record.insert else older))
        return record
    if facts and facts.id and facts.id != vm.id:
        # Another VM, which boots from its own beginning.
        record, facts = record.to(Phase.CREATED, observed.vms_at), None
    facts = facts or VmFacts(observed.now)
    running_at = 0.0
    if vm.status == RUNNING:
        running_at = facts.running_at or observed.now
    elif facts.running_at:
        # It boots once more.
        facts = replace(facts, probed=False, report=None)
    now_known = replace(
        facts, pool=vm.pool, id=vm.id, created=vm.created, lacking_at=0, running_at=running_at
    )
    return record if now_known == record.vm else replace(record, vm=now_known, lookup=None)


def _reason(timeouts: Timeouts, evidence: Evidence, record: NodeRecord, vm: Vm | None) -> str:
    start = started(record)
    if evidence is Evidence.FAILED:
        return start.permanent_error
    if vm is None:
        waited_s = timeouts.verdict_s if evidence is Evidence.OVERDUE else timeouts.made_s
        what = "its VM ran and lists lack it; no slurmd" if ran(record) else "no running VM"
        return f"{what} within {waited_s:.0f} s{_trouble(start)}"
    if evidence is Evidence.OVERDUE:
        return _overdue_reason(timeouts, record, vm)
    if evidence is Evidence.BOOT_ENDED:
        return _stuck(timeouts, record.vm.report if record.vm else None, vm)
    if evidence is Evidence.STOPPED:
        how = "taken back (spot)" if vm.spot else "stopped"
        return f"its VM in {vm.zone} was {how} while it booted"
    return (
        f"its VM in {vm.zone} is {vm.status} and does not run {timeouts.made_s:.0f} s after it was "
        "asked for"
    )


def _overdue_reason(timeouts: Timeouts, record: NodeRecord, vm: Vm) -> str:
    waited = f"{timeouts.verdict_s:.0f} s"
    if is_left_over(timeouts, record, vm):
        failure = started(record).deletion_failure
        why = f": {sentence(failure)}" if failure else ""
        return (
            f"the previous VM is still {vm.status} in {vm.zone}, not deleted within {waited}{why}"
        )
    return f"its VM in {vm.zone} is {vm.status}, and slurmd has not registered within {waited}"


def _stuck(timeouts: Timeouts, report: str | None, vm: Vm) -> str:
    waited = f"its VM in {vm.zone} has run for {timeouts.boot_s:.0f} s"
    if report:
        return f"{waited} and slurmd has not registered; it says: {report}"
    why = "has reported nothing of its boot" if report == "" else "its report could not be read"
    return f"{waited} and {why}; look at its console"


def _trouble(start: Start) -> str:
    if start.failure:
        return f": {sentence(start.failure)}"
    return f": {sentence(start.refused[-1][1])}" if start.refused else ""
