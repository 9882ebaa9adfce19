"""What is to be done, from what is known: all decisions of the autoscaler; pure.

The table of states, by what SLURM takes a node for:

* SLURM waits for it (`powering_up`, `asking`). No VM: one is made. A VM from before: deleted first. One
  that stopped, or a stage that takes too long: the node is released.
* In service (`keeping`). Its VM has stopped or is gone for certain: released, also where SLURM
  waits for its jobs to power it down. Drained: kept for a look, unless it is for a machine type of
  before. Down and silent: released after a while. Down by somebody's hand: theirs.
* Powered down, or on the way (`clearing`): its VM is deleted, as are VMs without a node. VMs of
  others are never seen here.

A node comes back by SLURM's own means (`ReleaseNodes`), and no VM of a node in service is deleted.
"""

from muster.autoscaler.reconcile.apply_results import apply_results
from muster.autoscaler.reconcile.garbage_collect import collect_garbage
from muster.autoscaler.reconcile.in_service import check_in_service
from muster.autoscaler.reconcile.model import Action, Close
from muster.autoscaler.reconcile.observed import ObservedState
from muster.autoscaler.reconcile.powering_up import check_powering_up
from muster.autoscaler.reconcile.provision import provision
from muster.autoscaler.reconcile.release import Releases
from muster.autoscaler.reconcile.tracked import TrackedState


def reconcile(observed: ObservedState, tracked: TrackedState) -> tuple[list[Action], TrackedState]:
    """Return what is to be done, in this order, and what is to be remembered."""
    after = tracked.copy()
    apply_results(observed, after)
    releases = Releases(observed, after)
    judged = check_powering_up(observed, after, releases)
    kept = check_in_service(observed, after, releases)
    # After the verdicts: what is released now is not asked for again, and its VM is deleted.
    asked = provision(observed, after, releases)
    cleared = collect_garbage(observed, after)
    # A request is kept until each of its nodes is in service, or was released.
    closed = [
        Close(request.id)
        for request in observed.requests
        if not any(observed.is_powering_up(name) for name in request.nodes)
    ]
    return [*releases.actions(), *judged, *kept, *asked, *cleared, *closed], after
