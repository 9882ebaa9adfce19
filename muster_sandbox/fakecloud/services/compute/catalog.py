"""What every project has: the project itself, regions, zones, types of machines and disks.

https://cloud.google.com/compute/docs/reference/rest/v1/machineTypes (and the others)
"""

import zlib
from collections.abc import Mapping

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


def _machine_types(call: Call) -> dict[str, Resource]:
    zone = resources.location(call).removeprefix("zones/")
    return {name: _machine_type(call, zone, name, shape) for name, shape in machine_types().items()}


@handler("compute.machineTypes.list")
def list_machine_types(call: Call) -> Resource:
    """The machine types of a zone: all, in every zone."""
    place = f"zones/{call.parameters['zone']}/machineTypes"
    return _list(call, "machineType", place, _machine_types(call))


@handler("compute.machineTypes.get")
def get_machine_type(call: Call) -> Resource:
    """One machine type."""
    zone = call.parameters["zone"]
    path = f"projects/{call.project}/zones/{zone}/machineTypes"
    return _one(_machine_types(call), call.parameters["machineType"], path)


def _disk_types(call: Call) -> dict[str, Resource]:
    place = resources.location(call)
    return {
        name: {
            **_base(call, "diskType", f"{place}/diskTypes", name),
            "zone": f"{LINK}projects/{call.project}/{place}",
            "validDiskSize": "10GB-65536GB",
        }
        for name in DISK_TYPES
    }


@handler("compute.diskTypes.list")
def list_disk_types(call: Call) -> Resource:
    """The types of disks in a zone."""
    place = f"zones/{call.parameters['zone']}/diskTypes"
    return _list(call, "diskType", place, _disk_types(call))


@handler("compute.diskTypes.get")
def get_disk_type(call: Call) -> Resource:
    """One type of disks."""
    path = f"projects/{call.project}/zones/{call.parameters['zone']}/diskTypes"
    return _one(_disk_types(call), call.parameters["diskType"], path)


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
