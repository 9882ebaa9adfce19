#!/usr/bin/python3 -I
# SPDX-License-Identifier: Apache-2.0
"""Look whether this host mounts packed releases of modules when somebody enters them.

    muster-check-packed FOLDER

FOLDER has the files. Installed by Muster's role `lmod` where modules have `form: squashfs`; run at
the end of each site.yml. Enters the newest release. Exit code 1: a line for each fault.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence

PLACE = "/usr/local/lib/muster/releases"
"""Where autofs mounts them; muster-build makes links to it."""

ENDING = ".squashfs"


def has_squashfs() -> bool:
    """Whether the kernel can mount it; its module is loaded if it is one."""
    # Where the program is not installed, no module can be loaded.
    with contextlib.suppress(FileNotFoundError):
        subprocess.run(["/sbin/modprobe", "--quiet", "squashfs"], check=False)
    with open("/proc/filesystems", encoding="utf-8") as stream:
        return any(line.split()[-1:] == ["squashfs"] for line in stream)


def is_automounted(place: str, mountinfo: str) -> bool:
    """Whether autofs waits at a folder, by the text of /proc/self/mountinfo (proc(5))."""
    # People name mounts: what else Python takes for the end of a line or a word may be in there.
    rows = (line.split(" ") for line in mountinfo.split("\n") if line)
    return any(row[4] == place and row[row.index("-") + 1] == "autofs" for row in rows)


def newest(folder: str) -> str | None:
    """Return the name of the release that was packed last; None if there is none."""
    if not os.path.isdir(folder):
        return None
    packed = [entry for entry in os.scandir(folder) if entry.name.endswith(ENDING)]
    last = max(packed, key=lambda entry: entry.stat().st_mtime, default=None)
    return last.name.removesuffix(ENDING) if last else None


def faults(folder: str, place: str, mountinfo: str) -> Iterator[str]:
    """Yield a sentence for what keeps this host from mounting releases."""
    if not has_squashfs():
        yield (
            f"kernel {os.uname().release} has no squashfs, so modules with `form: squashfs` don't "
            "work on this host; boot the distribution's own kernel, or take `form` out of them"
        )
    if not is_automounted(place, mountinfo):
        yield (
            f"autofs does not serve {place}, so modules with `form: squashfs` don't work on this "
            "host; see journalctl -u autofs, keep the line +dir:/etc/auto.master.d in "
            "/etc/auto.master, and run site.yml, which configures the rest"
        )
        return
    release = newest(folder)
    if release is None:
        return
    image = f"{folder}/{release}{ENDING}"
    there = os.stat(image)
    if there.st_uid != os.geteuid() or there.st_mode & 0o022:
        yield (
            f"{image} is not mounted on this host, since others than root could write to it: here "
            f"its owner is user {there.st_uid} and its mode {there.st_mode & 0o777:o}; if that is "
            "so on the controller too, remove it there and run site.yml, else have this host and "
            "the file server agree on owners (nfs_client_idmap_domain)"
        )
        return
    try:
        os.listdir(f"{place}/{release}")
    except OSError as error:
        yield (
            f"{image} can't be mounted on this host: {error.strerror}; see "
            "journalctl -u autofs and dmesg"
        )


def main(arguments: Sequence[str]) -> int:
    """Run the program; return its exit code."""
    with open("/proc/self/mountinfo", "rb") as stream:
        found = list(faults(arguments[0], PLACE, os.fsdecode(stream.read())))
    sys.stdout.writelines(f"{line}\n" for line in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
