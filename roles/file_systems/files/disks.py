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
MIB = 2**20
SAMPLES_MIB = (*range(16), *(128 * group for group in (1, 3, 5, 7, 9, 25, 27, 49)))
"""Where a disk is read to see whether it is blank: its head, and ext4's copies (mke2fs(8))."""


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


def is_zero(device: str) -> bool:
    """Whether a disk is zero wherever SAMPLES_MIB looks, and at its end.

    Raises:
        DiskError: it can't be read.

    """
    try:
        with open(device, "rb") as disk:
            size = disk.seek(0, os.SEEK_END)
            for place in (*(number * MIB for number in SAMPLES_MIB), size - MIB):
                if 0 <= place < size:
                    disk.seek(place)
                    if disk.read(MIB).strip(b"\0"):
                        return False
    except OSError as error:
        raise DiskError(
            f"{device} can't be read ({error.strerror}), so it is not formatted; look at `dmesg`"
        ) from error
    return True


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
