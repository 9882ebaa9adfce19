"""The definition of a cluster: its schema, its checks, and where it is read from.

Imports neither ansible nor pulumi, so that every part of Muster can use it.
"""

from muster.definition.definition import Definition, Hosts, cloud_hosts
from muster.definition.loading import load, validate
from muster.definition.problems import DefinitionError, Problem
from muster.definition.schema.base import Model
from muster.definition.schema.cluster import PACKAGED_SLURM, Cluster
from muster.definition.schema.gpus import Gpus
from muster.definition.schema.mail import Mail
from muster.definition.schema.node_sets import NodeSet, Partition, Scheduling
from muster.definition.schema.people import Account, Group, Person, Users
from muster.definition.schema.software import Software, SoftwareVersion
from muster.definition.schema.storage import Folder, Storage

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
