# SPDX-License-Identifier: Apache-2.0
"""How many threads a task should compute with: one for each core that it is allotted."""

from collections.abc import Collection, Mapping
from pathlib import Path

from muster_launch.step import Step

_CPUS = Path("/sys/devices/system/cpu")


def cores_of(cpus: Collection[int], folder: Path = _CPUS) -> int:
    """Return on how many cores CPUs are; SLURM's and Linux's CPUs are threads of cores."""
    cores: set[str] = set()
    for cpu in cpus:
        path = folder / f"cpu{cpu}/topology/thread_siblings_list"
        try:
            cores.add(path.read_text(encoding="ascii").strip())
        except OSError:
            cores.add(str(cpu))  # the kernel tells nothing: a core of its own
    return len(cores)


def threads(
    step: Step, environment: Mapping[str, str], cpus: Collection[int], folder: Path = _CPUS
) -> int:
    """Return the threads for this task, 1 at least.

    Args:
        step: Of which it is a task.
        environment: SLURM's variables.
        cpus: Those on which the task may run: its own if SLURM has bound it, else all of the step.
        folder: Where the kernel tells which CPUs are on one core.

    """
    if not cpus:
        return 1
    shares = [len(cpus)]
    on_node = environment.get("SLURM_CPUS_ON_NODE", "")
    if on_node.isdigit():
        shares.append(int(on_node) // step.local_size)
    each = environment.get("SLURM_CPUS_PER_TASK", "")
    if each.isdigit():
        shares.append(int(each))
    return max(1, min(shares) * cores_of(cpus, folder) // len(cpus))


def narrowed(environment: Mapping[str, str], cpus: Collection[int]) -> str:
    """Return what to say where srun gave the task fewer CPUs than the job asks for; or nothing.

    From SLURM 22.05 on srun does not take --cpus-per-task from sbatch (srun(1)).
    """
    each = environment.get("SLURM_CPUS_PER_TASK", "")
    if not each.isdigit() or int(each) <= len(cpus):
        return ""
    return (
        f"each task has {len(cpus)} of the {each} CPUs that the job asks for: type srun "
        "--cpus-per-task=$SLURM_CPUS_PER_TASK"
    )
