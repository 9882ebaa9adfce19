"""Names of a cluster's resources in Google Cloud; pure.

All begin with the cluster's name and a hyphen, or are the cluster's name. Rights are bound to such
beginnings. Google's limits: 63 small letters, digits and hyphens (most resources, buckets), 30 for
service accounts, 64 letters, digits, underscores and dots for custom roles. A cluster's name has
at most 19 characters and a node set's 30, so that `<cluster>-<set>-<n>` and
`<cluster>-controller` fit.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

CLUSTER_LABEL = "muster-cluster"
ROLE_LABEL = "muster-role"
NODE_SET_LABEL = "muster-node-set"
SLURM_LABEL = "muster-slurm"
"""On the state disk: the release of SLURM whose state it holds, such as `22-05`."""

CONTROLLER, LOGIN, NODE, BUILDER, STATE, FOLDER, IMAGE = (
    "controller",
    "login",
    "node",
    "builder",
    "state",
    "folder",
    "image",
)
"""Values of the label `muster-role`."""

# The provider appends 26 digits to a prefix of at most 37 characters.
# https://registry.terraform.io/providers/hashicorp/google/latest/docs/resources/compute_instance_template
_TEMPLATE_PREFIX = 37


@dataclass(frozen=True)
class Names:
    """The names of one cluster in one project."""

    cluster: str
    project: str

    @property
    def prefix(self) -> str:
        """The prefix of resource names."""
        return f"{self.cluster}-"

    def node_prefix(self, node_set: str) -> str:
        """The prefix of the names of a set's nodes, `<cluster>-<set>-<n>`, and of their disks.

        No other VM's name has it: `muster check` refuses sets called controller, login or builder.
        """
        return f"{self.prefix}{node_set}-"

    @property
    def network(self) -> str:
        """The network, its subnet, router and NAT, each a kind of its own."""
        return self.cluster

    def firewall(self, purpose: str) -> str:
        """A firewall rule."""
        return f"{self.cluster}-{purpose}"

    @property
    def controller(self) -> str:
        """The controller's VM; its service account and address have the same name."""
        return f"{self.cluster}-controller"

    def disk(self, key: str) -> str:
        """A disk that outlives the controller's VM: `state`, or the key of a folder."""
        return f"{self.cluster}-{key}"

    @property
    def snapshots(self) -> str:
        """The schedule of the snapshots of these disks."""
        return f"{self.cluster}-snapshots"

    def login(self, number: int) -> str:
        """A login VM, from 0."""
        return f"{self.cluster}-login-{number}"

    def account(self, role: str) -> str:
        """Account id of the service account of a role."""
        return f"{self.cluster}-{role}"

    def custom_role(self, purpose: str, suffix: str) -> str:
        """Id of a custom role. A deleted one's id stays taken for 37 days, hence the suffix.

        https://cloud.google.com/iam/docs/creating-custom-roles#deleting-custom-role
        """
        return f"{self.cluster.replace('-', '_')}_{purpose}_{suffix}"

    @property
    def bucket(self) -> str:
        """The bucket, whose name all of Google Cloud shares: a project's id is unique there."""
        # `example.com:project`, as older organizations have.
        return f"{self.project.replace(':', '-').replace('.', '-')}-{self.cluster}-muster"

    @property
    def munge_key(self) -> str:
        """The secret with the munge key."""
        return f"{self.cluster}-munge-key"

    @property
    def slurmdbd_password(self) -> str:
        """The secret with the database's password."""
        return f"{self.cluster}-slurmdbd-password"

    @property
    def mail_password(self) -> str:
        """The secret with the password of the mail relay."""
        return f"{self.cluster}-mail-password"

    def builder(self, digest: str) -> str:
        """The VM that builds the image of a digest."""
        return f"{self.cluster}-builder-{digest[:8]}"

    def image(self, digest: str, distinction: str) -> str:
        """An image; it begins with its family.

        Otherwise Google's provider sees a change at each `pulumi up` where a disk is made from the
        family. `distinction` makes the name unique: an old name must not be used again.
        """
        return f"{self.image_family}-{digest[:12]}-{distinction}"

    @property
    def image_family(self) -> str:
        """The family of the cluster's images."""
        return self.cluster

    def template_prefix(self, node_set: str) -> str:
        """The prefix of the names of a node set's templates, shortened if it is too long."""
        whole = self.node_prefix(node_set)
        if len(whole) <= _TEMPLATE_PREFIX:
            return whole
        digest = hashlib.sha256(node_set.encode()).hexdigest()[:6]
        room = _TEMPLATE_PREFIX - len(f"{self.cluster}--{digest}-")
        return f"{self.cluster}-{node_set[:room].rstrip('-')}-{digest}-"

    def labels(self, role: str, **more: str) -> dict[str, str]:
        """The labels of a VM, disk or image: by them it is found, swept and billed."""
        return {CLUSTER_LABEL: self.cluster, ROLE_LABEL: role, **more}


def slurm_label(version: str) -> str:
    """A release of SLURM as a label, which can't have the dot.

    https://cloud.google.com/compute/docs/labeling-resources#requirements
    """
    return version.replace(".", "-")


def share_a_prefix(one: str, other: str) -> bool:
    """Whether the names of one cluster's resources can begin as those of the other's.

    Then the rights of one may reach the other's VMs: `lab` with a node set `gpu`, and `lab-gpu`.
    """
    first, second = sorted((f"{one}-", f"{other}-"), key=len)
    return one != other and second.startswith(first)


def of_cluster(cluster: str, role: str = "") -> str:
    """The filter of a list that finds what has a cluster's label, and a role's if one is given.

    https://cloud.google.com/compute/docs/reference/rest/v1/instances/list#body.QUERY_PARAMETERS.filter
    """
    condition = f"labels.{CLUSTER_LABEL}={cluster}"
    return f"{condition} AND {of_role(role)}" if role else condition


def is_node_of(cluster: str, labels: Mapping[str, str]) -> bool:
    """Whether a VM with these labels is a node of a cluster, as `of_cluster(cluster, NODE)`."""
    return (labels.get(CLUSTER_LABEL), labels.get(ROLE_LABEL)) == (cluster, NODE)


def of_role(role: str) -> str:
    """The same for what has a role in any cluster."""
    return f"labels.{ROLE_LABEL}={role}"


def of_node_set(cluster: str, node_set: str) -> str:
    """The same for the nodes of one set of a cluster."""
    return f"{of_cluster(cluster, NODE)} AND labels.{NODE_SET_LABEL}={node_set}"


def job_placement(cluster: str, job: int) -> str:
    """The placement policy of one job's nodes."""
    return f"{cluster}-job{job}"


def of_jobs(cluster: str) -> str:
    """The filter of a list that finds the placement policies of a cluster's jobs.

    They can have no labels:
    https://cloud.google.com/compute/docs/reference/rest/v1/resourcePolicies#ResourcePolicy
    """
    return f"name eq {cluster}-job[0-9]+"
