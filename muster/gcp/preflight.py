"""What a project must have for a new cluster; checked before anything is created."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from muster.catalog import local_ssds, quotas
from muster.definition.schema.cloud import Cloud
from muster.definition.schema.cluster import Cluster
from muster.definition.schema.node_sets import Disk, VirtualMachines, Way
from muster.gcp import names
from muster.gcp.api import NOT_FOUND, CloudError, Compute, Service
from muster.gcp.builder_vm import DISK

SERVICES = (
    "cloudresourcemanager.googleapis.com",
    "compute.googleapis.com",
    "iam.googleapis.com",
    "iap.googleapis.com",
    "secretmanager.googleapis.com",
    "storage.googleapis.com",
)
"""The APIs whose resources pulumi/ makes."""

_DISK_METRICS = {
    "pd-standard": "DISKS_TOTAL_GB",
    "pd-balanced": "SSD_TOTAL_GB",
    "pd-ssd": "SSD_TOTAL_GB",
}


def problems(compute: Compute, cluster: Cluster) -> list[str]:
    """Return what prevents the creation of this cluster, one sentence with a remedy each."""
    assert cluster.cloud is not None  # noqa: S101 - called only for clusters in the cloud
    try:
        disabled = _disabled(compute)
        if disabled:
            return [disabled]
        project = compute.get("")
        region = compute.get(f"regions/{cluster.cloud.region}")
        disks = compute.everywhere("disks", filter=names.of_role(names.STATE))
        network = names.Names(cluster.name, compute.project).network
        subnets = compute.everywhere("subnetworks", filter=f"name = {network}")
    except CloudError as error:
        return [_explained(compute.project, error)]
    limits = {
        quota["metric"]: float(quota["limit"])
        for quota in [*project.get("quotas", []), *region.get("quotas", [])]
        if quotas.counts(quota["metric"], quota["limit"])
    }
    small = _too_small(compute.project, cluster.cloud, limits, needs(cluster, limits))
    # Each cluster has a state disk, which is among its first resources.
    states = {disk["labels"].get(names.CLUSTER_LABEL): disk["labels"] for disk in disks}
    neighbours = _neighbours(compute.project, cluster.name, [name for name in states if name])
    return [
        *neighbours,
        *_upgrade(cluster, states.get(cluster.name, {})),
        *_moved(cluster.name, cluster.cloud.subnet, subnets),
        *small,
    ]


def _upgrade(cluster: Cluster, state: dict[str, str]) -> Iterator[str]:
    """A sentence if the state disk holds the state of another release of SLURM."""
    wanted = names.slurm_label(cluster.slurm_version)
    held = state.get(names.SLURM_LABEL, wanted)
    if held != wanted:
        yield (
            f"the cluster {cluster.name} runs SLURM {held.replace('-', '.')}, and the definition "
            f"asks for {cluster.slurm_version}: SLURM is not upgraded in place; set os and "
            "slurm_version back, or make a cluster of another cluster.name and move"
        )


def _moved(cluster: str, wanted: str, subnets: Iterable[dict[str, Any]]) -> Iterator[str]:
    """A sentence if the definition has another range of addresses than the existing VMs.

    `pulumi up` would delete the controller, and then fail to delete the subnet, which has nodes.
    """
    for held in (subnet["ipCidrRange"] for subnet in subnets):
        if held != wanted:
            yield (
                f"the VMs of the cluster {cluster} have addresses in {held}, and the definition "
                f"says {wanted}: set cloud.subnet back, or make a cluster of another cluster.name "
                "and move"
            )


def _neighbours(project: str, cluster: str, others: Iterable[str]) -> Iterator[str]:
    """A sentence about each cluster of the project that shares a prefix with this one."""
    for other in sorted(others):
        if names.share_a_prefix(cluster, other):
            short, long = sorted((cluster, other), key=len)
            yield (
                f'the project {project} has a cluster "{other}", and a node set of "{short}" can '
                f'have a name with which its controller may delete the VMs of "{long}" too: '
                f"take another cluster.name than {cluster}, or another project"
            )


def _disabled(compute: Compute) -> str:
    """A sentence about the APIs that aren't enabled; "" where all are."""
    # https://cloud.google.com/service-usage/docs/reference/rest/v1/services/list
    usage = Service("SERVICE_USAGE", compute.service.session)
    enabled: set[str] = set()
    query = {"filter": "state:ENABLED", "pageSize": 200}
    while True:
        page = usage.call("GET", f"projects/{compute.project}/services", **query)
        enabled |= {service["name"].rpartition("/")[2] for service in page.get("services", [])}
        if not page.get("nextPageToken"):
            break
        query["pageToken"] = page["nextPageToken"]
    off = sorted(set(SERVICES) - enabled)
    if not off:
        return ""
    return (
        f"the project {compute.project} has not enabled {', '.join(off)}: "
        f"`gcloud services enable {' '.join(off)} --project {compute.project}`"
    )


def _explained(project: str, error: CloudError) -> str:
    """A refusal of the first calls with its likely cause."""
    if error.reason in ("accessNotConfigured", "SERVICE_DISABLED"):
        return (
            f"the project {project} has not enabled an API ({error}): `gcloud services enable "
            f"serviceusage.googleapis.com {' '.join(SERVICES)} --project {project}`"
        )
    if error.status in (403, NOT_FOUND):
        return (
            f"the project {project} is not there, or you have no rights in it ({error}): "
            "`pulumi config set gcp:project PROJECT`, or ask its owner for the rights "
            "that docs/cloud.md lists; rights that you got just now are in force some minutes later"
        )
    return str(error)


def needs(cluster: Cluster, limits: dict[str, float]) -> Counter[str]:
    """Return what the cluster uses at most, by metric of Google's quotas."""
    cloud = cluster.cloud
    assert cloud is not None  # noqa: S101 - see problems
    total: Counter[str] = Counter()

    def add(way: Way, disk: Disk, count: int) -> None:
        amounts = quotas.amounts(way.machine_type, limits, spot=way.spot, gpus=way.gpus)
        for metric, amount in amounts.items():
            total[metric] += amount * count
        if disk.type in _DISK_METRICS:
            total[_DISK_METRICS[disk.type]] += disk.size_gib * count

    add(Way(cloud.controller.machine_type, spot=False), cloud.controller.disk, 1)
    for disk in cluster.disks().values():
        if disk.type in _DISK_METRICS:
            total[_DISK_METRICS[disk.type]] += disk.size_gib
    add(Way(cloud.login.machine_type, spot=False), cloud.login.disk, cloud.login.count)
    if cloud.login.public_address:
        total["IN_USE_ADDRESSES"] += cloud.login.count
    for nodes in cluster.nodes.values():
        if isinstance(nodes, VirtualMachines):
            add(nodes.ways[0], nodes.disk, nodes.max_nodes)
            if nodes.local_ssds:
                metric = quotas.local_ssd_metric(limits, spot=nodes.spot)
                total[metric] += nodes.local_ssds * local_ssds.GIB * nodes.max_nodes
    # The VM that builds an image: nodes keep running meanwhile.
    add(Way(cloud.image.machine_type, spot=False), DISK, 1)
    return total


def _too_small(
    project: str, cloud: Cloud, limits: dict[str, float], wanted: Counter[str]
) -> Iterator[str]:
    for metric, amount in sorted(wanted.items()):
        # A metric that Google doesn't list (new machine families) can't be checked.
        if amount > limits.get(metric, amount):
            everywhere = metric in (quotas.ALL_REGIONS, quotas.GPUS_ALL_REGIONS)
            where = "in all regions" if everywhere else f"in {cloud.region}"
            yield (
                f"the project's quota {metric} is {limits[metric]:.0f} {where}, and the "
                f"definition's maximum needs {amount}: lower max_nodes, or ask for more at "
                f"https://console.cloud.google.com/iam-admin/quotas?project={project}"
            )
