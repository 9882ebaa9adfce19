"""Probes of single VMs by name: how many more may be under way; pure.

A thousand boots that hang mostly have one cause, and some of them tell it as well as all.
"""

from muster.autoscaler.reconcile.tracked import TrackedState

AT_ONCE = 10
"""Half of the calls that may be sent in a second (`compute.api_client.Limits`): other calls don't
wait long for them."""


def spare(tracked: TrackedState) -> int:
    """How many more probes may be under way."""
    boots = sum(name not in tracked.said for name in tracked.inspecting)
    missing = sum(len(miss.asked - miss.without) for miss in tracked.missing.values())
    return max(0, AT_ONCE - boots - missing)
