"""What the readings show of a node that SLURM waits for: a condition for each, by precedence.

The order is that of the table in `transitions`.
"""

from collections.abc import Callable
from typing import NamedTuple

from muster.autoscaler.reconcile.model import LEAVING, RUNNING, STOPPED, Vm
from muster.autoscaler.reconcile.observed import ObservedState
from muster.autoscaler.reconcile.records import VM_MADE, NodeRecord, Phase, VmFacts, started
from muster.autoscaler.reconcile.transitions import Evidence
from muster.autoscaler.reconcile.vms import left_over

PROBE_S = 20.0
"""How long to wait for a VM's report of its boot."""


class Known(NamedTuple):
    """What is known of a node that SLURM waits for, with what the newest list says of its VM."""

    observed: ObservedState
    zones: frozenset[str]
    """Where its VM may be, if an earlier daemon made it."""
    record: NodeRecord
    vm: Vm | None


def ran(record: NodeRecord) -> bool:
    """Whether a list had its VM running."""
    return record.vm is not None and record.vm.running_at > 0


def all_listed(observed: ObservedState, zones: frozenset[str], record: NodeRecord) -> bool:
    """Whether the newest list has all zones in which a node's VM may be."""
    answered = record.lookup.without if record.lookup else frozenset()
    return observed.vms.unreachable.isdisjoint(zones_of(record, zones) - answered)


def zones_of(record: NodeRecord, zones: frozenset[str]) -> frozenset[str]:
    """Where a node's VM was made, or may be, if an earlier daemon made it."""
    return frozenset({record.vm.pool.zone}) if record.vm and record.vm.pool else zones


def _lacking_vm(known: Known) -> VmFacts | None:
    """Return what is tracked of a VM that is made, or may be, and that the newest list lacks."""
    return known.record.vm if known.vm is None and known.record.phase in VM_MADE else None


def _lacking_s(known: Known, facts: VmFacts) -> float:
    """For how long lists lack it.

    Counted from the first list that lacks it: there may have been no list for a while since the
    last one that had it, and then a single list would decide.
    """
    return known.observed.vms_at - (facts.lacking_at or known.observed.now)


def _is_made_time_over(known: Known) -> bool:
    """Whether both SLURM and the cloud were read after the time within which a VM must run.

    0: not read yet, while SLURM may have asked before the boot. What a list says may be as old as
    `missing_s`.
    """
    observed, timeouts = known.observed, known.observed.timeouts
    if not (observed.nodes_at > 0 and observed.vms_at > 0):
        return False
    both_at = min(observed.nodes_at, observed.vms_at - timeouts.missing_s)
    return both_at >= started(known.record).asked + timeouts.made_s


def _boot_late_s(known: Known) -> float:
    """For how long the VM's boot is overdue; negative: it is not."""
    running_at = known.record.vm.running_at if known.record.vm else known.observed.now
    return known.observed.nodes_at - running_at - known.observed.timeouts.boot_s


def _has_failed(known: Known) -> bool:
    return bool(started(known.record).permanent_error)


def _is_overdue(known: Known) -> bool:
    asked = started(known.record).asked
    return known.observed.nodes_at >= asked + known.observed.timeouts.verdict_s


def _is_left_over(known: Known) -> bool:
    return known.vm is not None and left_over(known.record, known.vm)


def _is_lacking(known: Known) -> bool:
    facts = _lacking_vm(known)
    if facts is None:
        return False
    short = _lacking_s(known, facts) <= known.observed.timeouts.missing_s
    if not short and all_listed(known.observed, known.zones, known.record):
        return False
    return bool(facts.id) or not _is_made_time_over(known)


def _has_stopped(known: Known) -> bool:
    return known.vm is not None and known.vm.status in STOPPED


def _runs_too_late(known: Known) -> bool:
    vm = known.vm
    if vm is None:
        return _is_made_time_over(known) and not (_lacking_vm(known) and ran(known.record))
    # What was listed of a zone before it was unreachable is older than the deadline.
    reached = vm.zone not in known.observed.vms.unreachable
    return vm.status != RUNNING and reached and _is_made_time_over(known)


def _is_being_made(known: Known) -> bool:
    return known.vm is None and bool(known.record.insert)


def _is_gone(known: Known) -> bool:
    lookup = known.record.lookup
    if _lacking_vm(known) is None or lookup is None:
        return False
    return zones_of(known.record, known.zones) <= lookup.without


def _is_lacking_long(known: Known) -> bool:
    facts = _lacking_vm(known)
    if facts is None:
        return False
    # Of very many that an earlier daemon may have made, not each can be read by its name in time:
    # by lists alone go those for which that was not tried. No answer does not mean that it is gone.
    not_tried = facts.pool is None and known.record.lookup is None
    return not (not_tried and _lacking_s(known, facts) > 2 * known.observed.timeouts.missing_s)


def _is_without_vm(known: Known) -> bool:
    return known.vm is None


def _has_boot_ended(known: Known) -> bool:
    if not _is_boot_overdue(known):
        return False
    return started(known.record).report is not None or _boot_late_s(known) >= PROBE_S


def _is_boot_overdue(known: Known) -> bool:
    in_boot = known.record.phase in (Phase.BOOTING, Phase.STUCK)
    return _is_running(known) and in_boot and _boot_late_s(known) >= 0


def _is_running(known: Known) -> bool:
    return known.vm is not None and known.vm.status == RUNNING


def _is_leaving(known: Known) -> bool:
    return known.vm is not None and known.vm.status in LEAVING


def _is_coming(known: Known) -> bool:
    return known.vm is not None


RULES: tuple[tuple[Evidence, Callable[[Known], bool]], ...] = (
    (Evidence.FAILED, _has_failed),
    (Evidence.OVERDUE, _is_overdue),
    (Evidence.LEFT_OVER, _is_left_over),
    (Evidence.LACKING, _is_lacking),
    (Evidence.STOPPED, _has_stopped),
    (Evidence.NO_RUNNING_VM, _runs_too_late),
    (Evidence.INSERT_RUNS, _is_being_made),
    (Evidence.VM_IS_GONE, _is_gone),
    (Evidence.LACKING_LONG, _is_lacking_long),
    (Evidence.NO_VM, _is_without_vm),
    (Evidence.BOOT_ENDED, _has_boot_ended),
    (Evidence.BOOT_OVERDUE, _is_boot_overdue),
    (Evidence.RUNNING, _is_running),
    (Evidence.LEAVING, _is_leaving),
    (Evidence.COMING, _is_coming),
)
"""What a reading shows of a node, and when it does: the first one that holds counts."""
