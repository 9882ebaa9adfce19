"""Probes of single VMs by name: how many more may be under way; pure.

A thousand boots that hang mostly have one cause, and some of them tell it as well as all.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property

from muster.autoscaler.reconcile.records import NodeRecord, Phase, TrackedState

AT_ONCE = 10
"""In each zone, so that one that does not answer takes no place of the others. Half of the calls
that may be sent in a second (`compute.api_client.Limits`): other calls don't wait long for them."""


class Places:
    """Places of probes that may be under way at the same time."""

    def __init__(self, tracked: TrackedState) -> None:
        self._tracked = tracked

    @cached_property
    def _taken(self) -> Counter[str]:
        """Counted when it is needed: most passes probe nothing."""
        return Counter(
            zone for record in self._tracked.nodes.values() for zone in _under_way(record)
        )

    def take(self, zones: Iterable[str]) -> frozenset[str]:
        """Take a place in each zone that has one; return these zones."""
        free = frozenset(zone for zone in zones if self._taken[zone] < AT_ONCE)
        self._taken.update(free)
        return free


def _under_way(record: NodeRecord) -> Iterator[str]:
    if record.phase is Phase.STUCK:
        vm = record.vm
        if vm and vm.pool and vm.probed and vm.report is None:
            yield vm.pool.zone
    elif record.lookup:
        yield from record.lookup.asked - record.lookup.without
