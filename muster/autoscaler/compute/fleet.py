"""The daemon's `Cloud`: Compute Engine's driver, and the metadata of this VM."""

from collections.abc import Iterable, Mapping

from muster.autoscaler.clock import Clock
from muster.autoscaler.compute import metadata, node_templates
from muster.autoscaler.compute.driver import Google
from muster.autoscaler.reconcile.model import (
    CapacityPool,
    Delete,
    Insert,
    NodeSet,
    Probe,
    Quotas,
    VmList,
    Withdraw,
)
from muster.catalog.quotas import ALL_REGIONS, GPUS_ALL_REGIONS, amounts


class Fleet:
    """Implements `muster.autoscaler.daemon.Cloud`."""

    def __init__(self, google: Google, *, clock: Clock = Clock()) -> None:
        self.google = google
        self._clock = clock

    def sets(self) -> dict[str, NodeSet]:
        """Return the node sets; read each time, as `pulumi up` may change them.

        Raises:
            CloudError: the metadata server does not answer.
            SetsError: the attribute can't be read.

        """
        return node_templates.parse(
            metadata.read(f"instance/attributes/{node_templates.ATTRIBUTE}")
        )

    def vms(self) -> VmList:
        """Return the nodes' VMs.

        Raises:
            CloudError: they can't be listed.

        """
        return self.google.vms()

    def quotas(self, node_sets: Iterable[NodeSet]) -> Quotas:
        """Return what the quotas leave for the pools of node sets.

        Raises:
            CloudError: they can't be read.

        """
        at = self._clock.monotonic()
        pools = {choice.pool for node_set in node_sets for choice in node_set.choices}
        regions = {_region(pool) for pool in pools}
        read = {region: self.google.region(region) for region in regions}
        uses = {pool: _uses(pool, read[_region(pool)].left) for pool in pools}
        return Quotas(
            {
                _named(metric, region): amount
                for region in regions
                for metric, amount in read[region].left.items()
            },
            uses,
            at,
            frozenset().union(*(region.zones for region in read.values())),
        )

    def submit(self, action: Insert | Delete | Withdraw | Probe) -> None:
        """Start an action."""
        self.google.submit(action)

    def send_deletions_until(self, time: float) -> None:
        """Say until when deletions that wait may be sent."""
        self.google.send_deletions_until(time)


def _region(pool: CapacityPool) -> str:
    return pool.zone.rpartition("-")[0]


def _named(metric: str, region: str) -> str:
    """Name a quota; a global one has no region."""
    return metric if metric in (ALL_REGIONS, GPUS_ALL_REGIONS) else f"{metric} in {region}"


def _uses(pool: CapacityPool, left: Mapping[str, float]) -> dict[str, float]:
    """What a VM of a pool takes of each quota."""
    used = amounts(pool.machine_type, left, spot=pool.spot, gpus=pool.gpus)
    # Google doesn't list the metrics of some new machine series: those count as unlimited.
    region = _region(pool)
    return {_named(metric, region): amount for metric, amount in used.items() if metric in left}
