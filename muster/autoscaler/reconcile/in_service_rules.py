"""What the readings show of a node in service: a condition for each, by precedence.

The order is that of the table in `transitions`.
"""

from collections.abc import Callable
from typing import NamedTuple

from muster.autoscaler.reconcile.model import STOPPED, Node, Vm
from muster.autoscaler.reconcile.node_reasons import is_given_up
from muster.autoscaler.reconcile.observed import ObservedState
from muster.autoscaler.reconcile.records import Lookup, NodeRecord, TrackedState
from muster.autoscaler.reconcile.transitions import Evidence, first_that_holds


class Known(NamedTuple):
    """What is known of a node in service, with what the newest list says of its VM."""

    observed: ObservedState
    zones: frozenset[str]
    """Where its VM may be."""
    unlisted: frozenset[str]
    """Zones of which this daemon has had no list."""
    back_at: float
    """`TrackedState.back_at`."""
    record: NodeRecord
    node: Node
    vm: Vm | None
    in_doubt: bool
    """Whether the newest list has its VM as stopped or lacks it, and is new enough to say that."""


def evidence_of(
    observed: ObservedState, tracked: TrackedState, record: NodeRecord, node: Node, vm: Vm | None
) -> Evidence:
    """Return what the readings show of a node."""
    in_doubt = False
    if observed.vms_at > record.verified_at:
        if vm is not None:
            in_doubt = vm.status in STOPPED
        else:
            # The list may be from before the node was in service.
            in_doubt = observed.vms_at >= observed.nodes_at - observed.timeouts.missing_s
    zones, unlisted, back_at = tracked.zones, tracked.unlisted, tracked.back_at
    known = Known(observed, zones, unlisted, back_at, record, node, vm, in_doubt)
    return first_that_holds(RULES, known)


def _is_searched(known: Known, lookup: Lookup) -> bool:
    """Whether all zones in which its VM may be have answered that they have none that runs."""
    zones, observed = known.zones, known.observed
    # Its VM may be in a zone that no set has any more, and that was not reached since this daemon
    # began: not if it was read by its name, and if its slurmd does not answer either, it is on no
    # VM that works there.
    if not lookup.stopped and not known.record.not_responding_at:
        zones |= known.unlisted
    if not zones:
        # The cluster has no node set and no VM any more.
        return observed.vms_at >= lookup.since + observed.timeouts.listed_s
    return zones <= lookup.without


def _is_given_up(known: Known) -> bool:
    node = known.node
    return node.down and not known.record.not_responding_at and is_given_up(node)


def _has_outdated_vm(known: Known) -> bool:
    """Whether the type of its VM is not in its set any more, because the definition has changed.

    If the set still has the type, a new VM does not help: SLURM expects too much of this type, and
    drains the new VM too.
    """
    node, vm = known.node, known.vm
    if not (node.invalid and not node.down and not node.by_hand and vm and _is_kept(known)):
        return False
    if known.observed.vms_at < known.observed.nodes_at or vm.zone in known.observed.vms.unreachable:
        # It may have an earlier VM.
        return False
    node_set = known.observed.set_of(vm.name)
    types = {choice.pool.kind for choice in node_set.choices} if node_set else set()
    return bool(types) and vm.pool.kind not in types


def _is_kept(known: Known) -> bool:
    node = known.node
    held = node.drained or (node.down and not known.record.not_responding_at)
    return held and not node.busy


def _is_absent(known: Known) -> bool:
    lookup = known.record.lookup
    if lookup is None or lookup.stopped or not known.in_doubt:
        return False
    return _is_searched(known, lookup)


def _is_shut_down(known: Known) -> bool:
    lookup = known.record.lookup
    if lookup is None or not lookup.stopped or not known.in_doubt:
        return False
    return known.record.not_responding_at > 0 or _is_searched(known, lookup)


def _has_not_responded(known: Known) -> bool:
    """Whether its VM runs or not: SLURM has ended its jobs."""
    since = known.record.not_responding_at
    if not since:
        return False
    # It may have answered while slurmctld was away.
    since = max(since, known.back_at)
    return known.observed.nodes_at >= since + known.observed.timeouts.not_responding_s


def _is_taken_back(known: Known) -> bool:
    if not known.in_doubt or known.vm is not None:
        return False
    # The node itself reported this; a list from before may be older than the VM.
    return 0 < known.record.preempted_at < known.observed.vms_at


def _is_listed_stopped(known: Known) -> bool:
    return known.in_doubt and known.vm is not None


def _is_lacking_long(known: Known) -> bool:
    lookup = known.record.lookup
    if lookup is None or not _is_lacking(known):
        return False
    return known.observed.vms_at >= lookup.since + known.observed.timeouts.missing_s


def _is_lacking(known: Known) -> bool:
    return known.in_doubt and known.vm is None and not known.record.preempted_at


def _is_working(known: Known) -> bool:
    return known.vm is not None and known.vm.status not in STOPPED


def _is_any(_: Known) -> bool:
    return True


RULES: tuple[tuple[Evidence, Callable[[Known], bool]], ...] = (
    (Evidence.GIVEN_UP, _is_given_up),
    (Evidence.OUTDATED, _has_outdated_vm),
    (Evidence.KEPT, _is_kept),
    (Evidence.ABSENT, _is_absent),
    (Evidence.SHUT_DOWN, _is_shut_down),
    (Evidence.NOT_RESPONDING, _has_not_responded),
    (Evidence.TAKEN_BACK, _is_taken_back),
    (Evidence.LISTED_STOPPED, _is_listed_stopped),
    (Evidence.LISTED_NOWHERE_LONG, _is_lacking_long),
    (Evidence.LISTED_NOWHERE, _is_lacking),
    (Evidence.WORKING, _is_working),
    (Evidence.OLD_LIST, _is_any),
)
"""What a reading shows of a node, and when it does: the first one that holds counts."""
