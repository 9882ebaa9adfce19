# SPDX-License-Identifier: Apache-2.0
"""What the programs that format disks share: how they run commands, and what is on a disk.

Each role with such a program installs this file beside it; in fscache and cloud_node it is a link.
Runs with the Python of the system alone.
"""

import os
import subprocess
import time
from collections.abc import Collection
from typing import NamedTuple

COMMAND_S = 600.0
PROBE_S = 60.0


class DiskError(Exception):
    """The problem in a sentence, and what to do."""


class Content(NamedTuple):
    """What libblkid finds on a disk."""

    kind: str
    """Type of a file system, of a partition table, of a member of an array."""
    label: str
    """Empty where there is none."""

    def __str__(self) -> str:
        """Return the words of an error's sentence."""
        return f"{self.kind} labelled {self.label or '(nothing)'}"


def run(
    *command: str, codes: Collection[int] = (0,), seconds: float | None = COMMAND_S
) -> tuple[int, str]:
    """Run a command; return its exit code and output. `seconds` None: for as long as it takes.

    Raises:
        DiskError: another exit code than `codes`, or it takes too long.

    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DiskError(str(error)) from error
    if done.returncode not in codes:
        said = done.stderr.strip() or done.stdout.strip()
        raise DiskError(f"{' '.join(command)}: {said}")
    return done.returncode, done.stdout


def content(device: str) -> Content | None:
    """Return what is on a disk; None where libblkid recognises nothing.

    Raises:
        DiskError: it can't be read.

    """
    # --probe reads the disk and no cache; 2: libblkid recognises nothing on it.
    probe = ("blkid", "--probe", "--output", "export", device)
    code, out = run(*probe, codes=(0, 2), seconds=PROBE_S)
    if code == 2:
        return None
    fields = dict(line.split("=", 1) for line in out.splitlines() if "=" in line)
    kind = fields.get("TYPE") or fields.get("PTTYPE") or "something unknown"
    return Content(kind, fields.get("LABEL", ""))


def wait_for(device: str, seconds: float, remedy: str) -> None:
    """Return when a disk is there: at boot udev may be slower than a program.

    Raises:
        DiskError: it is not, after `seconds`.

    """
    deadline = time.monotonic() + seconds
    while not os.path.exists(device):
        if time.monotonic() >= deadline:
            raise DiskError(f"{device}: no such device; {remedy}")
        time.sleep(0.1)
