"""What the readings show of a node in service: a condition for each, by precedence.

The order is that of the table in `transitions`.
"""

from collections.abc import Callable
from typing import NamedTuple

from muster.autoscaler.reconcile.model import STOPPED, Node, Vm
from muster.autoscaler.reconcile.node_reasons import is_given_up, is_not_responding
from muster.autoscaler.reconcile.observed import ObservedState
from muster.autoscaler.reconcile.records import Lookup, NodeRecord
from muster.autoscaler.reconcile.transitions import Evidence


class Known(NamedTuple):
    """What is known of a node in service, with what the newest list says of its VM."""

    observed: ObservedState
    zones: frozenset[str]
    """Where its VM may be."""
    record: NodeRecord
    node: Node
    vm: Vm | None


def _is_lacking(known: Known) -> bool:
    """Whether the newest list lacks its VM, and is from after it was in service."""
    observed, record = known.observed, known.record
    if known.vm is not None or observed.vms_at <= record.verified_at:
        return False
    return observed.vms_at >= observed.nodes_at - observed.timeouts.missing_s


def _is_searched(known: Known, lookup: Lookup) -> bool:
    """Whether all zones in which its VM may be have answered that they have none that runs."""
    zones, observed = known.zones, known.observed
    # Its VM may be in a zone that no set has any more, and that was not reached since this daemon
    # began. If its slurmd does not answer either, it is on no VM that works in a zone without an
    # answer.
    if not known.record.not_responding_at:
        zones |= observed.vms.unreachable
    if not zones:
        # The cluster has no node set and no VM any more.
        return observed.vms_at >= lookup.since + observed.timeouts.listed_s
    return zones <= lookup.without


def _is_given_up(known: Known) -> bool:
    node = known.node
    return node.down and not is_not_responding(node) and is_given_up(node)


def _has_outdated_vm(known: Known) -> bool:
    """Whether the type of its VM is not in its set any more, because the definition has changed.

    If the set still has the type, a new VM does not help: SLURM expects too much of this type, and
    drains the new VM too.
    """
    node, vm = known.node, known.vm
    if not (node.invalid and not node.down and vm and _is_kept(known)):
        return False
    node_set = known.observed.set_of(vm.name)
    types = {choice.pool.kind for choice in node_set.choices} if node_set else set()
    return bool(types) and vm.pool.kind not in types


def _is_kept(known: Known) -> bool:
    node = known.node
    held = node.drained or (node.down and not is_not_responding(node))
    return held and not node.busy


def _is_absent(known: Known) -> bool:
    lookup = known.record.lookup
    if lookup is None or lookup.stopped or not _is_in_doubt(known):
        return False
    return _is_searched(known, lookup)


def _is_shut_down(known: Known) -> bool:
    lookup = known.record.lookup
    if lookup is None or not lookup.stopped or not _is_in_doubt(known):
        return False
    return known.record.not_responding_at > 0 or _is_searched(known, lookup)


def _is_in_doubt(known: Known) -> bool:
    return _is_listed_stopped(known) or _is_lacking(known)


def _has_not_responded(known: Known) -> bool:
    """Whether its VM runs or not: SLURM has ended its jobs."""
    since = known.record.not_responding_at
    not_responding_s = known.observed.timeouts.not_responding_s
    return since > 0 and known.observed.nodes_at >= since + not_responding_s


def _is_taken_back(known: Known) -> bool:
    # The node itself reported this; a list from before may be older than the VM.
    since = known.record.preempted_at
    return 0 < since < known.observed.vms_at and _is_lacking(known)


def _is_listed_stopped(known: Known) -> bool:
    vm = known.vm
    if vm is None or vm.status not in STOPPED:
        return False
    return known.observed.vms_at > known.record.verified_at


def _is_lacking_long(known: Known) -> bool:
    lookup = known.record.lookup
    if lookup is None or not _is_lacking_now(known):
        return False
    return known.observed.vms_at >= lookup.since + known.observed.timeouts.missing_s


def _is_lacking_now(known: Known) -> bool:
    return not known.record.preempted_at and _is_lacking(known)


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
    (Evidence.LISTED_NOWHERE, _is_lacking_now),
    (Evidence.WORKING, _is_working),
    (Evidence.OLD_LIST, _is_any),
)
"""What a reading shows of a node, and when it does: the first one that holds counts."""
