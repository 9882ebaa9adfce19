"""A definition that has passed all checks: the cluster and the hosts it is made of."""

from dataclasses import dataclass, field
from typing import Any

from muster.definition.schema.cluster import Cluster
from muster.definition.schema.node_sets import VirtualMachines

HOST_GROUPS = ("controller", "database", "login", "compute", "storage")
"""The groups that say what runs on a host."""


@dataclass(frozen=True)
class Hosts:
    """The hosts of an inventory by group."""

    groups: dict[str, list[str]]
    """Hosts of each group in the order of the file, those of its child groups included."""
    vars: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Variables of each host that hosts.yml and host_vars/ give it."""


@dataclass(frozen=True)
class Definition:
    """What Muster knows about one cluster."""

    cluster: Cluster
    hosts: Hosts
    """HOST_GROUPS are among its groups, also those that the inventory does not have."""

    def hosts_of(self, node_set: str) -> list[str]:
        """Nodes of a node set: hosts in the order of hosts.yml, VMs by their number."""
        nodes = self.cluster.nodes[node_set]
        if isinstance(nodes, VirtualMachines):
            return [f"{self.cluster.name}-{node_set}-{n}" for n in range(nodes.max_nodes)]
        return self.hosts.groups.get(node_set, [])

    def requirement_files(self) -> list[str]:
        """Files with the packages of Python environments, by their path below the inventory."""
        return list(
            dict.fromkeys(
                data.environment.requirements
                for versions in self.cluster.software.modules.values()
                for data in versions.values()
                if data.environment is not None
            )
        )

    def files(self) -> list[str]:
        """All files below the inventory that the definition names."""
        package = self.cluster.slurmctld_package
        return [*([package] if package else []), *self.requirement_files()]


def cloud_hosts(cluster: Cluster) -> Hosts:
    """Return the hosts of a cluster in the cloud: one controller, and the login nodes.

    VMs of node sets are not among them: no play is run on them.
    """
    assert cluster.cloud is not None  # noqa: S101 - asked only of clusters in the cloud
    controller = f"{cluster.name}-controller"
    login = [f"{cluster.name}-login-{n}" for n in range(cluster.cloud.login.count)]
    groups = {
        "controller": [controller],
        "database": [controller],
        "login": login,
        "compute": [],
        "storage": [controller],
        "all": [controller, *login],
    }
    return Hosts(groups, {host: {} for host in groups["all"]})
