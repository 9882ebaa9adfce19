"""What every project has: the project, regions, zones, types of machines, disks and GPUs.

https://cloud.google.com/compute/docs/reference/rest/v1/machineTypes (and the others)
"""

import zlib
from collections.abc import Callable, Mapping

from muster.catalog.accelerators import KINDS, api_name, most_cpus
from muster.catalog.machine_types import MachineType, machine_types
from muster_sandbox.fakecloud import query
from muster_sandbox.fakecloud.api_errors import not_found
from muster_sandbox.fakecloud.call import Call, handler
from muster_sandbox.fakecloud.http import Resource
from muster_sandbox.fakecloud.operations import LINK
from muster_sandbox.fakecloud.places import REGIONS
from muster_sandbox.fakecloud.services.compute import capacity, resources
from muster_sandbox.fakecloud.services.compute.disks import DISK_TYPES
from muster_sandbox.fakecloud.usage import GLOBAL

CREATED = "1969-12-31T16:00:00.000-08:00"
"""The creation time of all of these, as in the real ones."""


def _id(name: str) -> str:
    """A numeric id that is always the same for a name."""
    return str(1000 + zlib.crc32(name.encode()))


def _base(call: Call, kind: str, place: str, name: str) -> Resource:
    return {
        "kind": f"compute#{kind}",
        "id": _id(name),
        "name": name,
        "creationTimestamp": CREATED,
        "selfLink": f"{LINK}projects/{call.project}/{place}/{name}",
    }


def _list(call: Call, kind: str, place: str, resources: Mapping[str, Resource]) -> Resource:
    names, token = query.page(query.matching(resources, call.query), call.query)
    answer: Resource = {
        "kind": f"compute#{kind}List",
        "id": f"projects/{call.project}/{place}",
        "selfLink": f"{LINK}projects/{call.project}/{place}",
        "items": [resources[name] for name in names],
    }
    return {**answer, "nextPageToken": token} if token else answer


def _one(resources: Mapping[str, Resource], name: str, path: str) -> Resource:
    if name not in resources:
        raise not_found(f"{path}/{name}")
    return resources[name]


def _zones(call: Call) -> dict[str, Resource]:
    return {
        zone: {
            **_base(call, "zone", "zones", zone),
            "description": zone,
            "region": f"{LINK}projects/{call.project}/regions/{region}",
            "status": "UP",
            "availableCpuPlatforms": ["Intel Broadwell", "Intel Cascade Lake", "Intel Skylake"],
        }
        for region, zones in REGIONS.items()
        for zone in zones
    }


@handler("compute.zones.list")
def list_zones(call: Call) -> Resource:
    """All zones."""
    return _list(call, "zone", "zones", _zones(call))


@handler("compute.zones.get")
def get_zone(call: Call) -> Resource:
    """One zone."""
    return _one(_zones(call), call.parameters["zone"], f"projects/{call.project}/zones")


def _regions(call: Call) -> dict[str, Resource]:
    return {
        region: {
            **_base(call, "region", "regions", region),
            "description": region,
            "status": "UP",
            "zones": [f"{LINK}projects/{call.project}/zones/{zone}" for zone in zones],
            "quotas": capacity.listed(call.cloud, region),
        }
        for region, zones in REGIONS.items()
    }


@handler("compute.regions.list")
def list_regions(call: Call) -> Resource:
    """All regions."""
    return _list(call, "region", "regions", _regions(call))


@handler("compute.regions.get")
def get_region(call: Call) -> Resource:
    """One region, with its quotas."""
    return _one(_regions(call), call.parameters["region"], f"projects/{call.project}/regions")


def _machine_type(call: Call, zone: str, name: str, shape: MachineType) -> Resource:
    place = f"zones/{zone}/machineTypes"
    machine_type = {
        **_base(call, "machineType", place, name),
        "description": f"{shape.cpus} vCPUs, {shape.memory_mib} MiB",
        "zone": zone,
        "guestCpus": shape.cpus,
        "memoryMb": shape.memory_mib,
        "isSharedCpu": shape.shared_cpu,
        "maximumPersistentDisks": 128,
        "maximumPersistentDisksSizeGb": "263168",
        "architecture": "X86_64",
    }
    if shape.gpus:
        machine_type["accelerators"] = [
            {
                "guestAcceleratorType": shape.gpu_type,
                "guestAcceleratorCount": shape.gpus,
            }
        ]
    return machine_type


def _machine_types(call: Call, zone: str) -> dict[str, Resource]:
    return {name: _machine_type(call, zone, name, shape) for name, shape in machine_types().items()}


def _disk_types(call: Call, zone: str) -> dict[str, Resource]:
    return {
        name: {
            **_base(call, "diskType", f"zones/{zone}/diskTypes", name),
            "zone": f"{LINK}projects/{call.project}/zones/{zone}",
            "validDiskSize": "10GB-65536GB",
        }
        for name in DISK_TYPES
    }


def _accelerator_types(call: Call, zone: str) -> dict[str, Resource]:
    return {
        api_name(kind): {
            **_base(call, "acceleratorType", f"zones/{zone}/acceleratorTypes", api_name(kind)),
            "description": f"NVIDIA {kind.upper()}",
            "zone": f"{LINK}projects/{call.project}/zones/{zone}",
            "maximumCardsPerInstance": max(most_cpus(kind)),
        }
        for kind in KINDS
    }


def _serve_in_zones(
    collection: str, singular: str, in_zone: Callable[[Call, str], dict[str, Resource]]
) -> None:
    """Register get, list and aggregatedList of types, which every zone has."""

    @handler(f"compute.{collection}.get")
    def get(call: Call) -> Resource:
        place = resources.location(call)
        path = f"projects/{call.project}/{place}/{collection}"
        return _one(in_zone(call, place[6:]), call.parameters[singular], path)

    @handler(f"compute.{collection}.list")
    def list_(call: Call) -> Resource:
        place = resources.location(call)
        return _list(call, singular, f"{place}/{collection}", in_zone(call, place[6:]))

    @handler(f"compute.{collection}.aggregatedList")
    def aggregated_list(call: Call) -> Resource:
        types = {
            f"zones/{zone} {name}": found
            for zones in REGIONS.values()
            for zone in zones
            for name, found in in_zone(call, zone).items()
        }
        keys, token = query.page(query.matching(types, call.query), call.query)
        items: dict[str, dict[str, list[Resource]]] = {}
        for key in keys:
            place = key.partition(" ")[0]
            items.setdefault(place, {collection: []})[collection].append(types[key])
        answer: Resource = {
            "kind": f"compute#{singular}AggregatedList",
            "id": f"projects/{call.project}/aggregated/{collection}",
            "selfLink": f"{LINK}projects/{call.project}/aggregated/{collection}",
            "items": items,
        }
        return {**answer, "nextPageToken": token} if token else answer


_serve_in_zones("machineTypes", "machineType", _machine_types)
_serve_in_zones("diskTypes", "diskType", _disk_types)
_serve_in_zones("acceleratorTypes", "acceleratorType", _accelerator_types)


@handler("compute.projects.get")
def get_project(call: Call) -> Resource:
    """The project, with its default service account."""
    settings = call.cloud.settings
    account = f"{settings.project_number}-compute@developer.gserviceaccount.com"
    return {
        "kind": "compute#project",
        "id": settings.project_number,
        "name": call.project,
        "creationTimestamp": CREATED,
        "selfLink": f"{LINK}projects/{call.project}",
        "defaultServiceAccount": account,
        "defaultNetworkTier": "PREMIUM",
        "xpnProjectStatus": "UNSPECIFIED_XPN_PROJECT_STATUS",
        "commonInstanceMetadata": {"kind": "compute#metadata", "fingerprint": "AAAAAAAAAAA="},
        "quotas": capacity.listed(call.cloud, GLOBAL),
    }
