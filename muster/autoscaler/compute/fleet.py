"""The cluster's VMs for the daemon: Google's edge, with what this VM's metadata says."""

import time
from collections.abc import Iterable, Mapping

from muster.autoscaler.compute import metadata, node_templates
from muster.autoscaler.compute.driver import Google
from muster.autoscaler.reconcile.model import (
    CapacityPool,
    Delete,
    Insert,
    NodeSet,
    Probe,
    Quotas,
    Vm,
)
from muster.catalog.quotas import ALL_REGIONS, GPUS_ALL_REGIONS, amounts


class Fleet:
    """What `muster.autoscaler.daemon` asks of a cloud."""

    def __init__(self, google: Google) -> None:
        self.google = google

    def sets(self) -> dict[str, NodeSet]:
        """Return the node sets, as they are now: `pulumi up` changes them while we run.

        Raises:
            CloudError: the metadata server does not answer.
            SetsError: the attribute can't be read.

        """
        return node_templates.parse(
            metadata.read(f"instance/attributes/{node_templates.ATTRIBUTE}")
        )

    def vms(self) -> list[Vm]:
        """Return the nodes' VMs.

        Raises:
            CloudError: they can't be listed.

        """
        return self.google.vms()

    def quotas(self, found: Iterable[NodeSet]) -> Quotas:
        """Return what the quotas leave for the pools of node sets.

        Raises:
            CloudError: they can't be read.

        """
        at = time.time()
        pools = {choice.pool for node_set in found for choice in node_set.choices}
        regions = {_region(pool) for pool in pools}
        left = {region: self.google.quotas(region) for region in regions}
        uses = {pool: _uses(pool, left[_region(pool)]) for pool in pools}
        return Quotas(
            {_named(metric, of): each for of in regions for metric, each in left[of].items()},
            uses,
            at,
        )

    def submit(self, action: Insert | Delete | Probe) -> None:
        """Begin to do something."""
        self.google.submit(action)


def _region(pool: CapacityPool) -> str:
    return pool.zone.rpartition("-")[0]


def _named(metric: str, region: str) -> str:
    """Name a quota: that of all regions is one and the same in each."""
    return metric if metric in (ALL_REGIONS, GPUS_ALL_REGIONS) else f"{metric} in {region}"


def _uses(pool: CapacityPool, left: Mapping[str, float]) -> dict[str, float]:
    """What a VM of a pool takes of each quota."""
    used = amounts(pool.machine_type, left, spot=pool.spot, gpus=pool.gpus)
    # A metric that Google doesn't list (new machine series) is not for us to judge.
    return {_named(metric, _region(pool)): of for metric, of in used.items() if metric in left}
