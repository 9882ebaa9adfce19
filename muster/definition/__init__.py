"""The definition of a cluster: its schema, its checks, and where it is read from.

Imports neither ansible nor pulumi, so that every part of Muster can use it.
"""

from muster.cluster.base import Model
from muster.cluster.definition import Definition, Hosts, cloud_hosts
from muster.cluster.gpus import Gpus
from muster.cluster.loading import load, validate
from muster.cluster.mail import Mail
from muster.cluster.model import PACKAGED_SLURM, Cluster
from muster.cluster.nodes import NodeSet, Partition, Scheduling
from muster.cluster.people import Account, Group, Person, Users
from muster.cluster.problems import DefinitionError, Problem
from muster.cluster.software import Software, SoftwareVersion
from muster.cluster.storage import Folder, Storage

__all__ = [
    "PACKAGED_SLURM",
    "Account",
    "Cluster",
    "Definition",
    "DefinitionError",
    "Folder",
    "Gpus",
    "Group",
    "Hosts",
    "Mail",
    "Model",
    "NodeSet",
    "Partition",
    "Person",
    "Problem",
    "Scheduling",
    "Software",
    "SoftwareVersion",
    "Storage",
    "Users",
    "cloud_hosts",
    "load",
    "validate",
]
