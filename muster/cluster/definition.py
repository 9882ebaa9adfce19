"""A definition that has passed all checks: the cluster and the hosts it is made of."""

from dataclasses import dataclass, field
from typing import Any

from muster.cluster.model import Cluster


@dataclass(frozen=True)
class Hosts:
    """The hosts of an inventory by group."""

    groups: dict[str, list[str]]
    """Hosts of each group in the order of the file, those of its child groups included."""
    vars: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Variables of each host that hosts.yml and host_vars/ give it."""


@dataclass(frozen=True)
class Definition:
    """What Muster knows of one cluster."""

    cluster: Cluster
    hosts: Hosts

    def hosts_of(self, node_set: str) -> list[str]:
        """Hosts of a node set, in the order of hosts.yml."""
        return self.hosts.groups.get(node_set, [])
