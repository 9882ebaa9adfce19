"""Local SSDs: scratch disks, which are a part of their instance and no separate resources.

https://cloud.google.com/compute/docs/disks/add-local-ssd
"""

from muster.catalog import local_ssds
from muster.catalog.machine_types import machine_types
from muster_sandbox.fakecloud.api_errors import invalid
from muster_sandbox.fakecloud.http import Resource

SIZE_GB = str(local_ssds.GIB)


def named(disk: Resource, before: list[Resource]) -> Resource:
    """A scratch disk of a body with a device name; `before`: the disks attached already."""
    parameters = disk.get("initializeParams", {})
    kind = parameters.get("diskType", "").rpartition("/")[2]
    if kind != "local-ssd" or str(parameters.get("diskSizeGb", SIZE_GB)) != SIZE_GB:
        raise invalid(
            f"Invalid value for field 'resource.disks[{len(before)}]': ''. A scratch disk must "
            f"have the type local-ssd and {SIZE_GB} GB."
        )
    return {"deviceName": f"local-ssd-{count(before)}", **disk}


def count(disks: list[Resource]) -> int:
    """How many of these are scratch disks."""
    return sum(disk["type"] == "SCRATCH" for disk in disks)


def refuse_number(machine_type: str, disks: list[Resource]) -> None:
    """400 for more or fewer than an instance of this machine type may have."""
    shape = machine_types()[machine_type.rpartition("/")[2]]
    number = count(disks)
    if number and number not in shape.numbers_of_local_ssds:
        raise invalid(
            f"Invalid value for field 'resource.disks': '{number}'. The number of local SSDs is "
            f"not supported for the machine type {shape.name}."
        )
