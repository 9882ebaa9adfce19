"""The mapping `cluster` as a whole."""

from typing import Annotated, Any, Literal

from pydantic import Field

from muster.definition.schema import patterns
from muster.definition.schema.base import Model, Scalar, named
from muster.definition.schema.cloud import FOLDER_GIB, STATE, Cloud
from muster.definition.schema.database import Database
from muster.definition.schema.gpus import Nvidia
from muster.definition.schema.limits import Qos
from muster.definition.schema.mail import Mail
from muster.definition.schema.node_sets import Disk, NodeSet, Partition, Scheduling
from muster.definition.schema.patterns import whole
from muster.definition.schema.people import Account, Users
from muster.definition.schema.reservations import Reservation
from muster.definition.schema.software import Software
from muster.definition.schema.storage import Storage

# The SLURM that each distribution packages.
PACKAGED_SLURM = {
    "debian-12": "22.05",
    "debian-13": "24.11",
    "ubuntu-22.04": "21.08",
    "ubuntu-24.04": "23.11",
}


def _packaged_slurm(values: dict[str, Any]) -> str:
    return PACKAGED_SLURM[values["os"]]


class Cluster(Model):
    """One cluster: its machines, its users and its services."""

    name: Annotated[
        str,
        Field(
            description="ClusterName, and prefix of names in the cloud.",
            json_schema_extra={**whole(patterns.CLUSTER_NAME)},
        ),
    ]
    os: Annotated[
        Literal["debian-12", "debian-13", "ubuntu-22.04", "ubuntu-24.04"],
        Field(
            description="Operating system of all hosts; the play stops at one with another. In the "
            "cloud not `ubuntu-22.04`."
        ),
    ]
    slurm_version: Annotated[
        Literal[
            "21.08",
            "22.05",
            "23.02",
            "23.11",
            "24.05",
            "24.11",
            "25.05",
            "25.11",
        ],
        Field(
            default_factory=_packaged_slurm,
            description="SLURM that the hosts run; without it the one that `os` packages "
            "(22.05, 24.11, 21.08, 23.11). In the cloud no other.",
        ),
    ]
    slurmctld_package: Annotated[
        str | None,
        Field(
            description="File below the inventory's folder, made by `make slurmctld-package`, that "
            "the controller runs in place of the archive's slurmctld; null: the archive's."
        ),
    ] = None
    users: Annotated[Users, Field(description="Who may use the cluster.")] = Users()
    nodes: Annotated[
        dict[str, NodeSet],
        Field(
            description="Node sets by name: machines, which are the group of that name in "
            "hosts.yml, or VMs.",
            examples=[{"cpu": {"sockets": 2, "cores_per_socket": 12, "memory_mib": 122880}}],
            json_schema_extra=named(patterns.NODE_SET_NAME),
        ),
    ]
    partitions: Annotated[
        dict[str, Partition],
        Field(description="Partitions by name.", json_schema_extra=named(patterns.PARTITION_NAME)),
    ]
    cloud: Annotated[
        Cloud | None,
        Field(description="Google Cloud; null: machines of your own, named in hosts.yml."),
    ] = None
    scheduling: Annotated[
        Scheduling, Field(description="What SLURM allocates to jobs, and how fast.")
    ] = Scheduling()
    nvidia: Annotated[
        Nvidia | None,
        Field(
            description="NVIDIA's driver on nodes with GPUs, `{}` for the recommended one; null: "
            "Muster leaves drivers alone.",
            examples=[{}],
        ),
    ] = None
    database: Annotated[
        Database | None,
        Field(
            description="A MariaDB or MySQL server that you have, for slurmdbd; null: Muster "
            "installs MariaDB on the host in the group `database`, beside slurmdbd.",
            examples=[{"host": "db.example.org"}],
        ),
    ] = None
    accounts: Annotated[
        dict[str, Account],
        Field(
            description="Accounts of SLURM by name.",
            json_schema_extra=named(patterns.ACCOUNT_NAME),
        ),
    ] = {}
    qos: Annotated[
        dict[str, Qos],
        Field(
            description="QoS by name: kinds of jobs, each with a priority and limits. SLURM has "
            "`normal` itself; an entry of that name changes it.",
            json_schema_extra=named(patterns.QOS_NAME),
        ),
    ] = {}
    reservations: Annotated[
        dict[str, Reservation],
        Field(
            description="Reservations by name: nodes for a class, a deadline or maintenance.",
            json_schema_extra=named(patterns.RESERVATION_NAME),
        ),
    ] = {}
    storage: Annotated[Storage, Field(description="Shared folders.")] = Storage()
    software: Annotated[Software, Field(description="The module tree.")] = Software()
    mail: Annotated[Mail | None, Field(description="Mail about jobs; null: SLURM sends none.")] = (
        None
    )
    cgroup: Annotated[
        dict[str, Scalar],
        Field(
            description="Parameters of cgroup.conf for which Muster has no key.",
            examples=[{"AllowedSwapSpace": 0}],
        ),
    ] = {}
    slurm: Annotated[
        dict[str, Scalar],
        Field(
            description="Parameters of slurm.conf for which Muster has no key.",
            examples=[{"MessageTimeout": 60}],
        ),
    ] = {}

    def disks(self) -> dict[str, Disk]:
        """Return the disks of a cluster in the cloud that outlive its VMs, by what they hold.

        `state`, and each folder that the controller serves by its key.
        """
        if self.cloud is None:
            return {}
        state = self.cloud.controller.state_disk
        folders = {
            key: state.model_copy(update={"size_gib": folder.size_gib or FOLDER_GIB})
            for key, folder in self.storage.served().items()
        }
        return {STATE: state, **folders}
