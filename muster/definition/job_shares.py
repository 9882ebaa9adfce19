"""What a job has of a node unasked: its share by CPUs, or by GPUs."""

from collections.abc import Iterable

from muster.definition.schema.node_sets import NodeSet, Partition


def memory_per_cpu_mib(node_sets: Iterable[NodeSet]) -> int:
    """Return the memory of a CPU, in MiB, that every node can give to all its CPUs at once.

    At least 1: SLURM reads 0 as "the whole node".
    """
    return max(1, min(free_mib(node_set) // node_set.cpus for node_set in node_sets))


def memory_per_gpu_mib(node_sets: Iterable[NodeSet]) -> int | None:
    """Return the memory of a GPU, in MiB, that every node can give to all its GPUs at once.

    None where a node has no GPU.

    slurm.conf(5) calls DefMemPerCPU and DefMemPerGPU exclusive. That is so for one job, not for
    one partition: a job that asks for no memory has DefMemPerGPU for each GPU if it asks for
    GPUs, and DefMemPerCPU for each CPU if it asks for none (select/cons_tres, job_test.c,
    gres_select_util_job_mem_set).
    """
    shares = []
    for node_set in node_sets:
        if node_set.gpus is None:
            return None
        shares.append(free_mib(node_set) // sum(node_set.gpus.offers.values()))
    return max(1, min(shares))


def cpus_per_gpu(node_sets: Iterable[NodeSet]) -> int | None:
    """Return the CPUs of a GPU that every node can give to all its GPUs at once.

    None where a node has no GPU, or fewer CPUs than GPUs. SLURM uses it only for jobs that say
    nothing of CPUs (slurm.conf(5), DefCpuPerGPU).
    """
    shares = []
    for node_set in node_sets:
        if node_set.gpus is None:
            return None
        shares.append(node_set.cpus // sum(node_set.gpus.offers.values()))
    return min(shares) or None


def free_mib(node_set: NodeSet) -> int:
    """Return the memory of a node that jobs may have, in MiB."""
    return node_set.memory_mib - node_set.reserved_memory_mib


def cpus_by_gpu(partition: Partition, node_sets: Iterable[NodeSet]) -> int | None:
    """Return the CPUs that each GPU of a job brings unasked (DefCpuPerGPU); None, 0: none."""
    given = partition.cpus_per_gpu
    return cpus_per_gpu(node_sets) if given is None else given


def memory_by_gpu_mib(partition: Partition, node_sets: Iterable[NodeSet]) -> int | None:
    """Return the memory that each GPU of a job brings unasked (DefMemPerGPU); None: none."""
    return partition.memory_per_gpu_mib or memory_per_gpu_mib(node_sets)
