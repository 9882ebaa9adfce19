"""What the newest readings show to be over; pure."""

from collections.abc import Mapping
from dataclasses import replace

from muster.autoscaler.reconcile.model import Power
from muster.autoscaler.reconcile.observed import ObservedState
from muster.autoscaler.reconcile.records import POWERING_UP, Deletion, NodeRecord, Phase
from muster.autoscaler.reconcile.release_results import after_reading
from muster.autoscaler.reconcile.transitions import Evidence, advanced

DELETION_S = 3600.0
"""The driver tells how a deletion ended so long after it could be sent. After this time it is asked
for again."""


def expire(observed: ObservedState, before: NodeRecord, name: str) -> NodeRecord:
    """Return a node's record without what is over."""
    record = after_reading(observed, before, name)
    if record.phase in POWERING_UP:
        if not observed.is_powering_up(name):
            record = advanced(record, name, Evidence.NO_LONGER_ASKED, observed.nodes_at)
    elif record.phase is not Phase.RELEASED and record.in_doubt:
        node = observed.nodes.get(name)
        if node is None or node.power is not Power.UP or (node.leaving and not node.busy):
            record = advanced(record, name, Evidence.NO_LONGER_UP, observed.nodes_at)
    return _without_old_facts(observed, record, name)


def _without_old_facts(observed: ObservedState, record: NodeRecord, name: str) -> NodeRecord:
    if record.deletions:
        left = {
            vm_id: deletion
            for vm_id, before in record.deletions.items()
            if (deletion := _after_list(observed, before)) is not None
        }
        if left != record.deletions:
            record = replace(record, deletions=left)
    # The list of a zone that is not reached is older.
    if record.gone or record.no_room:
        old = observed.vms.ids if observed.vms.unreachable else frozenset()
        gone, past = record.gone, observed.vms_at - observed.timeouts.listed_s
        if any(known.at < past and vm_id not in old for vm_id, known in gone.items()):
            gone = {
                vm_id: known for vm_id, known in gone.items() if known.at >= past or vm_id in old
            }
        no_room = record.no_room
        if not observed.vms.unreachable:
            no_room = _since(no_room, observed.vms_at)
        if gone is not record.gone or no_room is not record.no_room:
            record = replace(record, gone=gone, no_room=no_room)
    if record.unknown_at and name not in observed.vms.by_name and not record.deletions:
        record = replace(record, unknown_at=0.0)
    if record.verified_at and observed.vms_at > record.verified_at:
        record = replace(record, verified_at=0.0)
    return record


def _after_list(observed: ObservedState, deletion: Deletion) -> Deletion | None:
    """Return a deletion after the newest list; None: its VM is gone by lists."""
    if deletion.vm.id in observed.vms.ids:
        return replace(deletion, lacking_at=0) if deletion.lacking_at else deletion
    if deletion.under_way:
        # It tells its end by itself, mostly.
        return deletion if observed.now <= deletion.asked_at + DELETION_S else None
    if not deletion.lacking_at:
        return replace(deletion, lacking_at=observed.now)
    # One list that lacks it does not prove that it is gone.
    known = observed.vms_at <= deletion.lacking_at + observed.timeouts.missing_s
    return deletion if known else None


def _since(times: Mapping[str, float], past: float) -> Mapping[str, float]:
    if not times or min(times.values()) >= past:
        return times
    return {key: when for key, when in times.items() if when >= past}
