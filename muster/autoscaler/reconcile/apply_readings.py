"""Apply the newest readings to the records: starts begin, and what is over ends; pure."""

from dataclasses import replace

from muster.autoscaler.reconcile.boots import boots_after, lacking_of, with_boots
from muster.autoscaler.reconcile.expire import expire
from muster.autoscaler.reconcile.jobs_over import jobs_over
from muster.autoscaler.reconcile.observed import STALE_S, ObservedState
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
    if tracked.read is None:
        tracked = replace(tracked, first_at=observed.now)
    read_at = tracked.read.nodes_at if tracked.read else 0
    is_back = (read_at or tracked.first_at) < observed.nodes_at - STALE_S
    back_at = observed.nodes_at if is_back else tracked.back_at
    tracked = replace(
        tracked,
        back_at=back_at,
        boots=boots_after(observed, tracked),
        jobs_over=jobs_over(observed, tracked),
    )
    nodes = dict(tracked.nodes)
    lacking = lacking_of(observed, tracked)
    for name in observed.powering_up():
        before = nodes.get(name, NOTHING)
        record = with_start(observed, tracked, before, name, lacking.get(name, {}))
        nodes[name] = with_boots(observed, tracked, record, name)
    nodes = {
        name: record
        for name, old in nodes.items()
        if not (record := expire(observed, old, name)).empty
    }
    return replace(tracked, nodes=nodes, zones=zones, unlisted=unlisted, read=read, fresh=True)
