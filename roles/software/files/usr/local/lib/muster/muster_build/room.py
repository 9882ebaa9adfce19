# SPDX-License-Identifier: Apache-2.0
"""Room that is left on file systems."""

import os
from collections.abc import Sequence

from muster_build.errors import FailedError
from muster_build.programs import checked

SPARED_BYTES = 2**30
"""Free space that a build leaves to others, in the file systems of its folder and of TMPDIR."""


def refuse_full(disks: Sequence[str]) -> None:
    """Raise FailedError if one of the file systems has hardly any space left."""
    for folder in disks:
        there = os.statvfs(folder)
        if there.f_bavail * there.f_frsize < SPARED_BYTES:
            raise FailedError(
                f"the file system of {folder} has less than {SPARED_BYTES // 2**20} MiB left, "
                "which a build leaves to others; make room there"
            )


def refuse_no_room(folder: str, root: str) -> None:
    """Raise FailedError if a file with all that is in `root` may fill the disk of `folder`."""
    size = int(checked(["du", "--summarize", "--block-size=1", root]).split()[0])
    there = os.statvfs(folder)
    if (free := there.f_bavail * there.f_frsize) < size + SPARED_BYTES:
        raise FailedError(
            f"the file system of {folder} has {free // 2**20} MiB left, and needs "
            f"{(size + SPARED_BYTES) // 2**20} MiB, of which {SPARED_BYTES // 2**20} MiB are left "
            "to others; make room there"
        )
