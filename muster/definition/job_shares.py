"""What a job has of a node unasked: its share by CPUs, or by GPUs."""

from collections.abc import Iterable

from muster.definition.schema.node_sets import NodeSet, Partition


def memory_per_cpu_mib(node_sets: Iterable[NodeSet]) -> int:
    """Return the memory of a CPU, in MiB, that every node can give to all its CPUs at once.

    At least 1: SLURM reads 0 as "the whole node".
    """
    return max(1, min(free_mib(node_set) // node_set.cpus for node_set in node_sets))


def memory_by_cpu_mib(partition: Partition, node_sets: Iterable[NodeSet]) -> int:
    """Return the memory that each CPU of a job brings unasked (DefMemPerCPU), in MiB."""
    node_sets = list(node_sets)
    per_cpu = partition.memory_per_cpu_mib or memory_per_cpu_mib(node_sets)
    # Above the most, a job would have more CPUs for memory that it did not ask for.
    return min(per_cpu, most_memory_per_cpu_mib(partition, node_sets) or per_cpu)


def most_memory_per_cpu_mib(partition: Partition, node_sets: Iterable[NodeSet]) -> int:
    """Return the memory, in MiB, that a job may have for each CPU; 0: no limit.

    A core's share of the node that has most for one, not a CPU's: a job that uses one thread of
    each core (`--hint=nomultithread`) could not have all memory of a node otherwise. Rounded up,
    so that all CPUs of a node may have all of its memory.
    """
    if partition.max_memory_per_cpu_mib is not None:
        return partition.max_memory_per_cpu_mib
    shares = [
        -(-free_mib(node_set) // (node_set.sockets * node_set.cores_per_socket))
        for node_set in node_sets
    ]
    # What a job has unasked must be within it.
    return max(*shares, partition.memory_per_cpu_mib or 1)


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


def least_cpus(consumable: str, node_sets: Iterable[NodeSet]) -> int:
    """Return the CPUs of the smallest job: all of a core where jobs get whole cores (CR_Core).

    With CR_CPU a job is counted the CPUs that it asks for, although no other job gets the rest of
    its last core (_block_sync_core_bitmap in dist_tasks.c).
    """
    return min(one.threads_per_core for one in node_sets) if consumable == "core" else 1


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
