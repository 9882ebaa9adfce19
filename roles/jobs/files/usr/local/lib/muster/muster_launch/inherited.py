# SPDX-License-Identifier: Apache-2.0
"""What a program has from the `launch` of another job or step, and must not take for the user's.

sbatch and srun hand all variables on: a job that is submitted within a launched program has the
rank, the port and the file for metrics of that one. So `launch` leaves a note of what it has set.
SLURM and torchrun leave none: what they have set for another step is known by the task's process.
"""

import re
import zlib
from collections.abc import Collection, Mapping
from pathlib import Path

from muster_launch import hostlists
from muster_launch.errors import LaunchError
from muster_launch.step import Step

NOTE = "MUSTER_LAUNCH"
"""JOB.STEP, and NAME=CHECKSUM for each variable that was set, between spaces."""

_PROC = Path("/proc")
_OF_SCRIPT = re.compile(r"/step_batch(?:/|$)", re.MULTILINE)
"""In the cgroup of a script; that of srun's step has its number.

The shell of salloc, in `step_interactive`, is a step of srun's too: all variables of a step are its
own there.
"""
_OF_STEP = ("SLURM_STEP", "SLURM_SRUN_COMM_")
"""How names begin that srun sets, and slurmd does not set for a script."""

_TORCHRUN = "TORCHELASTIC_RUN_ID"
"""Set in each process of torchrun's; `none`, where its user names no other."""
_ONE_PROCESS = (_TORCHRUN, "TORCHELASTIC_ERROR_FILE")
"""What no two processes of torchrun's have in common: the file is in a new folder of each run."""
_OF_TORCHRUN = (
    "MASTER_ADDR",
    "MASTER_PORT",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "ROLE_NAME",
    "ROLE_RANK",
    "ROLE_WORLD_SIZE",
)
"""What torchrun sets besides TORCHELASTIC_*. OMP_NUM_THREADS may be the user's."""


def of_another_step(environment: Mapping[str, str]) -> list[str]:
    """Return the variables of the step that submitted this script; none for a task of srun's.

    sbatch hands SLURM_STEP_ID and the like on, and nothing sets them for a script. The numbers may
    be the same in both jobs, and srun's port too: the cgroup alone tells.
    """
    try:
        cgroup = (_PROC / "self/cgroup").read_text(encoding="utf-8")
    except OSError:
        return []
    if not _OF_SCRIPT.search(cgroup):
        return []
    names = [name for name in environment if name.startswith(_OF_STEP)]
    # That of srun's step, unless sbatch has set it: then slurmd's list has as many tasks.
    if names and environment.get("SLURM_NTASKS") != _tasks(environment):
        names += [name for name in ("SLURM_NTASKS", "SLURM_NPROCS") if name in environment]
    return names


def _tasks(environment: Mapping[str, str]) -> str:
    try:
        return str(sum(hostlists.repeated(environment.get("SLURM_TASKS_PER_NODE", ""))))
    except LaunchError:
        return ""


def of_torchrun(environment: Mapping[str, str]) -> list[str]:
    """Return what the torchrun of another step has set; none where torchrun has started `launch`.

    The process of the task had it from its start then: torchrun was not started in the task.
    """
    pid = environment.get("SLURM_TASK_PID", "")
    if _TORCHRUN not in environment or not pid.isdecimal():
        return []
    try:
        lines = (_PROC / pid / "environ").read_bytes().split(b"\0")
    except OSError:
        return []
    words = (line.decode("utf-8", "surrogateescape").partition("=") for line in lines)
    first = {name: value for name, _, value in words}
    if any(first.get(name) != environment.get(name) for name in _ONE_PROCESS):
        return []
    return [
        name for name in environment if name in _OF_TORCHRUN or name.startswith("TORCHELASTIC_")
    ]


def place(step: Step) -> str:
    """Return the job and the step in one word; a script that has no step of srun's is `batch`."""
    return f"{step.job}.{step.number if step.started_by_srun else 'batch'}"


def origin(environment: Mapping[str, str]) -> str:
    """Return the place whose `launch` has left a note; nothing without one."""
    return environment.get(NOTE, "").partition(" ")[0]


def of_another(step: Step, environment: Mapping[str, str]) -> list[str]:
    """Return the variables that `launch` has set for another job or step, in the order of the note.

    One with another value than it set then was changed since, on purpose.
    """
    return [] if origin(environment) == place(step) else _unchanged(environment)


def note(step: Step, new: Mapping[str, str], environment: Mapping[str, str]) -> str:
    """Return the note for a program.

    Args:
        step: Of which it is a task.
        new: The variables that are set for it now.
        environment: Those that it has besides; a `launch` of the same step may have set some.

    """
    kept: Collection[str] = _unchanged(environment) if origin(environment) == place(step) else ()
    values = {**{name: environment[name] for name in kept}, **new}
    return " ".join([place(step), *(f"{name}={_sum(values[name])}" for name in values)])


def _unchanged(environment: Mapping[str, str]) -> list[str]:
    entries = (word.partition("=") for word in environment.get(NOTE, "").split(" ")[1:])
    return [
        name
        for name, _, checksum in entries
        if name in environment and _sum(environment[name]) == checksum
    ]


def _sum(value: str) -> str:
    return f"{zlib.crc32(value.encode('utf-8', 'surrogateescape')):08x}"
