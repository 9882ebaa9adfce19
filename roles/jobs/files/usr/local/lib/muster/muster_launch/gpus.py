# SPDX-License-Identifier: Apache-2.0
"""The GPUs of a task, and the number by which it names its own."""

from collections.abc import Mapping
from dataclasses import dataclass

from muster_launch.errors import LaunchError
from muster_launch.step import Step

_VISIBLE = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
_SHARED = ("SLURM_SHARDS_ON_NODE", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "LOCAL_RANK")
"""Set where tasks share GPUs on purpose: parts of one (shards, MPS), or numbers of the user's."""


@dataclass(frozen=True)
class Gpus:
    """What this task sees."""

    visible: int
    is_own: bool
    """Whether SLURM has given each task GPUs of its own (--gpus-per-task, --gpu-bind)."""


def gpus_of(step: Step, environment: Mapping[str, str]) -> Gpus:
    """Return the GPUs of this task.

    Raises:
        LaunchError: tasks on this node would take the same GPU, and are not to share it.

    """
    visible, tasks = _visible(environment), step.local_size
    on_node = environment.get("SLURM_GPUS_ON_NODE", "")
    total = int(on_node) if on_node.isdigit() else visible
    if visible == 0 or (visible >= total and visible >= tasks):
        return Gpus(visible, is_own=False)
    if visible * tasks <= total or any(environment.get(name) for name in _SHARED):
        return Gpus(visible, is_own=True)
    if total < tasks:
        raise LaunchError(
            f"{tasks} tasks on {step.node} have {total} GPU{'s' if total > 1 else ''}: ask for "
            f"--ntasks-per-node={total}, or for more GPUs (--gpus-per-node={tasks}); if they are "
            "to share them, set LOCAL_RANK"
        )
    raise LaunchError(
        f"{tasks} tasks on {step.node} see {visible} of its {total} GPUs each, so that some would "
        "take the same: leave --gpu-bind out, or ask for GPUs by --gpus-per-task"
    )


def _visible(environment: Mapping[str, str]) -> int:
    """Return how many GPUs are named: -1 is none, and ends the list."""
    named = next((environment[name] for name in _VISIBLE if environment.get(name)), "")
    words = [word.strip() for word in named.split(",")]
    return next((place for place, word in enumerate(words) if word in ("", "-1")), len(words))
