"""One reconcile pass: from observed and tracked state to the actions that are due; pure.

By what SLURM takes a node for:

* SLURM waits for it (`powering_up`, `provision`). No VM: one is made. A VM from before the request:
  deleted first. One that stopped, or a stage that takes too long: the node is released.
* In service (`in_service`). Its VM has stopped or is gone for certain: released, also where SLURM
  waits for its jobs to power it down. Drained: kept for somebody to look at, unless SLURM drained
  it for a machine type that its set had before. Down and not responding: released after a while.
  Set down by somebody: left alone.
* Powered down, or on the way (`garbage_collect`): its VM is deleted, as are VMs without a node. VMs
  without this cluster's label are not read.

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
    """Return the actions, in the order to do them, and the tracked state after them."""
    after = tracked.copy()
    apply_results(observed, after)
    releases = Releases(observed, after)
    boot_probes = check_powering_up(observed, after, releases)
    service_probes = check_in_service(observed, after, releases)
    # After the checks: what is released now is not asked for again, and its VM is deleted.
    inserts = provision(observed, after, releases)
    deletions = collect_garbage(observed, after)
    # A request is kept until each of its nodes is in service, or was released.
    closed = [
        Close(request.id)
        for request in observed.requests
        if not any(observed.is_powering_up(name) for name in request.nodes)
    ]
    probes = [*boot_probes, *service_probes]
    return [*releases.actions(), *probes, *inserts, *deletions, *closed], after
