"""Probes of single VMs by name: how many more may be under way; pure.

A thousand boots that hang mostly have one cause, and some of them tell it as well as all.
"""

from muster.autoscaler.reconcile.records import NodeRecord, Phase, TrackedState

AT_ONCE = 10
"""Half of the calls that may be sent in a second (`compute.api_client.Limits`): other calls don't
wait long for them."""


def spare(tracked: TrackedState) -> int:
    """How many more probes may be under way."""
    return max(0, AT_ONCE - sum(_under_way(record) for record in tracked.nodes.values()))


def _under_way(record: NodeRecord) -> int:
    if record.phase is Phase.STUCK:
        return int(record.start is not None and record.start.report is None)
    lookup = record.lookup
    return len(lookup.asked - lookup.without) if lookup and not lookup.stopped else 0
