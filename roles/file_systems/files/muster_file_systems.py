#!/usr/bin/python3 -I
# SPDX-License-Identifier: Apache-2.0
"""Mount the disks that outlive this machine, and the files that hold shared folders.

    muster_file_systems.py apply    at each boot (muster-file-systems.service) and in each play
    muster_file_systems.py check    say what `apply` would do, or why it can't, and do nothing

A disk of zeros gets an ext4 file system; one with anything else on it is never formatted, known or
not: a damaged file system can be repaired. A file system that is smaller than its disk grows. What
the machine has at the mount point moves in once, when the file system is made, while the daemons
that use it are down; from then on the file system's content wins. e2fsck looks at it before it is
mounted, and what it can't repair by itself is not mounted.

In place of a disk there may be a file of a fixed size, whose room is taken from the disk below it
at once. It never becomes smaller. One that was made before and is missing is not made again.

Folders of the machine may be bound to the folders of the same paths on a disk, and move there in
the same way. One disk may keep the ssh host keys too, so that a recreated machine has the same
ones.

Every change is printed as a line; without any there is nothing to do. Settings:
/etc/muster/file-systems.json, written by the role file_systems, or another file that is named. Runs
with the Python of the system, disks.py, mount_table.py and open_files.py alone.
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
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
try:
    from disks import Content, DiskError, content, is_zero, run, wait_for
    from mount_table import not_mounted
    from open_files import writers
except (ImportError, SyntaxError, ValueError) as error:
    sys.exit(
        f"{sys.path[0]}/disks.py, mount_table.py or open_files.py is missing or damaged ({error}); "
        "apply the role file_systems again"
    )

SETTINGS = "/etc/muster/file-systems.json"
FILES = "/var/lib/muster/file-systems"
"""Where the files are that take the place of disks."""
RECORD = "/etc/muster/file-systems.made"
"""Which of them were made, with a date. It is not on a disk that may be missing with them."""
LOCK = "/run/muster-file-systems.lock"
HALF_MADE = "muster-new"
"""Label until all is in a file system that belongs there."""
HOST_KEYS = "/etc/ssh/ssh_host_*"
DEVICE_SECONDS = 90
"""How long a disk may take to appear at boot, as systemd waits for one."""
READ_ONLY = "errors=remount-ro"
"""Mount option: after an error nothing makes the damage larger."""
HALF_AT = "/run/muster-file-system.new"
"""Where a file system is mounted while it is made."""
KEPT_PART = 10
"""Part of a disk that no file may take: 1/10."""
USABLE = 0.9
"""Part of a disk, or of its free room, that what moves in may need."""
NAMED = 3
"""How many processes a sentence names."""
GROWS_FROM_BYTES = 16 * 2**20
"""A file system is at most a little smaller than its disk: blocks come in groups."""


@dataclass(frozen=True)
class Folder:
    """A folder of the machine that lies on a disk."""

    path: str
    owner: str = ""
    """By name. Empty: whom it belongs to is not this program's concern."""
    group: str = ""
    units: Sequence[str] = ()
    """What uses it."""


@dataclass(frozen=True)
class Mount:
    """A file system of the machine."""

    path: str
    """Where it is mounted."""
    label: str
    """What the file system is known by."""
    device: str = ""
    """Its disk. Empty: a file has it."""
    size_gib: int = 0
    """Size of the file."""
    options: Sequence[str] = ()
    """Of the mount."""
    units: Sequence[str] = ()
    """What uses it."""
    folders: Sequence[dict[str, Any]] = ()
    """Folders of the machine that lie on it, at their paths below `path`."""
    host_keys: bool = False
    """Whether it keeps the ssh host keys."""
    project_quotas: bool = False
    """Whether folders in it may have quotas; the role `quotas` sets them."""

    @property
    def file(self) -> str:
        """The file in place of a disk."""
        return f"{FILES}/{self.label}"

    @property
    def instead(self) -> str:
        """What else an administrator can do, for the end of a sentence."""
        places = " and ".join(folder["path"] for folder in self.folders) or self.path
        return f"mount a disk at {places} and say null for its size in the definition"


def change(*command: str, codes: Sequence[int] = (0,)) -> int:
    """Run a command that changes a file system; return its exit code. Raises DiskError.

    On a large one it takes hours, and if it was killed in the middle there would be damage.
    """
    code, _ = run(*command, codes=codes, seconds=None)
    return code


class FileSystem:
    """One file system and its folders; `act`: make changes, do not only report them."""

    def __init__(self, mount: Mount, act: bool) -> None:
        self.mount = mount
        self.folders = [Folder(**folder) for folder in mount.folders]
        self.root = mount.path
        self.paths = [self.root, *(folder.path for folder in self.folders)]
        """What moves in."""
        self.units = [*mount.units, *(unit for folder in self.folders for unit in folder.units)]
        """What uses that."""
        self.half = f"{mount.path}/.new"
        """A folder that is being moved in; it is never used."""
        self.device = mount.device
        """Empty: the file has no loop device yet."""
        self.act = act

    def apply(self) -> Iterator[str]:
        """Yield a line for each change, before it is made."""
        mounted = os.path.ismount(self.root)
        for folder in self.folders:
            self.refuse_other_folder(folder)
        if not self.device:
            yield from self.take_room()
            if not self.device:
                return  # the rest follows from it
        self.wait_for_device()
        if mounted:
            self.refuse_other()
            yield from self.adapt(mounted)
        else:
            yield from self.bring()
            if not self.act:
                return
        if not self.mount.device:
            yield from self.note()
        for folder in self.folders:
            yield from self.own(folder)
            yield from self.bind(folder)
        if self.mount.host_keys:
            yield from self.keep_host_keys()

    def bring(self) -> Iterator[str]:
        """Make the file system if there is none, and mount it."""
        new = self.is_to_make()
        if new:
            refuse_writers(self.paths, self.units)
            if self.mount.device:
                self.refuse_too_large(self.paths, self.size())
            yield f"{self.device}: make a file system"
            if not self.act:
                return
        # One stop for all of it: the mount would hide what is written after the copy.
        with stopped(self.mount.units if self.act else ()):
            if new:
                self.make()
            elif self.act:
                yield from self.check()
            yield from self.adapt(mounted=False)
            yield f"{self.root}: mount {self.device}"
            if self.act:
                self.mount_it(new)

    def adapt(self, mounted: bool) -> Iterator[str]:
        """Give the file system the size of its disk, and what quotas need."""
        if self.can_grow():
            yield f"{self.root}: grow to the size of its disk"
            if self.act:
                if not mounted:
                    yield from self.check("-f")  # resize2fs needs it
                change("resize2fs", self.device)
        # Not while it is mounted: the role `quotas` says then what to do.
        if self.mount.project_quotas and not mounted and not self.counts_projects():
            yield f"{self.device}: count what belongs to a project, for quotas"
            if self.act:
                yield from self.check("-f")
                change("tune2fs", "-O", "quota,project", "-Q", "prjquota", self.device)

    def mount_it(self, new: bool) -> None:
        """Mount the file system; a new one is made again if that fails, as the folder is in use."""
        os.makedirs(self.root, exist_ok=True)
        quotas = ["prjquota"] if self.mount.project_quotas else []
        options = ",".join([READ_ONLY, *self.mount.options, *quotas])
        if new:
            run("e2label", self.device, self.mount.label)
        try:
            if new:
                refuse_writers([self.root])
            run("mount", "-t", "ext4", "-o", options, self.device, self.root)
        except BaseException:
            if new:
                run("e2label", self.device, HALF_MADE)
            raise
        if not self.mount.device:
            # While it is mounted it stays: it goes with the last mount.
            run("losetup", "--detach", self.device)

    def refuse_other(self) -> None:
        """Refuse what is mounted at the folder if it is not this disk."""
        if os.stat(self.root).st_dev != os.stat(self.device).st_rdev:
            raise DiskError(
                f"{self.root} has another file system than that of {self.device}: unmount it and "
                "run again"
            )

    def take_room(self) -> Iterator[str]:
        """Make the file and its loop device, or make it larger; sets `device` where there is one.

        Raises:
            DiskError: there is too little room, the file is larger than it is to be, it was made
                and is missing, or the disk on which it belongs is.

        """
        file, wanted = self.mount.file, self.mount.size_gib * 2**30
        self.refuse_link()
        size = os.stat(file).st_size if os.path.exists(file) else 0
        if not size:
            refuse_unmounted()
            self.refuse_missing()
        if not size and os.path.ismount(self.root):
            raise DiskError(
                f"a disk is mounted at {self.root}: say null for its size in the definition, or "
                "unmount it and run again"
            )
        if size > wanted:
            raise DiskError(
                f"{file} has {size // 2**30} GiB and is never made smaller; set its size to that "
                f"or more, or move what is in {self.root} elsewhere, unmount it, and remove the "
                f"file and its line in {RECORD}"
            )
        if not size:
            refuse_writers(self.paths, self.units)
            self.refuse_too_large(self.paths, wanted)
            self.refuse_without_loop_device()
        if size < wanted:
            self.refuse_without_room(wanted - size)
            yield f"{file}: take {(wanted - size) / 2**30:g} GiB"
            if self.act:
                take(file, wanted)
        _, out = run("losetup", "--noheadings", "--output", "NAME", "--associated", file)
        self.device = out.split()[0] if out.split() else ""
        if not self.act:
            return
        if not self.device:
            _, out = run("losetup", "--find", "--show", "--direct-io=on", file)
            self.device = out.strip()
            # What is trimmed would go back to the disk below, and others could take it.
            queue = f"/sys/block/{os.path.basename(self.device)}/queue/discard_max_bytes"
            with open(queue, "w", encoding="ascii") as bytes_at_once:
                bytes_at_once.write("0")
        elif size < wanted:
            run("losetup", "--set-capacity", self.device)

    def note(self) -> Iterator[str]:
        """Record that the file was made."""
        noted = files_made()
        if self.mount.label in noted:
            return
        yield f"{RECORD}: note that {self.mount.file} is there"
        if self.act:
            noted[self.mount.label] = time.strftime("%Y-%m-%d")
            os.makedirs(os.path.dirname(RECORD), exist_ok=True)
            with open(f"{RECORD}.new", "w", encoding="utf-8") as new:
                new.write(f"# Files in {FILES}. One that has a line here is not made again.\n")
                new.writelines(f"{label} {date}\n" for label, date in noted.items())
            run("sync", f"{RECORD}.new")
            os.rename(f"{RECORD}.new", RECORD)
            run("sync", os.path.dirname(RECORD))

    def refuse_missing(self) -> None:
        """Refuse to make a file again: with an empty one an old state would seem to be lost."""
        date = files_made().get(self.mount.label)
        if date is None:
            return
        mounted = os.path.ismount(self.root)
        still = f" {self.root} is still mounted, so first copy what is in it;" if mounted else ""
        raise DiskError(
            f"{self.mount.file} is missing or empty, and it was there on {date};{still} bring the "
            "file back (mount the disk on which it lies, or restore it), or, if nothing in it is "
            f"needed, remove its line in {RECORD}, and run again"
        )

    def refuse_link(self) -> None:
        """Refuse a link on the way to the file: systemd mounts for a path, not for what it is."""
        real = os.path.realpath(self.mount.file)
        if real != self.mount.file:
            raise DiskError(
                f"{self.mount.file} is {real} by a link, and a boot does not wait for the disk "
                "behind a link; put a folder in place of the link, mount or bind there what it led "
                "to, with a line in /etc/fstab, and run again"
            )

    def refuse_other_folder(self, folder: Folder) -> None:
        """Refuse a folder that an administrator has put elsewhere: it would be hidden."""
        path, kept = folder.path, self.root + folder.path
        if os.path.islink(path) or (os.path.ismount(path) and not same_folder(path, kept)):
            raise DiskError(
                f"{path} is a link or has another file system than {self.root}: say null for its "
                "size in the definition and leave it there, or take that away and run again"
            )

    def refuse_too_large(self, paths: Sequence[str], room: int) -> None:
        """Refuse folders that do not fit into so many bytes, before what uses them is stopped."""
        there = [path for path in paths if os.path.isdir(path)]
        if not there:
            return
        command = ("du", "--total", "--summarize", "--one-file-system", "--block-size=1", *there)
        _, out = run(*command, codes=(0, 1))  # 1: a file has gone meanwhile
        needed = int(out.splitlines()[-1].split()[0])
        if needed > room * USABLE:
            raise DiskError(
                f"{' and '.join(there)}: {needed / 2**30:.1f} GiB do not fit into "
                f"{room / 2**30:.1f} GiB; set a larger size in the definition, or remove what "
                "nobody needs, and run again"
            )

    def refuse_without_loop_device(self) -> None:
        """Refuse a machine on which no file can take the place of a disk."""
        try:
            run("losetup", "--find")
        except DiskError as error:
            raise DiskError(f"no loop device: {error}; {self.mount.instead}") from error

    def refuse_without_room(self, more: int) -> None:
        """Refuse to take so many bytes of the disk below where others need them."""
        below = FILES
        while not os.path.exists(below):
            below = os.path.dirname(below)
        disk = os.statvfs(below)
        spare = disk.f_bavail * disk.f_frsize - more
        kept = disk.f_blocks * disk.f_frsize // KEPT_PART
        if spare < kept:
            raise DiskError(
                f"{self.mount.file} needs {more / 2**30:.1f} GiB more, and "
                f"{(kept - spare) / 2**30:.1f} GiB are missing, with what the machine itself keeps "
                "(a tenth of its disk); make room, say a smaller size in the definition, or "
                f"{self.mount.instead}"
            )

    def wait_for_device(self) -> None:
        """Return when the disk is there; udev may be slower than this program."""
        wait_for(
            self.device,
            DEVICE_SECONDS if self.act else 0,
            "attach the disk to this machine under that name and run again",
        )

    def is_to_make(self) -> bool:
        """Whether the disk has nothing on it that counts; refuse it if it holds anything else."""
        held, ours = content(self.device), Content("ext4", self.mount.label)
        if held == Content("ext4", HALF_MADE):
            return True
        if held not in (None, ours):
            raise DiskError(
                f"{self.device} holds {held}, and not what belongs there ({ours}); attach "
                "another disk, or, if nothing on it is needed, "
                f"wipefs --all {self.device} && blkdiscard --zeroout {self.device}, and run again"
            )
        if held is None:
            self.refuse_content()
        return held is None

    def make(self) -> None:
        """Make the file system with what the machine has at its mount point, as half made."""
        features = ["-O", "quota,project", "-E", "quotatype=prjquota"]
        quotas = features if self.mount.project_quotas else []
        change("mkfs.ext4", "-q", "-F", "-L", HALF_MADE, "-m", "0", *quotas, self.device)
        if os.path.isdir(self.root) and os.listdir(self.root):
            os.makedirs(HALF_AT, mode=0o700, exist_ok=True)
            run("mount", "-t", "ext4", "-o", READ_ONLY, self.device, HALF_AT)
            try:
                change("cp", "--archive", "--one-file-system", f"{self.root}/.", HALF_AT)
            finally:
                run("umount", HALF_AT)

    def refuse_content(self) -> None:
        """Refuse a disk that libblkid does not recognise, unless it is zero wherever it is read."""
        if not is_zero(self.device):
            raise DiskError(
                f"{self.device} holds something that is no file system any more, so it is not "
                "formatted: repair it (e2fsck; mke2fs -n says where copies of a lost superblock "
                f"are), or, if nothing on it is needed, blkdiscard --zeroout {self.device}, and "
                "run again"
            )

    def can_grow(self) -> bool:
        """Whether the disk is larger than the file system on it, in bytes."""
        values = self.superblock()
        size = int(values["Block count"]) * int(values["Block size"])
        return self.size() - size >= GROWS_FROM_BYTES

    def size(self) -> int:
        """Size of the disk in bytes."""
        _, out = run("blockdev", "--getsize64", self.device)
        return int(out)

    def counts_projects(self) -> bool:
        """Whether the file system counts what belongs to a project (project quotas, ext4(5))."""
        return "Project quota inode" in self.superblock()

    def superblock(self) -> dict[str, str]:
        """Return what dumpe2fs(8) says of the file system."""
        _, out = run("dumpe2fs", "-h", self.device)
        return dict(line.split(":", 1) for line in out.splitlines() if ":" in line)

    def check(self, *options: str) -> Iterator[str]:
        """Check the file system, which is not mounted, and repair what is safe to repair.

        Without options it is fast where neither the journal nor an error says that it is needed.

        Raises:
            DiskError: a person has to decide what to repair.

        """
        try:
            code = change("e2fsck", "-p", *options, self.device, codes=(0, 1))
        except DiskError as error:
            raise DiskError(
                f"{' '.join(str(error).split())}; repair it with `e2fsck -f {self.device}` "
                "(unmount it first if it is mounted elsewhere), and run again"
            ) from error
        if code == 1:
            yield f"{self.root}: e2fsck has repaired {self.device}"

    def own(self, folder: Folder) -> Iterator[str]:
        """Give a folder of the disk to its owner, whose number may be another in this image."""
        kept = self.root + folder.path
        wanted = ids_of(folder)
        if wanted is None or not os.path.isdir(kept):
            return
        state = os.stat(kept)
        if (state.st_uid, state.st_gid) != wanted:
            yield f"{kept}: give it to {folder.owner}:{folder.group}"
            if self.act:
                # Files of other owners in it stay as they are.
                options = ["--recursive", "--no-dereference"]
                options.append(f"--from={state.st_uid}:{state.st_gid}")
                change("chown", *options, f"{wanted[0]}:{wanted[1]}", kept)

    def bind(self, folder: Folder) -> Iterator[str]:
        """Bind a folder to the disk's; what it holds goes there if the disk has none yet."""
        path, kept = folder.path, self.root + folder.path
        if same_folder(path, kept):
            return
        if not os.path.isdir(kept):
            refuse_writers([path], folder.units)
            if self.act:
                there = os.statvfs(self.root)
                self.refuse_too_large([path], there.f_bavail * there.f_frsize)
            yield f"{path}: move it to {kept}"
        yield f"{path}: bind it to {kept}"
        if not self.act:
            return
        with stopped(folder.units):
            new = not os.path.isdir(kept)
            if new:
                self.move_in(path, kept)
            try:
                if new:
                    refuse_writers([path])
                os.makedirs(path, exist_ok=True)
                run("mount", "--bind", kept, path)
            except BaseException:
                if new:
                    # As in mount_it: what uses the folder writes on there.
                    os.rename(kept, self.half)
                raise

    def move_in(self, path: str, kept: str) -> None:
        """Copy a folder to the disk under another name, then give it its own: all or nothing."""
        shutil.rmtree(self.half, ignore_errors=True)
        os.makedirs(os.path.dirname(kept), exist_ok=True)
        if os.path.isdir(path):
            change("cp", "--archive", "--one-file-system", path, self.half)
        else:
            os.mkdir(self.half, 0o755)
        change("sync", "--file-system", self.root)
        os.rename(self.half, kept)

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


def refuse_unmounted() -> None:
    """Refuse to make a file below the disk that is to be mounted at FILES. Raises DiskError."""
    sentence = not_mounted(FILES)
    if sentence is not None:
        raise DiskError(sentence)


def refuse_writers(paths: Sequence[str], units: Sequence[str] = ()) -> None:
    """Refuse to move folders while others than `units` write there: the mount would hide it.

    Raises:
        DiskError: names some of them.

    """
    there = [path for path in paths if os.path.isdir(path)]
    found = writers(there, units)
    if found:
        named = ", ".join([*map(str, found[:NAMED])])
        more = f" and {len(found) - NAMED} more" if found[NAMED:] else ""
        raise DiskError(
            f"{' and '.join(there)} can't move while programs write there, as what they write "
            f"would be lost: {named}{more}; end them, or wait until their jobs are done, and run "
            "again; if it is the log of this run, write it elsewhere, such as to /root or /var/tmp"
        )


def same_folder(one: str, other: str) -> bool:
    """Whether two paths are the same folder, by a bind mount too."""
    return os.path.isdir(one) and os.path.isdir(other) and os.path.samefile(one, other)


def files_made() -> dict[str, str]:
    """Return the date of each file that was made, by label, as RECORD has it."""
    if not os.path.exists(RECORD):
        return {}
    with open(RECORD, encoding="utf-8", errors="replace") as record:
        lines = [line.strip().partition(" ") for line in record]
    return {label: date for label, _, date in lines if label and not label.startswith("#")}


def take(file: str, size: int) -> None:
    """Make a file of this size in bytes, or a smaller one larger, and take its room at once."""
    os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
    made = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        before = os.fstat(made).st_size
        try:
            os.posix_fallocate(made, 0, size)
        except OSError:
            # Part of it may have been taken.
            os.ftruncate(made, before)
            raise
        os.fsync(made)
    finally:
        os.close(made)


def ids_of(folder: Folder) -> tuple[int, int] | None:
    """Return the numbers of a folder's owner and group; None if there are none, or not yet."""
    if not folder.owner:
        return None
    try:
        return pwd.getpwnam(folder.owner).pw_uid, grp.getgrnam(folder.group).gr_gid
    except KeyError:
        return None  # its package is not installed yet


@contextmanager
def stopped(units: Sequence[str]) -> Iterator[None]:
    """Stop those of the units that run; start them at the end, whatever happens."""
    active = [unit for unit in units if is_active(unit)]
    try:
        for unit in active:
            run("systemctl", "stop", unit)
        yield
    finally:
        for unit in active:
            # Not waited for: the unit may wait for the one that this program runs in.
            run("systemctl", "start", "--no-block", unit)


def is_active(unit: str) -> bool:
    """Whether a unit runs or is starting."""
    _, state = run("systemctl", "show", "--property=ActiveState", "--value", unit)
    return state.strip() in ("active", "activating", "reloading")


def same(one: str, other: str) -> bool:
    """Whether two files have the same content."""
    return os.path.exists(other) and filecmp.cmp(one, other, shallow=False)


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
    if arguments[:1] not in (["apply"], ["check"]) or len(arguments) > 2:
        print("usage: muster_file_systems.py apply|check [SETTINGS]", file=sys.stderr)
        return 2
    with open(arguments[1] if arguments[1:] else SETTINGS, encoding="utf-8") as file:
        settings = json.load(file)
    with open(LOCK, "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            for mount in settings["mounts"]:
                for line in FileSystem(Mount(**mount), act=arguments[0] == "apply").apply():
                    print(line, flush=True)
        except (DiskError, OSError) as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
