#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Mount the disk that outlives this machine, and put the machine's folders on it.

    muster_state_disk.py apply    at each boot (muster-state-disk.service) and in each play
    muster_state_disk.py check    say what `apply` would do, and do nothing

A disk of zeros gets an ext4 file system; one with anything else on it is never formatted, known or
not: a damaged file system can be repaired. A file system that is
smaller than its disk grows. Each folder is bound to the folder of the same path on the
disk: what the machine has there moves to the disk once, while the daemons that use it are down;
from then on the disk's content wins. The ssh host keys are kept there too, so that a recreated
machine has the same ones.

Every change is printed as a line; without any there is nothing to do. Settings:
/etc/muster/state-disk.json, written by the role state_disk. Runs with the Python of the system and
disks.py alone.
"""

import fcntl
import filecmp
import glob
import grp
import json
import os
import pwd
import shutil
import sys
from collections.abc import Iterator
from typing import TypedDict

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
try:
    from disks import Content, DiskError, content, run, wait_for
except (ImportError, SyntaxError, ValueError) as error:
    sys.exit(
        f"{sys.path[0]}/disks.py is missing or damaged ({error}); apply the role state_disk again"
    )

SETTINGS = "/etc/muster/state-disk.json"
LOCK = "/run/muster-state-disk.lock"
LABEL = "muster-state"
OURS = Content("ext4", LABEL)
HOST_KEYS = "/etc/ssh/ssh_host_*"
DEVICE_SECONDS = 90
"""How long a disk may take to appear at boot, as systemd waits for one."""
MIB = 2**20
SAMPLES_MIB = (*range(16), *(128 * group for group in (1, 3, 5, 7, 9, 25, 27, 49)))
"""Where a disk is read to see whether it is blank: its head, and ext4's copies (mke2fs(8))."""
GROWS_FROM_BYTES = 16 * 2**20
"""A file system is at most a little smaller than its disk: blocks come in groups."""


class Folder(TypedDict):
    """A folder of the machine that lies on the disk."""

    path: str
    owner: str
    """Empty: whom it belongs to is not this program's concern."""
    group: str
    units: list[str]
    """What uses it."""


class Settings(TypedDict):
    """What the role says."""

    device: str
    path: str
    """Where the disk is mounted."""
    folders: list[Folder]


class StateDisk:
    """The disk and its folders; `act`: make changes, do not only report them."""

    def __init__(self, settings: Settings, act: bool) -> None:
        self.device = settings["device"]
        self.root = settings["path"]
        self.folders = settings["folders"]
        self.act = act

    def apply(self) -> Iterator[str]:
        """Yield a line for each change, before it is made."""
        self.wait_for_device()
        if self.is_blank():
            yield f"{self.device}: make a file system"
            if not self.act:
                return  # the rest follows from it
            run("mkfs.ext4", "-q", "-L", LABEL, "-m", "0", self.device)
        mounted = os.path.ismount(self.root)
        if self.can_grow():
            yield f"{self.root}: grow to the size of its disk"
            if self.act:
                if not mounted:
                    # resize2fs needs it; 1: it has repaired something.
                    run("e2fsck", "-f", "-p", self.device, codes=(0, 1))
                run("resize2fs", self.device)
        if not mounted:
            yield f"{self.root}: mount {self.device}"
            if not self.act:
                return
            os.makedirs(self.root, exist_ok=True)
            run("mount", "-t", "ext4", self.device, self.root)
        for folder in self.folders:
            yield from self.own(folder)
            yield from self.bind(folder)
        yield from self.keep_host_keys()

    def wait_for_device(self) -> None:
        """Return when the disk is there; udev may be slower than this program."""
        wait_for(
            self.device,
            DEVICE_SECONDS if self.act else 0,
            "attach the state disk to this machine under that name and run again",
        )

    def is_blank(self) -> bool:
        """Whether the disk has nothing on it; refuse it if it holds anything but Muster's."""
        held = content(self.device)
        if held not in (None, OURS):
            raise DiskError(
                f"{self.device} holds {held}, and not the state of a cluster ({OURS}); attach "
                "another disk, or, if nothing on it is needed, "
                f"blkdiscard --zeroout {self.device} and run again"
            )
        if held is None:
            self.refuse_content()
        return held is None

    def refuse_content(self) -> None:
        """Refuse a disk that libblkid does not recognise, unless it is zero wherever it is read."""
        try:
            blank = is_zero(self.device)
        except OSError as error:
            raise DiskError(
                f"{self.device} can't be read ({error.strerror}), so it is not formatted; look at "
                "`dmesg`"
            ) from error
        if not blank:
            raise DiskError(
                f"{self.device} holds something that is no file system any more, so it is not "
                "formatted: repair it (e2fsck; mke2fs -n says where copies of a lost superblock "
                f"are), or, if nothing on it is needed, blkdiscard --zeroout {self.device} and run "
                "again"
            )

    def can_grow(self) -> bool:
        """Whether the disk is larger than the file system on it, in bytes."""
        _, out = run("dumpe2fs", "-h", self.device)
        values = dict(line.split(":", 1) for line in out.splitlines() if ":" in line)
        size = int(values["Block count"]) * int(values["Block size"])
        _, disk = run("blockdev", "--getsize64", self.device)
        return int(disk) - size >= GROWS_FROM_BYTES

    def own(self, folder: Folder) -> Iterator[str]:
        """Give a folder of the disk to its owner, whose number may be another in this image."""
        kept = self.root + folder["path"]
        wanted = ids_of(folder)
        if wanted is None or not os.path.isdir(kept):
            return
        state = os.stat(kept)
        if (state.st_uid, state.st_gid) != wanted:
            yield f"{kept}: give it to {folder['owner']}:{folder['group']}"
            if self.act:
                # Files of other owners in it stay as they are.
                options = ["--recursive", "--no-dereference"]
                options.append(f"--from={state.st_uid}:{state.st_gid}")
                run("chown", *options, f"{wanted[0]}:{wanted[1]}", kept)

    def bind(self, folder: Folder) -> Iterator[str]:
        """Bind a folder to the disk's; what it holds goes there if the disk has none yet."""
        path, kept = folder["path"], self.root + folder["path"]
        if os.path.isdir(path) and os.path.isdir(kept) and os.path.samefile(path, kept):
            return
        active = [unit for unit in folder["units"] if is_active(unit)]
        if not os.path.isdir(kept):
            yield f"{path}: move it to {kept}"
        yield f"{path}: bind it to {kept}"
        if not self.act:
            return
        for unit in active:
            run("systemctl", "stop", unit)
        if not os.path.isdir(kept):
            self.move_in(path, kept)
        os.makedirs(path, exist_ok=True)
        run("mount", "--bind", kept, path)
        for unit in active:
            # Not waited for: the unit may wait for the one that this program runs in.
            run("systemctl", "start", "--no-block", unit)

    def move_in(self, path: str, kept: str) -> None:
        """Copy a folder to the disk under another name, then give it its own: all or nothing."""
        half = f"{self.root}/.new"
        shutil.rmtree(half, ignore_errors=True)
        os.makedirs(os.path.dirname(kept), exist_ok=True)
        if os.path.isdir(path):
            run("cp", "--archive", "--one-file-system", path, half)
        else:
            os.mkdir(half, 0o755)
        run("sync", "--file-system", self.root)
        os.rename(half, kept)

    def keep_host_keys(self) -> Iterator[str]:
        """Bring the host keys of the disk to this machine; the first machine gives its own."""
        folder = self.root + "/etc/ssh"
        kept = sorted(glob.glob(folder + "/" + os.path.basename(HOST_KEYS)))
        if kept:
            there = os.path.dirname(HOST_KEYS)
            new = [key for key in kept if not same(key, f"{there}/{os.path.basename(key)}")]
            if new:
                yield f"{HOST_KEYS}: take those of {folder}"
                if self.act:
                    copy(new, there)
                    # sshd reads them again; where it is not started yet, it will.
                    run("systemctl", "try-reload-or-restart", "--no-block", "ssh", codes=(0, 5))
        elif own := sorted(glob.glob(HOST_KEYS)):
            yield f"{HOST_KEYS}: keep them in {folder}"
            if self.act:
                os.makedirs(folder, mode=0o700, exist_ok=True)
                half = folder + ".new"
                shutil.rmtree(half, ignore_errors=True)
                os.mkdir(half, 0o700)
                copy(own, half)
                os.rmdir(folder)
                os.rename(half, folder)


def ids_of(folder: Folder) -> tuple[int, int] | None:
    """Return the numbers of a folder's owner and group; None if there are none, or not yet."""
    if not folder["owner"]:
        return None
    try:
        return pwd.getpwnam(folder["owner"]).pw_uid, grp.getgrnam(folder["group"]).gr_gid
    except KeyError:
        return None  # its package is not installed yet


def is_active(unit: str) -> bool:
    """Whether a unit runs or is starting."""
    _, state = run("systemctl", "show", "--property=ActiveState", "--value", unit)
    return state.strip() in ("active", "activating", "reloading")


def same(one: str, other: str) -> bool:
    """Whether two files have the same content."""
    return os.path.exists(other) and filecmp.cmp(one, other, shallow=False)


def is_zero(device: str) -> bool:
    """Whether a disk is zero wherever SAMPLES_MIB looks, and at its end."""
    with open(device, "rb") as disk:
        size = disk.seek(0, os.SEEK_END)
        for place in (*(number * MIB for number in SAMPLES_MIB), size - MIB):
            if 0 <= place < size:
                disk.seek(place)
                if disk.read(MIB).strip(b"\0"):
                    return False
    return True


def copy(files: list[str], folder: str) -> None:
    """Copy files with their modes into a folder, each at once."""
    for file in files:
        target = f"{folder}/{os.path.basename(file)}"
        new = f"{target}.new"
        if os.path.exists(new):
            os.remove(new)
        # No other user may open a key while it is written.
        made = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(file, "rb") as source, open(made, "wb") as copied:
            shutil.copyfileobj(source, copied)
        shutil.copystat(file, new)
        os.rename(new, target)


def main(arguments: list[str]) -> int:
    """Run what the command line asks for; return the exit code."""
    if arguments not in (["apply"], ["check"]):
        print("usage: muster_state_disk.py apply|check", file=sys.stderr)
        return 2
    with open(SETTINGS, encoding="utf-8") as file:
        settings = json.load(file)
    with open(LOCK, "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            for line in StateDisk(settings, act=arguments == ["apply"]).apply():
                print(line, flush=True)
        except (DiskError, OSError) as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
