#!/usr/bin/python3 -I
# SPDX-License-Identifier: Apache-2.0
"""Mount the disk on which a node keeps what it read of shared folders: /var/cache/fscache.

    muster_cache_disk.py --device DEVICE [--check]
    muster_cache_disk.py --file FILE --gib N [--check]

Run at each boot (muster-cache-disk.service) and in each play. A separate disk, and not a folder
of the root disk: cachefilesd(8) culls by the free space of the whole file system.

What is on it can be read again from the server, so a damaged file system of Muster's is
recreated. A device that holds anything else is refused, also what libblkid does not know: only one
of zeros is blank. Local disks of a VM are so after it was off.

Every change is printed as a line; without any there is nothing to do. `--check` says what would be
done, and does nothing. Runs with the Python of the system and disks.py alone.
"""

import argparse
import os
import sys
from collections.abc import Iterator

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
try:
    from disks import Content, DiskError, content, is_zero, run, wait_for
except (ImportError, SyntaxError, ValueError) as error:
    sys.exit(
        f"{sys.path[0]}/disks.py is missing or damaged ({error}); apply the role fscache again (a "
        "node in the cloud: power it down, and SLURM makes another)"
    )

MOUNTED_AT = "/var/cache/fscache"
LABEL = "muster-cache"
OURS = Content("ext4", LABEL)
DEVICE_SECONDS = 30
"""How long a device may take to appear at boot."""
GIB = 2**30
SPARE = 2 * GIB
"""What must be left of the root disk beside the file."""


def is_sound(source: str) -> bool:
    """Whether the file system is whole, or could be repaired."""
    code, _ = run("e2fsck", "-p", source, codes=range(256))
    # e2fsck(8): 0 nothing was wrong, 1 repaired.
    return code in (0, 1)


def make(source: str, *options: str) -> None:
    """Make the file system, with no space kept for root."""
    run("mkfs.ext4", "-q", "-F", "-m", "0", "-L", LABEL, *options, source)


class Device:
    """A whole disk or partition."""

    option: tuple[str, ...] = ()

    def __init__(self, path: str) -> None:
        self.path = path

    def is_source(self, source: str) -> bool:
        """Whether what is mounted from the device `source` is this disk."""
        return os.path.realpath(source) == os.path.realpath(self.path)

    def make(self) -> None:
        """Make its file system."""
        make(self.path)

    def provide(self, act: bool) -> Iterator[str]:
        """Yield a line for each change, before it is made."""
        wait_for(
            self.path,
            DEVICE_SECONDS if act else 0,
            "name another in storage.cache.device of the definition, or take it out for a file on "
            "the root disk",
        )
        held = content(self.path)
        if held not in (None, OURS):
            raise DiskError(
                f"{self.path} holds {held}, so it is not formatted; if nothing on it is needed, "
                f"wipefs --all {self.path} && blkdiscard --zeroout {self.path}, and run again"
            )
        if held is None and not is_zero(self.path):
            raise DiskError(
                f"{self.path} holds something that is no file system, so it is not formatted; if "
                f"nothing on it is needed, blkdiscard --zeroout {self.path}, and run again (a node "
                "in the cloud: power it down, and SLURM makes another)"
            )
        if held is None or not is_sound(self.path):
            yield f"{self.path}: make a file system"
            if act:
                self.make()


class File:
    """A file on the root disk, mounted as a disk."""

    option: tuple[str, ...] = ("-o", "loop")

    def __init__(self, path: str, gib: int) -> None:
        self.path = path
        self.bytes = gib * GIB

    def is_source(self, source: str) -> bool:
        """Whether what is mounted from the device `source` is this disk."""
        path = f"/sys/block/{os.path.basename(source)}/loop/backing_file"
        if not os.path.exists(path):
            return False
        with open(path, encoding="utf-8") as stream:
            return stream.read().strip() == self.path

    def make(self) -> None:
        """Make the file and its file system."""
        # Beside, so that a run that is killed leaves no half of it under the name.
        made = f"{self.path}.new"
        for old in (made, self.path):
            if os.path.exists(old):
                os.unlink(old)
        # All of it now: a write to a sparse one could fail for want of space.
        run("fallocate", "--length", str(self.bytes), made)
        os.chmod(made, 0o600)
        # Or mkfs gives the space back at once.
        make(made, "-E", "nodiscard")
        os.rename(made, self.path)

    def provide(self, act: bool) -> Iterator[str]:
        """Yield a line for each change, before it is made."""
        held = os.stat(self.path).st_size if os.path.exists(self.path) else 0
        if held == self.bytes and content(self.path) == OURS and is_sound(self.path):
            return
        room = os.statvfs(os.path.dirname(self.path))
        free = room.f_bavail * room.f_frsize + held
        if free - self.bytes < SPARE:
            raise DiskError(
                f"{self.path}: {free // GIB} GiB are free, too few for {self.bytes // GIB} GiB and "
                f"{SPARE // GIB} GiB to spare; lower storage.cache.size_gib of the definition, or "
                "name a device"
            )
        yield f"{self.path}: make a file of {self.bytes // GIB} GiB with a file system"
        if act:
            self.make()


def mounted_source() -> str | None:
    """Return what is mounted at MOUNTED_AT, or None."""
    code, out = run("findmnt", "--noheadings", "--output", "SOURCE", MOUNTED_AT, codes=(0, 1))
    return out.strip() if code == 0 else None


def apply(disk: Device | File, act: bool) -> Iterator[str]:
    """Yield a line for each change, before it is made."""
    source = mounted_source()
    if source is not None:
        if not disk.is_source(source):
            # Now, while somebody looks: the boot that takes it would be without a cache.
            for _ in disk.provide(act=False):
                pass
            print(
                f"{source} stays the cache until the next boot, then {disk.path} is",
                file=sys.stderr,
            )
        return
    yield from disk.provide(act)
    yield f"{MOUNTED_AT}: mount {disk.path}"
    if not act:
        return
    os.makedirs(MOUNTED_AT, mode=0o700, exist_ok=True)
    mount = ("mount", "-t", "ext4", *disk.option, disk.path, MOUNTED_AT)
    # mount(8): 32 is a failure of the mount itself.
    code, _ = run(*mount, codes=(0, 32))
    if code != 0:
        # More is wrong with it than a quick check of a clean file system finds.
        yield f"{disk.path}: make a file system in place of one that can't be mounted"
        disk.make()
        run(*mount)


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", help="device that is the disk")
    parser.add_argument("--file", help="file that is the disk")
    parser.add_argument("--gib", type=int, help="size of the file, in GiB")
    parser.add_argument("--check", action="store_true", help="say what would be done, do nothing")
    asked = parser.parse_args()
    disk = Device(asked.device) if asked.device else File(asked.file, asked.gib)
    try:
        for line in apply(disk, not asked.check):
            print(line, flush=True)
    except (DiskError, OSError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
