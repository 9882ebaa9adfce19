"""Node lines of slurm.conf, lines of gres.conf, and the default memory of jobs."""

from collections.abc import Iterable

from muster.catalog.hostlists import expand, fold
from muster.definition.definition import Definition
from muster.definition.job_shares import (
    cpus_by_gpu,
    free_mib,
    memory_by_cpu_mib,
    memory_by_gpu_mib,
    most_memory_per_cpu_mib,
)
from muster.definition.schema.gpus import Gpus
from muster.definition.schema.node_sets import NodeSet, Partition, VirtualMachines
from muster.render.slurm.conf_syntax import Line

MIG_DIR = "/dev/muster-mig"
HARDWARE = (
    "CPUs",
    "Boards",
    "SocketsPerBoard",
    "CoresPerSocket",
    "ThreadsPerCore",
    "RealMemory",
    "MemSpecLimit",
    "Gres",
)
"""Keys of a node line that describe the machine, in the order of `slurmd -C`."""


def node_lines(definition: Definition) -> list[Line]:
    """Return one line per node set.

    No NodeAddr: the role `base` keeps names and addresses of all hosts in /etc/hosts, and an
    address in slurm.conf would be a second place to change.
    """
    return [
        {"NodeName": fold(hosts), **hardware(node_set), **_choice(node_set), **_state(node_set)}
        for node_set, hosts in _sets(definition)
    ]


def gres_lines(definition: Definition) -> list[Line]:
    """Return the GPUs of each node set that has any, and their shards.

    Device files are named and not detected unless the definition says so: the NVML plugin of
    Debian 12 can't be installed, and slurmctld needs the files where nodes don't exist yet
    (gres.conf(5), AutoDetect).
    """
    return [
        {"NodeName": fold(hosts), **keys}
        for node_set, hosts in _sets(definition)
        if node_set.gpus
        for keys in _gres(node_set.gpus)
    ]


def _gres(gpus: Gpus) -> Iterable[Line]:
    if gpus.mig:
        yield from _instances(gpus)
    elif gpus.autodetect:
        # Type and number are in slurm.conf, with which slurmd compares what it finds.
        yield {"AutoDetect": gpus.autodetect}
    else:
        yield {
            "Name": "gpu",
            **({"Type": gpus.type} if gpus.type else {}),
            "File": gpus.devices,
        }
    if gpus.shards:
        # Without File they are shared out evenly: https://slurm.schedmd.com/gres.html#Sharding
        yield {"Name": "shard", "Count": str(gpus.count * gpus.shards)}


def _instances(gpus: Gpus) -> Iterable[Line]:
    """Yield a line for each MIG instance: the GPU's device file, and those of its capabilities.

    The driver numbers capabilities (/dev/nvidia-caps/nvidia-cap30) when it makes the instance, so
    muster-mig of the role `nvidia_driver` gives them names that can be known before: links, which
    slurmd follows when it reads what to allow.
    """
    for device in expand(gpus.devices):
        for offer, (profile, number) in zip(gpus.offers, gpus.mig.items(), strict=True):
            for n in range(number):
                name = f"{MIG_DIR}/{device.rpartition('/')[2]}-{profile}-{n}"
                files = [device, f"{name}-gi", f"{name}-ci"]
                yield {"Name": "gpu", "Type": offer, "MultipleFiles": ",".join(files)}


def _sets(definition: Definition) -> Iterable[tuple[NodeSet, list[str]]]:
    for name, node_set in definition.cluster.nodes.items():
        if hosts := definition.hosts_of(name):
            yield node_set, hosts


def hardware(node_set: NodeSet) -> Line:
    """Return what a node has: the keys of HARDWARE."""
    keys = {
        "CPUs": str(node_set.cpus),
        "Boards": "1",
        "SocketsPerBoard": str(node_set.sockets),
        "CoresPerSocket": str(node_set.cores_per_socket),
        "ThreadsPerCore": str(node_set.threads_per_core),
        "RealMemory": str(node_set.memory_mib),
    }
    if node_set.reserved_memory_mib:
        keys["MemSpecLimit"] = str(node_set.reserved_memory_mib)
    if gpus := node_set.gpus:
        keys["Gres"] = ",".join(
            f"gpu:{name}:{number}" if name else f"gpu:{number}"
            for name, number in gpus.offers.items()
        )
        if gpus.shards:
            keys["Gres"] += f",shard:{gpus.count * gpus.shards}"
    return keys


def _choice(node_set: NodeSet) -> Line:
    """Return what only slurmctld looks at when it chooses nodes for a job."""
    keys = {}
    if node_set.features:
        keys["Feature"] = ",".join(node_set.features)
    if node_set.weight != 1:
        keys["Weight"] = str(node_set.weight)
    return keys


def _state(node_set: NodeSet) -> Line:
    """Return the state of nodes that exist only while they are needed."""
    return {"State": "CLOUD"} if isinstance(node_set, VirtualMachines) else {}


def partition_lines(definition: Definition) -> list[Line]:
    """Return one line per partition; keys with SLURM's own default are left out."""
    return [
        _partition_line(definition, name, partition)
        for name, partition in definition.cluster.partitions.items()
    ]


def _partition_line(definition: Definition, name: str, partition: Partition) -> Line:
    hosts = [host for node_set in partition.nodes for host in definition.hosts_of(node_set)]
    keys = {"PartitionName": name, "Nodes": fold(hosts)}
    if partition.default:
        keys["Default"] = "YES"
    if partition.max_time.upper() not in ("UNLIMITED", "INFINITE"):
        keys["MaxTime"] = partition.max_time
    if partition.default_time:
        keys["DefaultTime"] = partition.default_time
    if partition.groups:
        keys["AllowGroups"] = ",".join(partition.groups)
    keys |= _qos(partition)
    if partition.state != "up":
        keys["State"] = partition.state.upper()
    node_sets = [definition.cluster.nodes[node_set] for node_set in partition.nodes]
    keys |= _shares(definition, partition, node_sets)
    if isinstance(first := node_sets[0], VirtualMachines):
        # Its other node sets have the same: the check idle-seconds-differ.
        keys["SuspendTime"] = str(first.idle_seconds)
    return keys


def _qos(partition: Partition) -> Line:
    """Return the QoS of a partition, and which jobs may run there by theirs."""
    keys = {
        "QOS": partition.qos or "",
        "AllowQos": ",".join(partition.allow_qos),
        "DenyQos": ",".join(partition.deny_qos),
    }
    return {key: value for key, value in keys.items() if value}


def _shares(definition: Definition, partition: Partition, node_sets: list[NodeSet]) -> Line:
    """Return what a job has unasked, what it may have for a CPU, and what it is charged."""
    keys = {"DefMemPerCPU": str(memory_by_cpu_mib(partition, node_sets))}
    if per_gpu := memory_by_gpu_mib(partition, node_sets):
        keys["DefMemPerGPU"] = str(per_gpu)
    if most := most_memory_per_cpu_mib(partition, node_sets):
        keys["MaxMemPerCPU"] = str(most)
    if cpus := cpus_by_gpu(partition, node_sets):
        keys["DefCpuPerGPU"] = str(cpus)
    if definition.cluster.scheduling.billing_weights and definition.hosts.groups.get("database"):
        keys["TRESBillingWeights"] = billing_weights(node_sets)
    return keys


def billing_weights(node_sets: Iterable[NodeSet]) -> str:
    """Return weights with which all CPUs, all memory and all GPUs of a node cost the same.

    PriorityFlags=MAX_TRES takes the largest of them, so a whole node costs the number of its CPUs,
    whatever of it a job asks for. To SLURM shards are no parts of GPUs: all those of a GPU cost as
    much as it does. Where node sets differ a GPU has its largest share, memory its smallest.
    """
    per_gib, per_gpu, per_shard = [], [], []
    for node_set in node_sets:
        per_gib.append(node_set.cpus * 1024 / free_mib(node_set))
        if node_set.gpus:
            per_gpu.append(node_set.cpus / sum(node_set.gpus.offers.values()))
            if node_set.gpus.shards:
                per_shard.append(per_gpu[-1] / node_set.gpus.shards)
    weights = ["CPU=1", f"Mem={min(per_gib):.4g}G"]
    if per_gpu:
        weights.append(f"GRES/gpu={max(per_gpu):.4g}")
    if per_shard:
        weights.append(f"GRES/shard={max(per_shard):.4g}")
    return ",".join(weights)
