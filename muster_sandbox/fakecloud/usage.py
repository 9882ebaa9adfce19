"""Counts usage: quotas by region, capacity by zone and machine type, addresses by subnet.

It counts as resources change, since an insert can't recount 10,000 instances.
"""

from collections import Counter
from ipaddress import IPv4Network

from muster.catalog import accelerators, local_ssds
from muster.catalog.machine_types import MachineType
from muster.catalog.quotas import GPU_METRICS, LOCAL_SSDS, SPOT_LOCAL_SSDS
from muster_sandbox.fakecloud.http import Resource
from muster_sandbox.fakecloud.places import region_of
from muster_sandbox.fakecloud.store import Store

DEFAULT_LIMIT = 100_000.0
"""The limit of every metric that the settings don't name."""

# https://cloud.google.com/compute/resource-usage: families that don't count as CPUS.
FAMILY_CPUS = {
    "n2": "N2_CPUS",
    "n2d": "N2D_CPUS",
    "t2d": "T2D_CPUS",
    "c2": "C2_CPUS",
    "c2d": "C2D_CPUS",
    "c3": "C3_CPUS",
    "a2": "A2_CPUS",
}
DISK_METRICS = {"pd-ssd": "SSD_TOTAL_GB", "pd-balanced": "SSD_TOTAL_GB"}
GLOBAL = "global"
"""Used instead of a region: the quotas of a project in all regions together."""
GLOBAL_METRICS = ("CPUS_ALL_REGIONS", "GPUS_ALL_REGIONS")
METRICS = (
    "CPUS",
    "PREEMPTIBLE_CPUS",
    *FAMILY_CPUS.values(),
    *GPU_METRICS.values(),
    *(f"PREEMPTIBLE_{metric}" for metric in GPU_METRICS.values()),
    "INSTANCES",
    "DISKS_TOTAL_GB",
    "SSD_TOTAL_GB",
    LOCAL_SSDS,
    SPOT_LOCAL_SSDS,
    "IN_USE_ADDRESSES",
    "STATIC_ADDRESSES",
)
# A stopped instance uses no CPUs: https://cloud.google.com/compute/docs/instances/stop-start-instance
OFF = frozenset({"TERMINATED", "SUSPENDED"})


class Usage:
    """Counters that follow the store."""

    def __init__(self, store: Store) -> None:
        self.metrics: Counter[tuple[str, str]] = Counter()
        """(region, metric) -> how much; projects other than the user's have nothing."""
        self.running: Counter[tuple[str, str]] = Counter()
        """(zone, machine type) -> instances that are not off."""
        self.addresses: dict[str, dict[str, str]] = {}
        """Link of a subnet, or "external" -> IPv4 address -> link of the instance that has it."""
        self._next: Counter[str] = Counter()
        for collection in ("instances", "disks", "addresses"):
            for _, _, resource in store.all(f"compute.{collection}"):
                self.change(collection, None, resource)

    def change(self, collection: str, old: Resource | None, new: Resource | None) -> None:
        """A resource was made, changed or removed."""
        count = {
            "instances": self._instance,
            "disks": self._disk,
            "addresses": self._address,
        }.get(collection)
        if count:
            for resource, sign in ((old, -1), (new, 1)):
                if resource is not None:
                    count(resource, sign)

    def _instance(self, instance: Resource, sign: int) -> None:
        zone = last(instance["zone"])
        region, machine_type = region_of(zone), last(instance["machineType"])
        self.metrics[region, "INSTANCES"] += sign
        if instance["status"] not in OFF:
            self.running[zone, machine_type] += sign
            for metric, amount in needed(instance).items():
                self.metrics[region, metric] += sign * amount
            for metric, amount in everywhere(instance).items():
                self.metrics[GLOBAL, metric] += sign * amount
        for interface in instance["networkInterfaces"]:
            self._take(interface["subnetwork"], interface["networkIP"], instance, sign)
            for access in interface.get("accessConfigs", []):
                if access.get("natIP"):
                    self._take("external", access["natIP"], instance, sign)
                    self.metrics[region, "IN_USE_ADDRESSES"] += sign

    def _take(self, where: str, address: str, instance: Resource, sign: int) -> None:
        used = self.addresses.setdefault(where, {})
        if sign > 0:
            used[address] = instance["selfLink"]
        else:
            del used[address]

    def _disk(self, disk: Resource, sign: int) -> None:
        metric = DISK_METRICS.get(last(disk["type"]), "DISKS_TOTAL_GB")
        self.metrics[region_of(last(disk["zone"])), metric] += sign * int(disk["sizeGb"])

    def _address(self, address: Resource, sign: int) -> None:
        if "region" in address:
            self.metrics[last(address["region"]), "STATIC_ADDRESSES"] += sign

    def free_address(
        self, where: str, network: IPv4Network, reserved: frozenset[str]
    ) -> str | None:
        """The next free address of a subnet, or None.

        The first (network), second (gateway) and last two are not for machines:
        https://cloud.google.com/vpc/docs/subnets#unusable-ip-addresses-in-every-subnet
        """
        used = self.addresses.get(where, {})
        size = network.num_addresses - 4
        for _ in range(size):
            offset = self._next[where] % size
            self._next[where] += 1
            address = str(network[2 + offset])
            if address not in used and address not in reserved:
                return address
        return None


def shape_of(instance: Resource) -> MachineType | None:
    """An instance's machine type, with the GPUs that are attached to it."""
    gpus = [
        accelerators.of_api(accelerator["acceleratorType"], accelerator["acceleratorCount"])
        for accelerator in instance.get("guestAccelerators", [])
    ]
    return accelerators.machine(last(instance["machineType"]), *gpus[:1])


def needed(instance: Resource) -> dict[str, int]:
    """The quota that a running instance needs for processors, GPUs and local SSDs, by metric."""
    shape = shape_of(instance)
    if shape is None:
        return {}
    spot = instance.get("scheduling", {}).get("preemptible", False)
    metric = "PREEMPTIBLE_CPUS" if spot else FAMILY_CPUS.get(shape.series, "CPUS")
    amounts = {metric: shape.cpus}
    if gpus := GPU_METRICS.get(shape.gpu_type):
        amounts[f"PREEMPTIBLE_{gpus}" if spot else gpus] = shape.gpus
    ssds = sum(disk["type"] == "SCRATCH" for disk in instance["disks"])
    if ssds:
        amounts[SPOT_LOCAL_SSDS if spot else LOCAL_SSDS] = ssds * local_ssds.GIB
    return amounts


def everywhere(instance: Resource) -> dict[str, int]:
    """What a running instance counts in all regions together, whatever its family."""
    shape = shape_of(instance)
    if shape is None:
        return {}
    return {"CPUS_ALL_REGIONS": shape.cpus, "GPUS_ALL_REGIONS": shape.gpus}


def last(link: str) -> str:
    """The name at the end of a link."""
    return link.rpartition("/")[2]
