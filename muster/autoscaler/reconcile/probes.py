"""Looks at single VMs by name: how many more may be asked for; pure.

A thousand boots that hang have mostly one cause, which some of them tell as well as all.
"""

from muster.autoscaler.reconcile.tracked import TrackedState

AT_ONCE = 10
"""Half of what Google may be asked in a second (`transport.Limits`): nobody waits long for them."""


def spare(tracked: TrackedState) -> int:
    """How many more looks may be under way."""
    boots = sum(name not in tracked.said for name in tracked.inspecting)
    missing = sum(len(miss.asked - miss.without) for miss in tracked.missing.values())
    return max(0, AT_ONCE - boots - missing)
