#!/usr/bin/env python3
"""Print what the job that runs this was given: cores, memory, GPUs."""

import os
import platform
import socket


def memory_mib() -> str:
    """Return the job's memory limit in MiB, from SLURM's environment."""
    per_node = os.environ.get("SLURM_MEM_PER_NODE")
    if per_node is not None:
        return per_node
    per_cpu = os.environ.get("SLURM_MEM_PER_CPU")
    if per_cpu is None:
        return "no limit known"
    return str(int(per_cpu) * int(os.environ.get("SLURM_CPUS_ON_NODE", "1")))


print(
    f"{socket.gethostname()}:",
    f"python {platform.python_version()},",
    f"{len(os.sched_getaffinity(0))} core(s),",
    f"{memory_mib()} MiB,",
    f"CUDA_VISIBLE_DEVICES={os.environ.get('CUDA_VISIBLE_DEVICES', '')}",
)
