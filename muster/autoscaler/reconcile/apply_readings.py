"""Apply the newest readings to the records: starts begin, and what is over ends; pure."""

from collections.abc import Mapping
from dataclasses import replace

from muster.autoscaler.reconcile.expire import expire
from muster.autoscaler.reconcile.model import RUNNING
from muster.autoscaler.reconcile.observed import ObservedState
from muster.autoscaler.reconcile.records import NOTHING, Readings, TrackedState
from muster.autoscaler.reconcile.starts import with_start


def apply_readings(observed: ObservedState, tracked: TrackedState) -> TrackedState:
    """Return the tracked state after the readings since the last pass, if there are any."""
    if tracked.began is None and observed.nodes_at:
        tracked = replace(tracked, began=observed.now)
    zones = tracked.zones | observed.zones
    read = Readings(
        observed.nodes, observed.nodes_at, observed.vms, observed.vms_at, observed.requests
    )
    if tracked.read is not None and read.same_as(tracked.read):
        return replace(tracked, zones=zones, fresh=False)
    unlisted = observed.vms.unreachable
    if tracked.read is not None and tracked.read.vms_at:
        unlisted &= tracked.unlisted
    tracked = replace(tracked, ran_at=_ran_at(observed, tracked))
    nodes = dict(tracked.nodes)
    for name in observed.powering_up():
        nodes[name] = with_start(observed, tracked, nodes.get(name, NOTHING), name)
    nodes = {
        name: record
        for name, old in nodes.items()
        if not (record := expire(observed, old, name)).empty
    }
    return replace(tracked, nodes=nodes, zones=zones, unlisted=unlisted, read=read, fresh=True)


def _ran_at(observed: ObservedState, tracked: TrackedState) -> Mapping[str, float]:
    """Return `TrackedState.ran_at` with the newest list."""
    if tracked.read is not None and observed.vms is tracked.read.vms:
        return tracked.ran_at
    before, now = tracked.ran_at, observed.now
    return {vm.id: before.get(vm.id, now) for vm in observed.vms if vm.status == RUNNING}
