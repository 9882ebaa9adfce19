"""What the end of a deletion means for its node; pure."""

from dataclasses import replace

from muster.autoscaler.reconcile import backoff
from muster.autoscaler.reconcile.model import Deleted
from muster.autoscaler.reconcile.observed import ObservedState
from muster.autoscaler.reconcile.records import Deletion, NodeRecord, put, take

WITHDRAWN = "withdrawn"
"""Code of a deletion that `Withdraw` has ended."""


def deleted(observed: ObservedState, record: NodeRecord, event: Deleted) -> NodeRecord:
    """Return a node's record after the end of the deletion of a VM of its name."""
    vm, at, failure = event.vm, event.at, event.failure
    if failure is None:
        gone = put(record.gone, vm.id, at)
        return replace(record, deletions=take(record.deletions, vm.id), gone=gone)
    if failure.code == WITHDRAWN or vm.id not in observed.vms.ids:
        # Not wanted any more, or gone in the meantime.
        return replace(record, deletions=take(record.deletions, vm.id))
    before = record.deletions.get(vm.id, Deletion(vm))
    before = replace(before, failed_at=before.failed_at or at)
    if record.start:
        # Its node waits for it.
        record = replace(record, start=replace(record.start, deletion_failure=failure))
        deletion = replace(before, again=at + backoff.FIRST_DELETE_S)
    else:
        # If SLURM asks for the node again, it is tried at once.
        again = at + backoff.before_delete_s(at - before.failed_at)
        deletion = replace(before, again=again, urgent=False)
    return replace(record, deletions=put(record.deletions, vm.id, deletion))
