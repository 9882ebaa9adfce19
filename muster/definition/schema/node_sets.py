"""Node sets (what a compute node has) and partitions (who may use it, for how long)."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from muster.catalog import accelerators
from muster.catalog.machine_types import MachineType
from muster.definition.schema.base import Mebibytes, Model, SlurmTime
from muster.definition.schema.gpus import Gpus

# slurm.h: from NO_VAL and NO_VAL16 on numbers mean "not given" and "unlimited". Hardware is counted
# in 16 bits, weights and seconds in 32 (slurm_conf_node_t in src/common/read_config.h).
MOST_16_BITS = 2**16 - 3
MOST_32_BITS = 2**32 - 3


class _NodeSet(Model):
    """What node sets of both kinds have."""

    reserved_memory_mib: Annotated[
        Mebibytes,
        Field(ge=0, description="Part of the memory that jobs don't get (`MemSpecLimit`)."),
    ] = 0
    features: Annotated[
        list[str],
        Field(description="Features that jobs may ask for (`--constraint=`), such as `rtx4080`."),
    ] = []
    weight: Annotated[
        int,
        Field(
            ge=1,
            le=MOST_32_BITS,
            description="Nodes of lower weight are given to jobs first.",
        ),
    ] = 1


class Machines(_NodeSet):
    """Existing compute nodes; the hosts are the group of the same name in hosts.yml."""

    sockets: Annotated[
        int, Field(ge=1, le=MOST_16_BITS, description="Processor sockets of one node.")
    ]
    cores_per_socket: Annotated[
        int, Field(ge=1, le=MOST_16_BITS, description="Cores of one socket.")
    ]
    threads_per_core: Annotated[
        int,
        Field(
            ge=1,
            le=MOST_16_BITS,
            description="Hardware threads of one core; SLURM counts each as a CPU.",
        ),
    ] = 1
    memory_mib: Annotated[
        Mebibytes,
        Field(ge=1, description="Memory of one node as `slurmd -C` says (`RealMemory`)."),
    ]
    gpus: Annotated[
        Gpus | None,
        Field(
            description="GPUs of one node; null: none.",
            examples=[{"count": 4, "type": "rtx4080"}],
        ),
    ] = None

    @property
    def cpus(self) -> int:
        """CPUs of one node as SLURM counts them: hardware threads."""
        return self.sockets * self.cores_per_socket * self.threads_per_core


LEAST_DISK_GIB = 10
"""https://cloud.google.com/compute/docs/disks#disk-types"""


class Disk(Model):
    """A disk of a VM."""

    size_gib: Annotated[
        int,
        Field(
            ge=LEAST_DISK_GIB,
            le=65536,
            json_schema_extra={"x-unit": "GiB"},
            description="Its size.",
        ),
    ] = 20
    type: Annotated[
        Literal["pd-standard", "pd-balanced", "pd-ssd", "hyperdisk-balanced"],
        Field(description="Its type; not every machine type takes each."),
    ] = "pd-balanced"


class Accelerators(Model):
    """GPUs that are attached to a VM."""

    type: Annotated[
        accelerators.Kind,
        Field(description="Their type, by which jobs ask (`--gres=gpu:t4:1`)."),
    ]
    count: Annotated[int, Field(ge=1, description="GPUs of one node.")]


class Fallback(Model):
    """Another way to make a node when a zone has no capacity; keys left out stay the same."""

    machine_type: Annotated[
        str | None,
        Field(description="Machine type with as many CPUs; null: that of the node set."),
    ] = None
    spot: Annotated[
        bool | None, Field(description="Spot VMs or not; null: as the node set says.")
    ] = None


@dataclass(frozen=True)
class Way:
    """A way to make a node: a machine type, as a spot VM or not."""

    machine_type: str
    spot: bool
    gpus: str = ""
    """GPUs that are attached to it, such as `t4:2`, without those of the machine type."""

    @property
    def shape(self) -> MachineType | None:
        """What such a node has; None if the machine type is unknown, which a check refuses."""
        return accelerators.machine(self.machine_type, self.gpus)


class VirtualMachines(_NodeSet):
    """Compute nodes in the cloud, called `<cluster>-<set>-<n>`: VMs that exist while jobs run."""

    machine_type: Annotated[
        str, Field(description="Machine type of Google Compute Engine, such as n1-standard-2.")
    ]
    max_nodes: Annotated[
        int,
        # Ids of nodes and quotas; one bulkInsert makes 5,000.
        Field(ge=1, le=5000, description="How many there are at most."),
    ]
    zones: Annotated[
        list[str],
        Field(description="Zones in which they may be made, in this order; empty: `cloud.zone`."),
    ] = []
    idle_seconds: Annotated[
        int,
        Field(
            ge=60,
            le=MOST_32_BITS,
            json_schema_extra={"x-unit": "s"},
            description="How long a node without a job is kept (`SuspendTime`); equal for the node "
            "sets of a partition.",
        ),
    ] = 300
    spot: Annotated[
        bool,
        Field(description="Spot VMs: cheaper, and Google may take them back at any time."),
    ] = False
    fallback: Annotated[
        list[Fallback],
        Field(
            description="Other ways to make a node, tried in this order in all zones where the "
            "first one finds no capacity, such as `[{spot: false}]`."
        ),
    ] = []
    accelerators: Annotated[
        Accelerators | None,
        Field(
            description="GPUs to attach to each node, for machine types of N1, such as "
            "`{type: t4, count: 1}`; null: those that the machine type has."
        ),
    ] = None
    compact: Annotated[
        bool,
        Field(description="A compact placement policy: nodes of one job are near each other."),
    ] = False
    disk: Annotated[Disk, Field(description="Boot disk of one node.")] = Disk()
    local_ssds: Annotated[
        int,
        Field(
            ge=0,
            description="Local SSDs of one node, 375 GiB each, on which it caches what it reads of "
            "`cached` folders; Google's documentation has the numbers that a machine type takes.",
        ),
    ] = 0
    labels: Annotated[
        dict[str, str],
        Field(
            description="Labels of the VMs, for your own bills and filters.",
            examples=[{"team": "vision"}],
        ),
    ] = {}

    @property
    def shape(self) -> MachineType | None:
        """What a node has; None if the machine type is unknown, which a check refuses."""
        return self.ways[0].shape

    @property
    def sockets(self) -> int:
        """Sockets of one node in slurm.conf: one, because VMs don't show the real ones."""
        return 1

    @property
    def threads_per_core(self) -> int:
        """Hardware threads of one core."""
        return self.shape.threads_per_core if self.shape else 1

    @property
    def cores_per_socket(self) -> int:
        """Cores of one node."""
        return self.cpus // self.threads_per_core

    @property
    def cpus(self) -> int:
        """CPUs of one node: hardware threads."""
        return self.shape.cpus if self.shape else 1

    @property
    def ways(self) -> list[Way]:
        """The ways to make a node, the first one first."""
        return [self._way(fallback) for fallback in (Fallback(), *self.fallback)]

    def _way(self, given: Fallback) -> Way:
        """A way with the GPUs to attach, if the machine type takes any."""
        machine_type = given.machine_type or self.machine_type
        spot = self.spot if given.spot is None else given.spot
        shape = accelerators.machine(machine_type)
        if self.accelerators is None or shape is None or not accelerators.taken_by(shape):
            return Way(machine_type, spot)
        gpus = accelerators.written(self.accelerators.type, self.accelerators.count)
        return Way(machine_type, spot, gpus)

    def local_ssds_of(self, way: Way) -> int:
        """Local SSDs of a node that is made in one way: as asked for, or those of its type."""
        return self.local_ssds or (way.shape.local_ssds if way.shape else 0)

    @property
    def caches(self) -> bool:
        """Whether each node has a disk for what it reads of cached folders."""
        return all(self.local_ssds_of(way) for way in self.ways)

    @property
    def memory_mib(self) -> int:
        """Memory of one node in MiB, the least that slurmd sees on any of its machine types."""
        shapes = [way.shape for way in self.ways]
        return min(shape.usable_memory_mib if shape else 2**30 for shape in shapes)

    @property
    def gpus(self) -> Gpus | None:
        """GPUs of one node: those of its machine type, or those that are attached to it."""
        if not self.shape or not self.shape.gpus:
            return None
        return Gpus.model_validate({"count": self.shape.gpus, "type": self.shape.short_gpu_type})


def _kind(value: Any) -> str:
    """Whether a node set is VMs or machines, as pydantic's discriminator."""
    if isinstance(value, _NodeSet):
        return VIRTUAL if isinstance(value, VirtualMachines) else STANDING
    return VIRTUAL if isinstance(value, dict) and "machine_type" in value else STANDING


# With a space: pydantic puts them into the path of an error, and no key has one.
STANDING, VIRTUAL = "standing machines", "virtual machines"
NodeSet = Annotated[
    Annotated[Machines, Tag(STANDING)] | Annotated[VirtualMachines, Tag(VIRTUAL)],
    Discriminator(_kind),
]
KINDS = {STANDING: Machines, VIRTUAL: VirtualMachines}


class Partition(Model):
    """A queue of SLURM."""

    nodes: Annotated[list[str], Field(description="Node sets of this partition.")]
    default: Annotated[
        bool, Field(description="Jobs that name no partition come here; exactly one has it.")
    ] = False
    max_time: Annotated[
        SlurmTime, Field(description="Longest time a job may ask for; `UNLIMITED`: no limit.")
    ] = "UNLIMITED"
    default_time: Annotated[
        SlurmTime | None,
        Field(
            description="Time of a job that asks for none; null: the `max_wall` that holds for it, "
            "with which SLURM refuses the job if it is above `max_time`, or else `max_time`."
        ),
    ] = None
    groups: Annotated[
        list[str],
        Field(description="Only members of these groups may submit here; empty: everybody."),
    ] = []
    memory_per_cpu_mib: Annotated[
        Mebibytes | None,
        Field(
            ge=1,
            description="Memory per CPU of a job that asks for none; null: the node's share.",
        ),
    ] = None
    memory_per_gpu_mib: Annotated[
        Mebibytes | None,
        Field(
            ge=1,
            description="Memory per GPU of a job that asks for GPUs and no memory; null: the "
            "node's share.",
        ),
    ] = None
    max_memory_per_cpu_mib: Annotated[
        Mebibytes | None,
        Field(
            ge=0,
            description="Memory that a job may have for each CPU (`MaxMemPerCPU`): one that asks "
            "for more gets, and is charged for, more CPUs. Null: a core's share of the node, so "
            "that one core can't take all memory from the others; 0: no limit.",
        ),
    ] = None
    cpus_per_gpu: Annotated[
        int | None,
        Field(
            ge=0,
            le=MOST_16_BITS,
            description="CPUs for each GPU of a job that asks for GPUs and says nothing of CPUs "
            "(`DefCpuPerGPU`). Null: a GPU's share of the node, since one CPU can't feed a GPU; "
            "0: SLURM's default, one for each task.",
        ),
    ] = None
    qos: Annotated[
        str | None,
        Field(
            description="QoS whose limits hold for all jobs of the partition, beside those of "
            "their own QoS and before those of their account; nobody needs to be allowed to use "
            "it. Null: none."
        ),
    ] = None
    allow_qos: Annotated[
        list[str], Field(description="Only jobs of these QoS may run here; empty: all.")
    ] = []
    deny_qos: Annotated[
        list[str], Field(description="Jobs of these QoS may not run here; not with `allow_qos`.")
    ] = []
    state: Annotated[
        Literal["up", "down", "drain", "inactive"],
        Field(
            description="up: jobs are queued and run; down: queued only; drain: running ones end, "
            "new ones are refused; inactive: neither queued nor run."
        ),
    ] = "up"


class Scheduling(Model):
    """What SLURM allocates to jobs, and how fast."""

    consumable: Annotated[
        Literal["cpu", "core"],
        Field(
            description="Unit that jobs share a node by: cpu (hardware threads, `CR_CPU_Memory`) "
            "or core (`CR_Core_Memory`)."
        ),
    ] = "cpu"
    profile: Annotated[
        Literal["elastic", "throughput"] | None,
        Field(
            description="What the scheduler is tuned for: elastic (nodes are asked for and jobs "
            "start at once) or throughput (hundreds of short jobs a minute); null: elastic in the "
            "cloud, SLURM's own settings on machines of your own."
        ),
    ] = None
    billing_weights: Annotated[
        bool,
        Field(
            description="Fairshare counts a job by the largest share of its node that it takes: "
            "one of four GPUs counts like a quarter of the node's CPUs or memory. false: by its "
            "CPUs alone, as SLURM does, so that a GPU costs nothing."
        ),
    ] = True
    max_submit_jobs: Annotated[
        int | None,
        Field(
            ge=1,
            le=MOST_32_BITS,
            description="Jobs that one user may have in an account, waiting ones too; each task of "
            "an array is one. The bound leaves places in SLURM's queue (`MaxJobCount`, 20,000 or "
            "more) to others, so that nobody is refused for what one user submitted. Null: none.",
        ),
    ] = 2000
