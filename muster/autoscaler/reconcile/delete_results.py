"""What the end of a deletion means for its node; pure."""

from dataclasses import replace

from muster.autoscaler.reconcile import backoff
from muster.autoscaler.reconcile.model import Deleted
from muster.autoscaler.reconcile.records import Deletion, Gone, NodeRecord, put, take

WITHDRAWN = "withdrawn"
"""Code of a deletion that `Withdraw` has ended."""


def deleted(record: NodeRecord, event: Deleted) -> NodeRecord:
    """Return a node's record after the end of the deletion of a VM of its name."""
    vm, at, failure = event.vm, event.at, event.failure
    if failure is None:
        gone = put(record.gone, vm.id, Gone(at, vm.pool))
        return replace(record, deletions=take(record.deletions, vm.id), gone=gone)
    before = record.deletions.get(vm.id, Deletion(vm))
    if failure.code == WITHDRAWN:
        # The VM is still there, also where the newest list lacks it.
        ended = replace(before, again=at, withdrawn=False)
        return replace(record, deletions=put(record.deletions, vm.id, ended))
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
