# SPDX-License-Identifier: Apache-2.0
"""What is set for each framework, and why."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from muster_launch.errors import LaunchError
from muster_launch.gpus import Gpus
from muster_launch.step import Step

FIRST_PORT, LAST_PORT = 20000, 24999
"""Free for the tasks of a job: srun takes those from 25000 on, outgoing connections from 32768."""

_JOB_STRIDE, _STEP_STRIDE = 61, 1009
"""Primes: jobs that were submitted one after the other are 61 ports apart, steps of one 1009."""

_LONGEST_TF_CONFIG = 100_000
"""Bytes; Linux takes no variable of 128 KiB (execve(2))."""


@dataclass(frozen=True)
class Setting:
    """A variable."""

    name: str
    value: str
    why: str


@dataclass(frozen=True)
class Facts:
    """What is true of this node, and not in SLURM's variables."""

    interface: str | None
    threads: int
    gpus: Gpus


def port_of(step: Step, environment: Mapping[str, str]) -> int:
    """Return the port on the first node, the same for all tasks: MASTER_PORT, or by the numbers.

    Raises:
        LaunchError: MASTER_PORT is no port.

    """
    given = environment.get("MASTER_PORT", "")
    if given:
        if not (given.isascii() and given.isdigit() and 0 < int(given) < 65536):
            raise LaunchError(
                f"MASTER_PORT is {given!r}, no port; unset it, or set a number below 65536"
            )
        return int(given)
    # TensorFlow listens in each task, and so takes as many ports as a node has tasks.
    room = LAST_PORT - FIRST_PORT + 1 - min(max(step.tasks_on), 1000)
    return FIRST_PORT + (step.job * _JOB_STRIDE + step.number * _STEP_STRIDE) % (room + 1)


def settings(step: Step, facts: Facts, port: int, environment: Mapping[str, str]) -> list[Setting]:
    """Return all variables for this task, those too that the user has set already.

    Args:
        step: Of which it is a task.
        facts: What is true of this node.
        port: What `port_of` returns.
        environment: The variables that are set.

    """
    first = environment.get("MASTER_ADDR") or step.nodes[0]
    return [
        *_torch(step, facts.gpus, first, port),
        *_tensorflow(step, port),
        *_jax(step, facts.gpus, first, port),
        *_interfaces(facts.interface),
        *_threads(facts.threads, environment),
        *_metrics(environment),
    ]


def _torch(step: Step, gpus: Gpus, first: str, port: int) -> list[Setting]:
    # A task that sees only GPUs of its own is as alone on a node: its first GPU is number 0.
    local_rank, local_size, group = step.local_rank, step.local_size, step.node_rank
    groups, local = len(step.nodes), "number of the task on this node, and of its GPU"
    if gpus.visible > step.local_size and not gpus.is_own:
        local += f"; a node has {gpus.visible} GPUs, and each task takes one"
    if gpus.is_own:
        local_rank, local_size, group, groups = 0, 1, step.rank, step.size
        local = "SLURM shows each task only its own GPUs, of which the first is number 0"
    where = "the first node, where task 0 is"
    return [
        Setting("MASTER_ADDR", first, f"PyTorch: {where}"),
        Setting("MASTER_PORT", str(port), "PyTorch: from the numbers of job and step"),
        Setting("RANK", str(step.rank), "PyTorch: number of the task (SLURM_PROCID)"),
        Setting("WORLD_SIZE", str(step.size), "PyTorch: tasks of the step"),
        Setting("LOCAL_RANK", str(local_rank), f"PyTorch: {local}"),
        Setting("LOCAL_WORLD_SIZE", str(local_size), "PyTorch: tasks that share what it sees"),
        Setting("GROUP_RANK", str(group), "PyTorch: number of the node, as torchrun counts"),
        Setting("GROUP_WORLD_SIZE", str(groups), "PyTorch: nodes, as torchrun counts"),
    ]


def _tensorflow(step: Step, port: int) -> list[Setting]:
    places = step.places()
    if places is None:
        return []
    workers = [f"{step.nodes[node]}:{port + local}" for node, local in places]
    value = json.dumps(
        {"cluster": {"worker": workers}, "task": {"type": "worker", "index": step.rank}}
    )
    if len(value) > _LONGEST_TF_CONFIG:
        return []
    return [Setting("TF_CONFIG", value, "TensorFlow: a worker for each task, and its port")]


def _jax(step: Step, gpus: Gpus, first: str, port: int) -> list[Setting]:
    host = f"[{first}]" if ":" in first else first
    found = [
        Setting("JAX_COORDINATOR_ADDRESS", f"{host}:{port}", "JAX: as PyTorch's, on task 0"),
        Setting("JAX_NUM_PROCESSES", str(step.size), "for programs; JAX finds it in SLURM's"),
        Setting("JAX_PROCESS_ID", str(step.rank), "for programs; JAX finds it in SLURM's"),
    ]
    if gpus.visible:
        # By itself JAX takes the one with the task's number on the node, and no other.
        each = gpus.visible if gpus.is_own else gpus.visible // step.local_size
        start = 0 if gpus.is_own else step.local_rank * each
        ids = ",".join(str(number) for number in range(start, start + each))
        found.append(Setting("JAX_LOCAL_DEVICE_IDS", ids, "JAX: the GPUs of this task"))
    return found


def _interfaces(interface: str | None) -> list[Setting]:
    if interface is None:
        return []
    why = "it holds the address of this node"
    return [
        # With "=" it is this one, without also those whose names begin so.
        Setting("NCCL_SOCKET_IFNAME", f"={interface}", f"NCCL: {why}"),
        Setting("GLOO_SOCKET_IFNAME", interface, f"Gloo: {why}"),
    ]


def _threads(number: int, environment: Mapping[str, str]) -> list[Setting]:
    why = "a thread for each core of this task"
    # PyTorch takes MKL_NUM_THREADS before OMP_NUM_THREADS: what the user has set holds for all.
    # Of a number for each level of OpenMP (`4,2`) the first is that of a program.
    given = environment.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    if given.isascii() and given.isdigit() and int(given):
        number, why = int(given), "as OMP_NUM_THREADS, which was set already"
    names = {
        "OMP_NUM_THREADS": "OpenMP, PyTorch",
        "MKL_NUM_THREADS": "MKL",
        "OPENBLAS_NUM_THREADS": "OpenBLAS, NumPy",
        "NUMEXPR_NUM_THREADS": "numexpr, pandas",
        "TF_NUM_INTRAOP_THREADS": "TensorFlow",
    }
    return [Setting(name, str(number), f"{users}: {why}") for name, users in names.items()]


def _metrics(environment: Mapping[str, str]) -> list[Setting]:
    """Return where `muster-job` looks for loss and accuracy: in the folder of sbatch."""
    folder, job = environment.get("SLURM_SUBMIT_DIR", ""), environment.get("SLURM_JOB_ID", "")
    if not folder:
        return []
    # sacct knows a task of an array by its number in the array.
    if environment.get("SLURM_ARRAY_JOB_ID"):
        job = f"{environment['SLURM_ARRAY_JOB_ID']}_{environment.get('SLURM_ARRAY_TASK_ID', '')}"
    why = 'for lines such as {"loss": 0.1, "accuracy": 0.98}, which muster-job shows'
    return [Setting("MUSTER_METRICS", f"{folder}/metrics-{job}.jsonl", why)]
