"""Quotas of a region, and the capacity of a zone."""

from collections.abc import Mapping

from muster_sandbox.fakecloud.cloud import Cloud
from muster_sandbox.fakecloud.http import Resource
from muster_sandbox.fakecloud.injected_faults import OperationError
from muster_sandbox.fakecloud.places import region_of
from muster_sandbox.fakecloud.usage import (
    DEFAULT_LIMIT,
    GLOBAL,
    GLOBAL_METRICS,
    METRICS,
    everywhere,
    last,
    needed,
)


def limit(cloud: Cloud, region: str, metric: str) -> float:
    """The limit of a metric."""
    return cloud.settings.quotas.get(region, {}).get(metric, DEFAULT_LIMIT)


def listed(cloud: Cloud, region: str) -> list[Resource]:
    """The quotas of a region (or GLOBAL) as regions.get and projects.get show them."""
    metrics = {
        *(GLOBAL_METRICS if region == GLOBAL else METRICS),
        *cloud.settings.quotas.get(region, {}),
    }
    return [
        {
            "metric": metric,
            "limit": limit(cloud, region, metric),
            "usage": float(cloud.usage.metrics[region, metric]),
        }
        for metric in sorted(metrics)
    ]


def exceeded(cloud: Cloud, region: str, amounts: Mapping[str, int]) -> str | None:
    """Google's sentence for the first metric whose limit would be exceeded."""
    for metric, amount in amounts.items():
        most = limit(cloud, region, metric)
        if cloud.usage.metrics[region, metric] + amount > most:
            where = "globally" if region == GLOBAL else f"in region {region}"
            return f"Quota '{metric}' exceeded.  Limit: {most:.1f} {where}."
    return None


def shortage(cloud: Cloud, instance: Resource) -> OperationError | None:
    """Why an instance that isn't counted yet can't run: no quota, or no capacity in the zone.

    https://cloud.google.com/compute/docs/troubleshooting/troubleshooting-vm-creation
    """
    zone, machine_type = last(instance["zone"]), last(instance["machineType"])
    problem = exceeded(cloud, region_of(zone), {"INSTANCES": 1, **needed(instance)}) or exceeded(
        cloud, GLOBAL, everywhere(instance)
    )
    if problem:
        return OperationError("QUOTA_EXCEEDED", problem, 403, "FORBIDDEN")
    room = cloud.settings.capacity.get((zone, machine_type))
    if room is not None and cloud.usage.running[zone, machine_type] >= room:
        project = instance["selfLink"].split("/projects/")[1].split("/")[0]
        return OperationError(
            "ZONE_RESOURCE_POOL_EXHAUSTED",
            f"The zone 'projects/{project}/zones/{zone}' does not have enough resources available "
            "to fulfill the request.  Try a different zone, or try again later.",
        )
    return None
