"""Node sets (what a compute node has) and partitions (who may use it, for how long)."""

from typing import Annotated, Any, Literal

from pydantic import Field

from muster.cluster.base import Mebibytes, Model, SlurmTime


def _nvidia_devices(values: dict[str, Any]) -> str:
    """Device files that NVIDIA's driver makes: numbered from 0."""
    count: int = values["count"]
    return "/dev/nvidia0" if count == 1 else f"/dev/nvidia[0-{count - 1}]"


class Gpus(Model):
    """The GPUs of one node."""

    count: Annotated[int, Field(ge=1, description="GPUs in one node.")]
    type: Annotated[
        str | None,
        Field(
            description="Type by which jobs may ask (`--gres=gpu:TYPE:1`), such as `rtx4080`; "
            "null: GPUs have no type (`--gres=gpu:1`)."
        ),
    ] = None
    devices: Annotated[
        str,
        Field(
            default_factory=_nvidia_devices,
            description="Device files as a hostlist, one per GPU; without it `/dev/nvidia[0-N]` "
            "for `count` GPUs.",
        ),
    ]


class NodeSet(Model):
    """Compute nodes of one kind; its hosts are the group of the same name in hosts.yml."""

    sockets: Annotated[int, Field(ge=1, description="Processor sockets of one node.")]
    cores_per_socket: Annotated[int, Field(ge=1, description="Cores of one socket.")]
    threads_per_core: Annotated[
        int, Field(ge=1, description="Hardware threads of one core; SLURM counts each as a CPU.")
    ] = 1
    memory_mib: Annotated[
        Mebibytes,
        Field(ge=1, description="Memory of one node as `slurmd -C` says (`RealMemory`)."),
    ]
    reserved_memory_mib: Annotated[
        Mebibytes,
        Field(ge=0, description="Part of the memory that jobs don't get (`MemSpecLimit`)."),
    ] = 0
    features: Annotated[
        list[str],
        Field(description="Features that jobs may ask for (`--constraint=`), such as `rtx4080`."),
    ] = []
    gpus: Annotated[Gpus | None, Field(description="GPUs of one node; null: none.")] = None
    weight: Annotated[
        int,
        Field(ge=1, description="Nodes of lower weight are given to jobs first."),
    ] = 1

    @property
    def cpus(self) -> int:
        """CPUs of one node as SLURM counts them: hardware threads."""
        return self.sockets * self.cores_per_socket * self.threads_per_core


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
        Field(description="Time of a job that asks for none; null: `max_time`."),
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
    state: Annotated[
        Literal["up", "down", "drain", "inactive"],
        Field(
            description="up: jobs are queued and run; down: queued only; drain: running ones end, "
            "new ones are refused; inactive: neither queued nor run."
        ),
    ] = "up"


class Scheduling(Model):
    """What SLURM hands out."""

    consumable: Annotated[
        Literal["cpu", "core"],
        Field(
            description="Unit that jobs share a node by: cpu (hardware threads, `CR_CPU_Memory`) "
            "or core (`CR_Core_Memory`)."
        ),
    ] = "cpu"
