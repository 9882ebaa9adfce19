# SPDX-License-Identifier: Apache-2.0
"""Which processes and NFS clients can write below a folder without opening a file there again.

Runs with the Python of the system alone.
"""

import glob
import os
import re
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

NFS_CLIENTS = "/proc/fs/nfsd/clients"
"""A folder for each NFSv4 client of the kernel's server; there is none without that server."""
STATES = 100_000
"""How many files that a client has open are looked at."""
STATE = re.compile(
    r"- \w+: { type: open, access: [r-]w, deny: \S+, "
    r'superblock: "([0-9a-f]+):([0-9a-f]+):\d+"(?:, filename: "(.*?)"(?:, | }|$))?'
)
"""A client's file that it has open for writing: nfs4_show_open of fs/nfsd/nfs4state.c in Linux.

Delegations don't count: a client keeps them after it has closed its files.
"""


class Writer(NamedTuple):
    """A process that can write to a file."""

    pid: str
    name: str
    file: str
    """One of them, as the process calls it."""

    def __str__(self) -> str:
        """Return the words of an error's sentence, without control characters."""
        return printable(f"{self.name} (pid {self.pid}) {self.file}")


class Client(NamedTuple):
    """A client of the kernel's NFS server that can write to a file."""

    address: str
    folder: str
    """What the kernel shows of it."""
    file: str
    """The end of the path of one of them: the kernel tells no more."""

    def __str__(self) -> str:
        """Return the words of an error's sentence, without control characters."""
        return printable(f"NFS client {self.address} ({self.folder}) .../{self.file}")


class Mount(NamedTuple):
    """A line of mountinfo(5)."""

    device: str
    root: str
    """Which folder of the file system is mounted."""
    point: str


class Place(NamedTuple):
    """A file or folder, whatever it is called where a process sees it."""

    device: str
    path: str
    """In the file system."""

    def is_below(self, folder: "Place") -> bool:
        """Whether it is in the folder."""
        return self.device == folder.device and self.path.startswith(folder.path.rstrip("/") + "/")


def writers(folders: Collection[str], units: Collection[str] = ()) -> list[Writer | Client]:
    """Return who has a file below the folders open or mapped for writing.

    A file without a name counts for nothing. Left out are the processes of `units`, and this one.
    An NFS client counts whatever stops: what it has not sent yet would be lost.
    """
    processes = sorted((name for name in os.listdir("/proc") if name.isdigit()), key=int)
    mounts = mounts_of_all(processes)
    wanted = [place for folder in folders if (place := place_of_folder(folder, mounts))]
    devices = {folder.device for folder in wanted}
    found: list[Writer | Client] = []
    for pid in processes:
        try:
            if pid == str(os.getpid()) or is_of(pid, units):
                continue
            files = (*opened(pid, mounts, devices), *mapped(pid, mounts, devices))
            below = [
                path for place, path in files if any(place.is_below(folder) for folder in wanted)
            ]
            if below:
                found.append(Writer(pid, read(f"/proc/{pid}/comm")[0], below[0]))
        except OSError:  # it has ended meanwhile
            continue
    return [*found, *nfs_clients(devices)]


def nfs_clients(devices: Collection[str]) -> Iterator[Client]:
    """Yield the NFS clients that can write to a file on some devices, in whichever folder."""
    for folder in sorted(glob.glob(f"{NFS_CLIENTS}/*"), key=lambda path: (len(path), path)):
        try:
            lines = read(f"{folder}/states", STATES)
            matches = [match for line in lines if (match := STATE.match(line))]
            files = [
                (match[3] or "").lstrip("/")
                for match in matches
                if f"{int(match[1], 16)}:{int(match[2], 16)}" in devices
            ]
            if files:
                # With a port, and IPv6 in brackets.
                address = field(f"{folder}/info", "address").strip('"').rpartition(":")[0]
                yield Client(address.strip("[]"), folder, files[0])
        except OSError:  # it has gone meanwhile
            continue


def opened(
    pid: str, mounts: dict[str, Mount], devices: Collection[str]
) -> Iterator[tuple[Place, str]]:
    """Yield the files on some devices that a process has open for writing, with their paths."""
    for fd in os.listdir(f"/proc/{pid}/fd"):
        link = f"/proc/{pid}/fd/{fd}"
        try:
            place = place_of(pid, fd, mounts)
            flags = int(field(f"/proc/{pid}/fdinfo/{fd}", "flags"), 8)
            if place is None or flags & os.O_ACCMODE == os.O_RDONLY:
                continue
            # No others are looked at: the server of such a file may not answer.
            if place.device in devices and has_name(os.stat(link)):
                yield place, os.readlink(link)
        except OSError:  # it has closed it meanwhile
            continue


def mapped(
    pid: str, mounts: dict[str, Mount], devices: Collection[str]
) -> Iterator[tuple[Place, str]]:
    """Yield the files whose memory a process shares for writing; they may be closed."""
    for line in read(f"/proc/{pid}/maps"):
        words = line.split(maxsplit=5)
        major, minor = (int(number, 16) for number in words[3].split(":"))
        if words[1][1] + words[1][3] != "ws" or f"{major}:{minor}" not in devices:
            continue
        try:
            fd = mapped_file(pid, words)
        except OSError:  # it has ended meanwhile
            continue
        try:
            place = place_of("self", str(fd), mounts)
            if place and has_name(os.fstat(fd)):
                yield place, os.readlink(f"/proc/self/fd/{fd}")
        finally:
            os.close(fd)


def mapped_file(pid: str, words: Sequence[str]) -> int:
    """Open the file of a line of maps, without reading it."""
    start, end = (int(address, 16) for address in words[0].split("-"))
    try:
        return os.open(f"/proc/{pid}/map_files/{start:x}-{end:x}", os.O_PATH)
    except PermissionError:
        # Not every root has the right (CAP_CHECKPOINT_RESTORE): by its path then, in the mounts of
        # the process, or in ours if it has another root folder.
        inode, path = int(words[4]), words[5].replace("\\012", "\n")
        for name in (f"/proc/{pid}/root{path}", path):
            with suppress(OSError):
                fd = os.open(name, os.O_PATH | os.O_NOFOLLOW)
                if os.fstat(fd).st_ino == inode:
                    return fd
                os.close(fd)
        raise


def has_name(state: os.stat_result) -> bool:
    """Whether it is a file that still has a name: what is in another one goes with its process."""
    return stat.S_ISREG(state.st_mode) and state.st_nlink > 0


def place_of_folder(folder: str, mounts: dict[str, Mount]) -> Place | None:
    """Return where a folder is; None if there is none."""
    try:
        fd = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    except OSError:
        return None
    try:
        return place_of("self", str(fd), mounts)
    finally:
        os.close(fd)


def place_of(process: str, fd: str, mounts: dict[str, Mount]) -> Place | None:
    """Return where an open file is; None if it is in none of the mounts, as a pipe is."""
    mount = mounts.get(field(f"/proc/{process}/fdinfo/{fd}", "mnt_id"))
    if mount is None:
        return None
    path, point = os.readlink(f"/proc/{process}/fd/{fd}"), mount.point.rstrip("/")
    if not path.startswith(point + "/") and path != point:
        return None
    return Place(mount.device, (mount.root.rstrip("/") + path[len(point) :]) or "/")


def mounts_of_all(processes: Collection[str]) -> dict[str, Mount]:
    """Return the mounts of all mount namespaces by their numbers."""
    mounts: dict[str, Mount] = {}
    namespaces = set()
    # This process first: it sees its namespace from the root.
    for process in ("self", *processes):
        try:
            namespace = os.readlink(f"/proc/{process}/ns/mnt")
            lines = read(f"/proc/{process}/mountinfo") if namespace not in namespaces else []
        except OSError:  # it has ended meanwhile
            continue
        namespaces.add(namespace)
        for line in lines:
            number, _, device, root, point = line.split(" ")[:5]
            mounts.setdefault(number, Mount(device, unescaped(root), unescaped(point)))
    return mounts


def is_of(pid: str, units: Collection[str]) -> bool:
    """Whether a process belongs to one of the services."""
    parts = {part for line in read(f"/proc/{pid}/cgroup") for part in line.split("/")}
    return any(f"{unit}.service" in parts for unit in units)


def printable(words: str) -> str:
    """Return words without control characters."""
    return "".join(letter if letter.isprintable() else "?" for letter in words)


def field(path: str, name: str) -> str:
    """Return a field of a file of /proc; empty if it has none."""
    lines = (line.partition(":") for line in read(path))
    return next((value.strip() for key, _, value in lines if key == name), "")


def read(path: str, most: int | None = None) -> list[str]:
    """Return the lines of a file of /proc, whatever names of files are in it; at most so many."""
    with open(path, encoding="utf-8", errors="surrogateescape", newline="\n") as file:
        return [line.rstrip("\n") for line in islice(file, most)]


def unescaped(text: str) -> str:
    r"""Return a path of mountinfo(5), where a space is \040."""
    return re.sub(r"\\([0-7]{3})", lambda digits: chr(int(digits[1], 8)), text)
