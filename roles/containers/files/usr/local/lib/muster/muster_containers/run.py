# SPDX-License-Identifier: Apache-2.0
"""The command of podman that runs a program of an image as a part of a job. Pure."""

import os
from collections.abc import Callable, Collection, Mapping, Sequence

from muster_containers.errors import ContainerError
from muster_containers.images import Image
from muster_containers.settings import Settings

CDI = ("/run/cdi/nvidia.yaml", "/etc/cdi/nvidia.yaml")
"""Where the role nvidia_driver, or an administrator, has the node's GPUs described."""
NVIDIA = "/dev/nvidiactl"

_OF_HOST = (
    "PATH",
    "SHELL",
    "HOSTNAME",
    "PYTHONHOME",
    "PYTHONPATH",
    "VIRTUAL_ENV",
    "LOADEDMODULES",
    "_LMFILES_",
    "MODULEPATH",
    "XDG_RUNTIME_DIR",
)
"""Variables that name files of this host, and would hide those of the image."""
_OF_HOST_BEGIN = ("LD_", "LMOD_", "__LMOD", "_ModuleTable", "BASH_FUNC_", "DBUS_", "CONTAINERS_")


def arguments(
    image: Image,
    command: Sequence[str],
    settings: Settings,
    environment: Mapping[str, str],
    *,
    cwd: str,
    terminal: bool,
    exists: Callable[[str], bool] = os.path.exists,
) -> list[str]:
    """Return podman's arguments.

    Root of the container is the person outside, and is who runs the program: its files belong to
    the person. The container has the node's network, host name and shared memory, as tasks expect
    that talk to each other, and a process tree of its own, which ends with its first process.
    """
    tmp = "/tmp"  # noqa: S108 (the container's is the job's)
    mounts = [path for path in (*settings.mounts, _scratch(settings, environment), tmp) if path]
    mounts = [path for path in dict.fromkeys(mounts) if exists(path)]
    return [
        *("run", "--rm", "--pull=never", "--init", "--interactive", "--log-driver=none"),
        *(["--tty"] if terminal else []),
        # It stays in the cgroup of the job, whose limits it has and with which it ends.
        *("--cgroups=disabled", "--cgroupns=host"),
        *("--network=host", "--uts=host", "--ipc=host"),
        # Folders of projects are open to groups.
        *("--user=0:0", "--group-add=keep-groups"),
        *(f"--volume={path}:{path}:rslave" for path in mounts),
        f"--workdir={_workdir(cwd, mounts, environment)}",
        *(f"--env={name}" for name in passed(environment, image.variables)),
        *(f"--device={device}" for device in gpus(environment, exists)),
        image.digest,
        *command,
    ]


def passed(environment: Mapping[str, str], of_image: Collection[str]) -> list[str]:
    """Return the names of variables that the program gets from the job; the image's own win."""
    return sorted(
        name
        for name in environment
        if name not in _OF_HOST
        and not name.startswith(_OF_HOST_BEGIN)
        and name not in of_image
        # podman would read a pattern in others.
        and name.replace("_", "a").isalnum()
    )


def gpus(environment: Mapping[str, str], exists: Callable[[str], bool]) -> list[str]:
    """Return the CDI devices for a job: all, of which the job's cgroup opens those that it has.

    Raises ContainerError where the job has NVIDIA GPUs and the node does not describe them.
    """
    has_gpus = any(environment.get(name) for name in ("SLURM_JOB_GPUS", "SLURM_STEP_GPUS"))
    if not has_gpus or not exists(NVIDIA):
        return []
    if not any(exists(path) for path in CDI):
        raise ContainerError(
            "the job has GPUs, and this node has no description of them for containers "
            f"({CDI[0]}): have an administrator set `nvidia: {{cdi: true}}`"
        )
    return ["nvidia.com/gpu=all"]


def _scratch(settings: Settings, environment: Mapping[str, str]) -> str | None:
    job = environment.get("SLURM_JOB_ID")
    return f"{settings.scratch}/{job}" if settings.scratch and job else None


def _workdir(cwd: str, mounts: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return the folder in which the program starts: this one, if the container has it."""
    for path in (cwd, environment.get("HOME", "")):
        if any(path == mount or path.startswith(f"{mount}/") for mount in mounts):
            return path
    return "/"
