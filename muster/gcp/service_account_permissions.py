"""The permissions of the controller and of people in Google Cloud, as few as possible; pure.

pulumi/ grants them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from muster.catalog.iam_limits import IN_A_CONDITION
from muster.gcp.names import Names

# https://cloud.google.com/compute/docs/reference/rest/v1/instances/insert#iam-permissions and
# the pages of the other methods; tests/unit/pulumi/test_role_bindings.py shows that each is needed.
NODES = (
    "compute.instances.create",
    "compute.instances.delete",
    "compute.instances.get",
    "compute.instances.getGuestAttributes",
    "compute.instances.setLabels",
    "compute.instances.setMetadata",
    "compute.instances.setServiceAccount",
)
"""On the VMs of node sets alone: not on controller, login nodes and builders."""
DISKS = ("compute.disks.create", "compute.disks.setLabels")
"""On the boot disks of the same VMs, which have their names."""
SOURCES = ("compute.images.useReadOnly", "compute.instanceTemplates.useReadOnly")
"""On the cluster's images and templates, to be read."""
LISTS = (
    "compute.instances.list",
    "compute.projects.get",
    "compute.regions.get",
    "compute.zoneOperations.list",
)
"""Lists, operations and quotas have no name that a condition could check.

`compute.projects.get` also shows the project's metadata, but only it has the quotas of all regions
together (CPUS_ALL_REGIONS, GPUS_ALL_REGIONS). Without them a burst of nodes that is larger than
they are would get none: Google refuses all of a bulkInsert that is beyond a quota.
https://cloud.google.com/compute/docs/reference/rest/v1/projects/get,
https://cloud.google.com/compute/docs/troubleshooting/troubleshooting-bulk-vm-creation
"""
PLACES = (
    "compute.regionOperations.list",
    "compute.resourcePolicies.create",
    "compute.resourcePolicies.delete",
    "compute.resourcePolicies.list",
    "compute.resourcePolicies.use",
)
"""Where nodes are placed compactly. A condition on a placement policy's name would never hold:
https://cloud.google.com/iam/docs/conditions-resource-attributes#resource-name."""
USES = ("compute.subnetworks.use", "iam.serviceAccounts.actAs")
"""On the cluster's subnet and on its nodes' account."""

REACHES = ("compute.instances.get", "compute.instances.getGuestAttributes")
"""On the VMs that a person reaches through IAP, besides the tunnel itself.

`gcloud compute start-iap-tunnel` asks for the VM before it connects (StartIapTunnel._FetchInstance
in its sources); the guest attributes have the VM's host keys. `gcloud compute ssh` would ask for
the project too, and then change its metadata, but people's keys don't come from there.
"""


@dataclass(frozen=True, slots=True)
class Role:
    """A role of the controller in the project."""

    purpose: str
    """Part of the role's id."""
    title: str
    permissions: Sequence[str]
    conditions: Sequence[str]
    """The expression of each of its bindings; "" always holds. Without bindings nobody has it."""


def in_project(names: Names, node_sets: Sequence[str], *, places: bool) -> list[Role]:
    """The controller's roles in the project of a cluster with these sets of VMs.

    `places`: whether nodes are placed compactly.
    """
    sets = [names.node_prefix(node_set) for node_set in node_sets]
    sources = begins("images", [names.prefix]), begins("instanceTemplates", [names.prefix])
    return [
        Role("nodes", "makes and deletes nodes", NODES, by_name("instances", sets)),
        Role("disks", "makes the disks of nodes", DISKS, by_name("disks", sets)),
        Role("sources", "makes nodes from images and templates", SOURCES, [" || ".join(sources)]),
        Role(
            "lists",
            "sees instances and operations",
            (*LISTS, *(PLACES if places else ())),
            [""],
        ),
    ]


def by_name(collection: str, prefixes: Sequence[str]) -> list[str]:
    """Conditions that together hold for resources whose names have one of the prefixes.

    As many as Google's limit takes. They stay as they are where a prefix is added at the end.
    """
    return [
        begins(collection, prefixes[first : first + IN_A_CONDITION])
        for first in range(0, len(prefixes), IN_A_CONDITION)
    ]


def begins(collection: str, prefixes: Sequence[str]) -> str:
    """A condition on names, in all zones: a VM in a zone that its set no longer has must go too.

    How a condition compares names in any zone:
    https://cloud.google.com/iam/docs/configuring-resource-based-access
    """
    return " || ".join(
        f'resource.name.extract("/{collection}/{{name}}").startsWith("{prefix}")'
        for prefix in prefixes
    )
