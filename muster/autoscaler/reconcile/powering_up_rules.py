"""What the readings show of a node that SLURM waits for: a condition for each, by precedence.

The order is that of the table in `transitions`.
"""

from collections.abc import Callable
from typing import NamedTuple

from muster.autoscaler.reconcile.model import LEAVING, RUNNING, STOPPED, Vm
from muster.autoscaler.reconcile.observed import ObservedState
from muster.autoscaler.reconcile.records import (
    VM_MADE,
    NodeRecord,
    Phase,
    Start,
    TrackedState,
    VmFacts,
    started,
)
from muster.autoscaler.reconcile.transitions import Evidence, first_that_holds
from muster.autoscaler.reconcile.vms import is_left_over

PROBE_S = 20.0
"""How long to wait for a VM's report of its boot."""
IN_BOOT = (Phase.BOOTING, Phase.STUCK)


class Listed(NamedTuple):
    """A node whose VM is in the newest list."""

    observed: ObservedState
    record: NodeRecord
    start: Start
    back_at: float
    """`TrackedState.back_at`."""
    vm: Vm


class Unlisted(NamedTuple):
    """A node whose VM is not in the newest list, if it has one."""

    observed: ObservedState
    record: NodeRecord
    start: Start
    back_at: float
    zones: frozenset[str]
    """Where its VM may be, if an earlier daemon made it."""
    maybe: VmFacts | None
    """What is tracked of its VM, if that is made, or may be."""


def evidence_of(
    observed: ObservedState, tracked: TrackedState, record: NodeRecord, vm: Vm | None
) -> Evidence:
    """Return what the readings show of a node."""
    start, back_at = started(record), tracked.back_at
    if vm is not None:
        return first_that_holds(LISTED, Listed(observed, record, start, back_at, vm))
    maybe = record.vm if record.phase in VM_MADE else None
    known = Unlisted(observed, record, start, back_at, tracked.zones, maybe)
    return first_that_holds(UNLISTED, known)


def ran(record: NodeRecord) -> bool:
    """Whether a list had its VM running."""
    return record.vm is not None and record.vm.running_at > 0


def all_listed(observed: ObservedState, zones: frozenset[str], record: NodeRecord) -> bool:
    """Whether the newest list has all zones in which a node's VM may be."""
    answered = record.lookup.without if record.lookup else frozenset()
    return observed.vms.unreachable.isdisjoint(zones_of(record, zones) - answered)


def zones_of(record: NodeRecord, zones: frozenset[str]) -> frozenset[str]:
    """Where a node's VM was made, or may be, if another start or an earlier daemon made it."""
    facts = record.vm
    if facts is None or not (facts.pool or facts.older):
        return zones
    return frozenset({facts.pool.zone} if facts.pool else facts.older.values())


# --- conditions -----------------------------------------------------------------------------------


def _has_failed(known: Listed | Unlisted) -> bool:
    return known.start.permanent_error != ""


def _is_overdue(known: Listed | Unlisted) -> bool:
    """Whether its time is over; slurmd could not register while slurmctld was away."""
    timeouts = known.observed.timeouts
    verdict_at = max(known.start.asked + timeouts.verdict_s, known.back_at + timeouts.boot_s)
    return known.observed.nodes_at >= verdict_at


def _is_vm_overdue(known: Listed | Unlisted) -> bool:
    """Whether both SLURM and the cloud were read after the time within which a VM must run.

    0: not read yet, while SLURM may have asked before the boot. What a list says may be as old as
    `missing_s`.
    """
    observed, timeouts = known.observed, known.observed.timeouts
    if not (observed.nodes_at > 0 and observed.vms_at > 0):
        return False
    both_at = min(observed.nodes_at, observed.vms_at - timeouts.missing_s)
    return both_at >= known.start.asked + timeouts.made_s


def _is_left_over(known: Listed) -> bool:
    return is_left_over(known.observed.timeouts, known.record, known.vm)


def _has_stopped(known: Listed) -> bool:
    return known.vm.status in STOPPED


def _runs_too_late(known: Listed) -> bool:
    if known.vm.status == RUNNING:
        return False
    # What was listed of a zone before it was unreachable is older than the deadline.
    return known.vm.zone not in known.observed.vms.unreachable and _is_vm_overdue(known)


def _has_boot_ended(known: Listed) -> bool:
    record = known.record
    if record.phase is not Phase.STUCK or not _is_boot_overdue(known):
        return False
    reported = record.vm is not None and record.vm.report is not None
    return reported or known.observed.nodes_at >= record.since + PROBE_S


def _is_boot_overdue(known: Listed) -> bool:
    vm = known.record.vm
    if vm is None or known.record.phase not in IN_BOOT or not _is_running(known):
        return False
    # A slurmd that could not register while slurmctld was away tries again, less and less often.
    since = max(vm.running_at, known.back_at)
    return known.observed.nodes_at >= since + known.observed.timeouts.boot_s


def _is_running(known: Listed) -> bool:
    return known.vm.status == RUNNING


def _is_leaving(known: Listed) -> bool:
    return known.vm.status in LEAVING


def _is_any(_: Listed | Unlisted) -> bool:
    return True


def lacking_s(observed: ObservedState, vm: VmFacts) -> float:
    """For how long lists lack a VM.

    Counted from the first list that lacks it: there may have been no list for a while since the
    last one that had it, and then a single list would decide.
    """
    return observed.vms_at - (vm.lacking_at or observed.now)


def _is_lacking(known: Unlisted) -> bool:
    vm = known.maybe
    if vm is None or _is_deleted(known):
        return False
    listed = all_listed(known.observed, known.zones, known.record)
    if listed and lacking_s(known.observed, vm) > known.observed.timeouts.missing_s:
        return False
    # Without a list of each zone in which it may be nothing says that it does not run.
    return not listed or vm.id != "" or not _is_vm_overdue(known)


def _does_not_run(known: Unlisted) -> bool:
    return _is_vm_overdue(known) and not (known.maybe and ran(known.record))


def _is_being_made(known: Unlisted) -> bool:
    return known.record.insert != ""


def _is_deleted(known: Unlisted) -> bool:
    """Whether its VM can only be one whose deletion has ended since its start began."""
    vm = known.maybe
    if vm is None or vm.pool or not vm.older:
        return False
    return known.record.gone.keys() >= vm.older.keys()


def _is_gone(known: Unlisted) -> bool:
    if _is_deleted(known):
        return True
    lookup = known.record.lookup
    if known.maybe is None or lookup is None:
        return False
    return zones_of(known.record, known.zones) <= lookup.without


def _is_lacking_long(known: Unlisted) -> bool:
    return known.maybe is not None


LISTED: tuple[tuple[Evidence, Callable[[Listed], bool]], ...] = (
    (Evidence.FAILED, _has_failed),
    (Evidence.OVERDUE, _is_overdue),
    (Evidence.LEFT_OVER, _is_left_over),
    (Evidence.STOPPED, _has_stopped),
    (Evidence.NO_RUNNING_VM, _runs_too_late),
    (Evidence.BOOT_ENDED, _has_boot_ended),
    (Evidence.BOOT_OVERDUE, _is_boot_overdue),
    (Evidence.RUNNING, _is_running),
    (Evidence.LEAVING, _is_leaving),
    (Evidence.COMING, _is_any),
)
"""Where a list has its VM: the first one that holds counts."""
UNLISTED: tuple[tuple[Evidence, Callable[[Unlisted], bool]], ...] = (
    (Evidence.FAILED, _has_failed),
    (Evidence.OVERDUE, _is_overdue),
    (Evidence.LACKING, _is_lacking),
    (Evidence.NO_RUNNING_VM, _does_not_run),
    (Evidence.INSERT_RUNS, _is_being_made),
    (Evidence.VM_IS_GONE, _is_gone),
    (Evidence.LACKING_LONG, _is_lacking_long),
    (Evidence.NO_VM, _is_any),
)
"""The same, where no list has it."""
