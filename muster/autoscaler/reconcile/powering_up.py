"""Nodes that SLURM waits for: released when their VMs' states or the time say so.

Each stage has its own deadline, so that a reason says where the start ended: asked for, VM runs,
booted, registered (then SLURM takes the node into service). A deadline is over when a reading from
after it shows nothing better.
"""

from collections.abc import Mapping
from dataclasses import replace

from muster.autoscaler.reconcile.model import LEAVING, NOT_UP, RUNNING, STOPPED, Probe, Vm
from muster.autoscaler.reconcile.observed import ObservedState, Timeouts
from muster.autoscaler.reconcile.probes import Places
from muster.autoscaler.reconcile.records import (
    POWERING_UP,
    Lookup,
    NodeRecord,
    Phase,
    Start,
    TrackedState,
    VmFacts,
)
from muster.autoscaler.reconcile.retry_policy import sentence
from muster.autoscaler.reconcile.transitions import Act, Evidence, step
from muster.autoscaler.reconcile.verdicts import Release, Verdicts
from muster.autoscaler.reconcile.vms import left_over, vm_of

PROBE_S = 20.0
"""How long to wait for a VM's report of its boot."""


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
        record = _noted(observed, tracked.zones, before, vm)
        evidence = _evidence(observed, tracked.zones, record, vm)
        phase, act = step(record.phase, evidence, name)
        if act is Act.RELEASE:
            release[name] = Release(evidence, _reason(observed.timeouts, evidence, record, vm))
        elif act is Act.READ_REPORT and vm and record.vm:
            overdue.append((record.vm.running_at, vm, record))
        elif act is Act.LOOK_UP:
            lost[name] = record
        else:
            record = record.to(phase, observed.vms_at)
            if evidence in (Evidence.VM_IS_GONE, Evidence.NO_VM):
                record = record.without_vm()
        if record is not before:
            records[name] = record
    # Those whose time was over first come first; the others are released without a report.
    overdue.sort(key=lambda late: late[0])
    places = Places(tracked)
    due = [late for late in overdue if late[1].name not in release and places.take([late[1].zone])]
    records |= {vm.name: record.to(Phase.STUCK, observed.now) for _, vm, record in due}
    probes = [Probe(vm.name, vm.zone, report=True) for _, vm, _ in due]
    more, looked_up = _look_up(observed, tracked, lost, places)
    return Verdicts(records | looked_up, release=release, actions=[*probes, *more])


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
        due = places.take(_zones(record, tracked.zones) - lookup.asked)
        if due:
            looked = replace(lookup, asked=lookup.asked | due)
            records[name] = replace(record, lookup=looked)
            probes += [Probe(name, zone) for zone in sorted(due)]
    return probes, records


def started(record: NodeRecord) -> Start:
    """Return the start of a node that SLURM waits for.

    Raises:
        ValueError: it has none, though `apply_results` gives it one.

    """
    if record.start is None:
        raise ValueError(f"no start: {record}")
    return record.start


def _current(observed: ObservedState, record: NodeRecord, vm: Vm | None) -> Vm | None:
    """Return a listed VM, but for one that stopped and may be from before the last insert.

    Lists may have it for a while, until they have the one that was inserted.
    """
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
    observed: ObservedState, zones: frozenset[str], record: NodeRecord, vm: Vm | None
) -> NodeRecord:
    """Take from the newest list how far a node's VM is."""
    facts = record.vm
    if vm is None or left_over(record, vm):
        if (
            facts
            and not facts.lacking_at
            and observed.vms_at > facts.known_at
            and _all_listed(observed, zones, record)
        ):
            return replace(record, vm=replace(facts, lacking_at=observed.now))
        return record
    if vm.status in LEAVING:
        # When the next list lacks it, it is gone: that is no gap in the list.
        return record.without_vm()
    if vm.status in STOPPED:
        return record
    start = started(record)
    if vm.created < start.oldest and observed.vms_at <= max(start.asked, start.noticed_at):
        # Perhaps it has booted since this list, and before SLURM asked.
        return record
    if facts and facts.id and facts.id != vm.id:
        # Another VM, which boots from its own beginning.
        record, facts = record.to(Phase.CREATED, observed.vms_at), None
    running_at = 0.0
    if vm.status == RUNNING:
        running_at = (facts.running_at if facts else 0) or observed.now
    now_known = VmFacts(facts.known_at if facts else observed.now, vm.pool, vm.id, 0, running_at)
    return record if now_known == facts else replace(record, vm=now_known, lookup=None)


def _evidence(
    observed: ObservedState, zones: frozenset[str], record: NodeRecord, vm: Vm | None
) -> Evidence:
    start = started(record)
    if start.permanent_error:
        return Evidence.FAILED
    if observed.nodes_at >= start.asked + observed.timeouts.verdict_s:
        return Evidence.OVERDUE
    # 0: not read yet, while SLURM may have asked before the boot. What a list says may be as old as
    # `missing_s`.
    both_at = min(observed.nodes_at, observed.vms_at - observed.timeouts.missing_s)
    both_read = observed.nodes_at > 0 and observed.vms_at > 0
    late = both_read and both_at >= start.asked + observed.timeouts.made_s
    if vm is None:
        return _without_vm(observed, zones, record, late=late)
    return (
        Evidence.LEFT_OVER if left_over(record, vm) else _with_vm(observed, record, vm, late=late)
    )


def _with_vm(observed: ObservedState, record: NodeRecord, vm: Vm, *, late: bool) -> Evidence:
    if vm.status == RUNNING:
        return _boots(observed, record)
    if vm.status in STOPPED:
        return Evidence.STOPPED
    # What was listed of a zone before it was unreachable is older than the deadline.
    if late and vm.zone not in observed.vms.unreachable:
        return Evidence.NO_RUNNING_VM
    return Evidence.LEAVING if vm.status in LEAVING else Evidence.COMING


def _without_vm(
    observed: ObservedState, zones: frozenset[str], record: NodeRecord, *, late: bool
) -> Evidence:
    made = record.phase in (Phase.CREATED, Phase.BOOTING, Phase.STUCK)
    facts, missing_s = record.vm if made else None, observed.timeouts.missing_s
    # Counted from the first list that lacks it: there may have been no list for a while since the
    # last one that had it, and then a single list would decide.
    lacking_s = observed.vms_at - (facts.lacking_at or observed.now) if facts else 0
    short = lacking_s <= missing_s or not _all_listed(observed, zones, record)
    if facts and short and (facts.id or not late):
        return Evidence.LACKING
    if late and not (facts and _ran(record)):
        return Evidence.NO_RUNNING_VM
    if record.insert:
        return Evidence.INSERT_RUNS
    if facts is None:
        return Evidence.NO_VM
    if record.lookup and _zones(record, zones) <= record.lookup.without:
        return Evidence.VM_IS_GONE
    # Of very many that an earlier daemon may have made, not each can be read by its name in time:
    # by lists alone go those for which that was not tried. No answer does not mean that it is gone.
    by_lists = facts.pool is None and record.lookup is None and lacking_s > 2 * missing_s
    return Evidence.NO_VM if by_lists else Evidence.LACKING_LONG


def _ran(record: NodeRecord) -> bool:
    return record.vm is not None and record.vm.running_at > 0


def _all_listed(observed: ObservedState, zones: frozenset[str], record: NodeRecord) -> bool:
    """Whether the newest list has all zones in which a node's VM may be."""
    answered = record.lookup.without if record.lookup else frozenset()
    return observed.vms.unreachable.isdisjoint(_zones(record, zones) - answered)


def _zones(record: NodeRecord, zones: frozenset[str]) -> frozenset[str]:
    """Where a node's VM was made, or may be, if an earlier daemon made it."""
    return frozenset({record.vm.pool.zone}) if record.vm and record.vm.pool else zones


def _boots(observed: ObservedState, record: NodeRecord) -> Evidence:
    running_at = record.vm.running_at if record.vm else observed.now
    late_s = observed.nodes_at - running_at - observed.timeouts.boot_s
    if record.phase not in (Phase.BOOTING, Phase.STUCK) or late_s < 0:
        return Evidence.RUNNING
    ended = started(record).report is not None or late_s >= PROBE_S
    return Evidence.BOOT_ENDED if ended else Evidence.BOOT_OVERDUE


def _reason(timeouts: Timeouts, evidence: Evidence, record: NodeRecord, vm: Vm | None) -> str:
    start = started(record)
    if evidence is Evidence.FAILED:
        return start.permanent_error
    if vm is None:
        waited_s = timeouts.verdict_s if evidence is Evidence.OVERDUE else timeouts.made_s
        what = "its VM ran and lists lack it; no slurmd" if _ran(record) else "no VM"
        return f"{what} within {waited_s:.0f} s{_trouble(start)}"
    if evidence is Evidence.OVERDUE:
        return _overdue(timeouts, record, vm)
    if evidence is Evidence.BOOT_ENDED:
        return _stuck(timeouts, start.report, vm)
    if evidence is Evidence.STOPPED:
        how = "taken back (spot)" if vm.spot else "stopped"
        return f"its VM in {vm.zone} was {how} while it booted"
    return (
        f"its VM in {vm.zone} is {vm.status} and does not run {timeouts.made_s:.0f} s after it was "
        "asked for"
    )


def _overdue(timeouts: Timeouts, record: NodeRecord, vm: Vm) -> str:
    waited = f"{timeouts.verdict_s:.0f} s"
    if left_over(record, vm):
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
