"""The cluster's VMs for the daemon: Google's edge, with what this VM's metadata says."""

from collections.abc import Iterable, Mapping

from muster.autoscaler import metadata, sets
from muster.autoscaler.google import Google
from muster.autoscaler.model import Delete, Insert, Look, Market, NodeSet, Vm
from muster.cloud.quotas import ALL_REGIONS, INSTANCES, cpu_metric
from muster.machinetypes import machine_types


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
        return sets.parse(metadata.read(f"instance/attributes/{sets.ATTRIBUTE}"))

    def vms(self) -> list[Vm]:
        """Return the nodes' VMs.

        Raises:
            CloudError: they can't be listed.

        """
        return self.google.vms()

    def room(self, found: Iterable[NodeSet]) -> dict[Market, int]:
        """Return how many more VMs the quotas allow in each market, if it had them all.

        Raises:
            CloudError: the quotas can't be read.

        """
        markets = {choice.market for node_set in found for choice in node_set.choices}
        left = {
            region: self.google.quotas(region)
            for region in {market.zone.rpartition("-")[0] for market in markets}
        }
        return {market: _room(market, left[market.zone.rpartition("-")[0]]) for market in markets}

    def submit(self, action: Insert | Delete | Look) -> None:
        """Begin to do something."""
        self.google.submit(action)


def _room(market: Market, left: Mapping[str, float]) -> int:
    """How many VMs of a market fit into what is left of each metric."""
    shape = machine_types().get(market.machine_type)
    cpus = shape.cpus if shape else 1
    used = {
        INSTANCES: 1,
        ALL_REGIONS: cpus,
        cpu_metric(market.machine_type, left, spot=market.spot): cpus,
    }
    # A metric that Google doesn't list (new machine series) is not for us to judge.
    return min(int(max(0, left.get(metric, 1e9)) // amount) for metric, amount in used.items())
