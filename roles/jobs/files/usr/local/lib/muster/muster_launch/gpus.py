# SPDX-License-Identifier: Apache-2.0
"""The GPUs of a task, and the number by which it names its own."""

from collections.abc import Mapping
from dataclasses import dataclass

from muster_launch.errors import LaunchError
from muster_launch.step import Step

_VISIBLE = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")


@dataclass(frozen=True)
class Gpus:
    """What this task sees."""

    visible: int
    is_own: bool
    """Whether SLURM has given each task GPUs of its own (--gpus-per-task, --gpu-bind)."""


def gpus_of(step: Step, environment: Mapping[str, str]) -> Gpus:
    """Return the GPUs of this task.

    Raises:
        LaunchError: the tasks on this node are more than its GPUs, and they are not to share them.

    """
    named = next((environment[name] for name in _VISIBLE if environment.get(name)), "")
    visible = len(named.split(",")) if named else 0
    on_node = environment.get("SLURM_GPUS_ON_NODE", "")
    total = int(on_node) if on_node.isdigit() else visible
    if visible == 0 or visible >= step.local_size:
        return Gpus(visible, is_own=False)
    if total >= step.local_size:
        return Gpus(visible, is_own=True)
    # Tasks that share GPUs by intention: parts of one (shards), or a number of the user's.
    if environment.get("SLURM_SHARDS_ON_NODE") or environment.get("LOCAL_RANK"):
        return Gpus(visible, is_own=True)
    raise LaunchError(
        f"{step.local_size} tasks on {step.node} have {total} GPU{'s' if total > 1 else ''}: ask "
        f"for --ntasks-per-node={total}, or for more GPUs (--gpus-per-node={step.local_size})"
    )
