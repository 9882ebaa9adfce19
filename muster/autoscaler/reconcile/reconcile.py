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

A node comes back by SLURM's own means (`ReleaseNodes`), and no VM that runs is deleted before
slurmctld shows that its node is not in service any more, or not yet on that VM.
`transitions` has this as a table.
"""

from muster.autoscaler.reconcile import release
from muster.autoscaler.reconcile.apply_readings import apply_readings
from muster.autoscaler.reconcile.apply_results import apply_results
from muster.autoscaler.reconcile.garbage_collect import collect_garbage
from muster.autoscaler.reconcile.in_service import check_in_service
from muster.autoscaler.reconcile.jobs_over import check_jobs_over, without_jobs_over
from muster.autoscaler.reconcile.model import Action, Close
from muster.autoscaler.reconcile.observed import ObservedState
from muster.autoscaler.reconcile.powering_up import check_powering_up
from muster.autoscaler.reconcile.provision import provision
from muster.autoscaler.reconcile.records import TrackedState
from muster.autoscaler.reconcile.verdicts import Release

# Garbage last: the VM of a node that is released now is deleted, and it is not asked for again.
PARTS = (check_powering_up, check_in_service, check_jobs_over, provision, collect_garbage)


def track(observed: ObservedState, tracked: TrackedState) -> TrackedState:
    """Return the tracked state after what was read and heard since the last pass."""
    return apply_readings(observed, apply_results(observed, tracked))


def reconcile(observed: ObservedState, tracked: TrackedState) -> tuple[list[Action], TrackedState]:
    """Return the actions, in the order to do them, and the tracked state after them."""
    after = track(observed, tracked)
    observed = without_jobs_over(observed, after)
    released: dict[str, Release] = {}
    actions: list[Action] = []
    for part in PARTS:
        verdicts = part(observed, after)
        after = verdicts.after(after)
        now_released = release.due(observed, after, verdicts.release)
        after = after.with_nodes(release.records(after, now_released, observed.now))
        released |= now_released
        actions += verdicts.actions
    # A request is kept until slurmctld shows of each of its nodes that it does not wait for it.
    closed = [
        Close(request.id)
        for request in observed.requests
        if observed.nodes_at >= request.asked
        and not any(observed.is_powering_up(name) for name in request.nodes)
    ]
    return [*release.actions(observed, released), *actions, *closed], after
