"""The podman command, rootful: systemd inside, devices and bind mounts need root."""

import os
import resource
import shutil
import subprocess
from pathlib import Path


class MachineError(Exception):
    """An action failed or is impossible on this machine; the text says why and what to do."""


COMMANDS = ("podman", "mmdebstrap", "iptables")
"""Commands of the packages behind the containers. Without iptables netavark fails with "No such
file"."""


def as_root(command: list[str]) -> list[str]:
    """Return `command` prefixed with sudo where this process is not root."""
    return command if os.geteuid() == 0 else ["sudo", "--", *command]


def run(
    command: list[str], *, stdin: str | None = None, timeout: float = 600
) -> subprocess.CompletedProcess[str]:
    """Run `command` as root and return its result.

    Raises:
        MachineError: it failed, or ran longer than `timeout` seconds.

    """
    try:
        done = subprocess.run(
            as_root(command),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except FileNotFoundError as error:
        raise MachineError(f"{command[0]} is not installed; run `make machine-packages`") from error
    except subprocess.TimeoutExpired as error:
        raise MachineError(f"{' '.join(command)}: not done after {timeout:.0f} s") from error
    if done.returncode != 0:
        said = done.stderr.strip() or done.stdout.strip()
        raise MachineError(f"{' '.join(command)}: {said}")
    return done


def podman(*words: str, stdin: str | None = None, timeout: float = 600) -> str:
    """Run podman and return what it printed.

    Raises:
        MachineError: podman failed.

    """
    return run(["podman", *words], stdin=stdin, timeout=timeout).stdout.strip()


def exists(kind: str, name: str) -> bool:
    """Whether podman has a `kind` (container, image, network) called `name`."""
    done = subprocess.run(
        as_root(["podman", kind, "exists", name]), capture_output=True, timeout=60, check=False
    )
    return done.returncode == 0


def ulimits() -> list[str]:
    """Return options that keep a container's limits below this machine's hard ones.

    Podman's own defaults are higher; without CAP_SYS_RESOURCE the runtime then refuses to start.
    """
    options = []
    for name, kind, wanted in (
        ("nofile", resource.RLIMIT_NOFILE, 20000),
        ("nproc", resource.RLIMIT_NPROC, 4096),
    ):
        hard = resource.getrlimit(kind)[1]
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        options += ["--ulimit", f"{name}={limit}:{limit}"]
    return options


def check_machine() -> None:
    """Check what containers need on this machine.

    Raises:
        MachineError: no root, no podman, too few cores, too little memory or disk.

    """
    if os.geteuid() != 0 and shutil.which("sudo") is None:
        raise MachineError("containers with systemd need root; run as root or install sudo")
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    missing = [name for name in COMMANDS if shutil.which(name, path=path) is None]
    if missing:
        raise MachineError(f"{', '.join(missing)} not installed; run `make machine-packages`")
    if (os.cpu_count() or 1) < 2:
        raise MachineError("the demo's nodes have 2 cores and this machine has 1; use another one")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if memory < 4 * 1024**3:
        raise MachineError(
            f"this machine has {memory / 1024**3:.1f} GiB of memory, the demo needs 4"
        )
    for place in ("/var/lib", Path.cwd()):
        free = shutil.disk_usage(place).free
        if free < 5 * 1024**3:
            raise MachineError(
                f"{place} has {free / 1024**3:.1f} GiB free, the demo needs 5; make room"
            )
