"""What the controller may do in Google Cloud: make and delete the cluster's own nodes; pure.

pulumi/ grants it, and the tests of resume and suspend have no more.
"""

from collections.abc import Sequence

from muster.cloud.names import Names

# https://cloud.google.com/compute/docs/reference/rest/v1/instances/insert#iam-permissions and
# the pages of the other methods; tests/unit/pulumi/test_rights.py shows that each is needed.
OWN = (
    "compute.disks.create",
    "compute.disks.setLabels",
    "compute.images.useReadOnly",
    "compute.instanceTemplates.useReadOnly",
    "compute.instances.create",
    "compute.instances.delete",
    "compute.instances.get",
    "compute.instances.setLabels",
    "compute.instances.setMetadata",
    "compute.instances.setServiceAccount",
)
"""On what bears the cluster's prefix."""
ANYWHERE = ("compute.instances.list", "compute.zoneOperations.get")
"""A list and an operation have no name that a condition could look at."""
PLACES = ("compute.resourcePolicies.use",)
"""Where nodes are placed compactly. A condition on a placement policy's name would never hold:
https://cloud.google.com/iam/docs/conditions-resource-attributes#resource-name."""
USES = ("compute.subnetworks.use", "iam.serviceAccounts.actAs")
"""On the cluster's subnet and on its nodes' account."""


def own_names(names: Names, zones: Sequence[str]) -> str:
    """A condition that holds for resources whose names begin with the cluster's prefix.

    A region has at most four zones, so that it stays below Google's limit of 12 operators:
    https://cloud.google.com/iam/docs/conditions-overview#expressions
    """
    places = [
        *(f"zones/{zone}/{collection}" for zone in zones for collection in ("instances", "disks")),
        "global/images",
        "global/instanceTemplates",
    ]
    return " || ".join(
        f'resource.name.startsWith("projects/{names.project}/{place}/{names.prefix}")'
        for place in places
    )
