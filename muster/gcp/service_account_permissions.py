"""The permissions of the controller and of people in Google Cloud, as few as possible; pure.

pulumi/ grants them, and the tests of the autoscaler have no others.
"""

from muster.gcp.names import Names

# https://cloud.google.com/compute/docs/reference/rest/v1/instances/insert#iam-permissions and
# the pages of the other methods; tests/unit/pulumi/test_role_bindings.py shows that each is needed.
OWN = (
    "compute.disks.create",
    "compute.disks.setLabels",
    "compute.images.useReadOnly",
    "compute.instanceTemplates.useReadOnly",
    "compute.instances.create",
    "compute.instances.delete",
    "compute.instances.get",
    "compute.instances.getGuestAttributes",
    "compute.instances.setLabels",
    "compute.instances.setMetadata",
    "compute.instances.setServiceAccount",
)
"""On resources whose names have the cluster's prefix."""
ANYWHERE = (
    "compute.instances.list",
    "compute.projects.get",
    "compute.regions.get",
    "compute.zoneOperations.list",
)
"""Lists, operations and quotas have no name that a condition could check."""
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


def own_names(names: Names) -> str:
    """A condition that holds for resources whose names begin with the cluster's prefix.

    In all zones: a VM in a zone that no node set has any more must be deleted too. How a condition
    compares names in any zone:
    https://cloud.google.com/iam/docs/configuring-resource-based-access
    """
    return " || ".join(
        f'resource.name.extract("/{collection}/{{name}}").startsWith("{names.prefix}")'
        for collection in ("instances", "disks", "images", "instanceTemplates")
    )
