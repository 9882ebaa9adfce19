# SPDX-License-Identifier: Apache-2.0
"""Project quotas of ext4 and XFS: what the module `project_quotas` and the role `directory` share.

The same calls serve both file systems, so no tools of either are needed. The role installs this
file on hosts: it uses the standard library alone.
"""

import ctypes
import errno
import fcntl
import os
import stat
import struct
import time
from collections.abc import Iterator
from typing import NamedTuple, TypedDict

MARK = "trusted.muster.project"
"""Attribute of a folder: the project to which all that is in it has been given."""

# <linux/fs.h>: struct fsxattr, and the two calls on it.
FSXATTR = struct.Struct("=5I8x")
FS_IOC_FSGETXATTR = 0x801C581F
FS_IOC_FSSETXATTR = 0x401C5820
FS_XFLAG_PROJINHERIT = 0x200

# <linux/quota.h>: struct if_nextdqblk, which begins with struct if_dqblk.
DQBLK = struct.Struct("=8QII")
QUOTACTL_FD = 443
"""Number of the call quotactl_fd on x86 and arm64 (asm-generic/unistd.h); libc has no name."""
PRJQUOTA = 2
Q_GETQUOTA = 0x800007
Q_SETQUOTA = 0x800008
Q_GETNEXTQUOTA = 0x800009
QIF_LIMITS = 1 | 4
KIB_OF_GIB = 2**20
"""Limits are in blocks of 1024 bytes (quotactl(2))."""

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
RETURN_S = 1.0
"""How long a client of NFS has to return a file that it alone writes to."""

libc = ctypes.CDLL(None, use_errno=True)


class Folder(TypedDict):
    """A folder with a quota."""

    path: str
    project: int
    gib: int
    files: int


class Limits(NamedTuple):
    """Limits of a project; 0 is none."""

    kib: int = 0
    files: int = 0


class FileSystem:
    """A mounted file system with project quotas."""

    def __init__(self, path: str) -> None:
        self.fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)

    def call(self, command: int, project: int, block: bytes = b"") -> bytes | None:
        """Return the kernel's answer; None: it knows no such project, or none that follows."""
        buffer = ctypes.create_string_buffer(block, DQBLK.size)
        number = ctypes.c_uint(command << 8 | PRJQUOTA)
        if libc.syscall(QUOTACTL_FD, self.fd, number, ctypes.c_uint(project), buffer) == 0:
            return buffer.raw
        code = ctypes.get_errno()
        if code == errno.ENOENT and command != Q_SETQUOTA:
            return None
        raise OSError(code, os.strerror(code))

    def limits(self, project: int) -> Limits:
        """Return the limits of a project."""
        block = self.call(Q_GETQUOTA, project)
        return Limits() if block is None else limits_in(block)

    def limited(self) -> Iterator[int]:
        """Yield the projects that have a limit."""
        project = 0
        while (block := self.call(Q_GETNEXTQUOTA, project)) is not None:
            project = DQBLK.unpack(block)[9]
            if any(limits_in(block)):
                yield project
            project += 1

    def limit(self, project: int, limits: Limits) -> None:
        """Set the limits of a project."""
        block = DQBLK.pack(limits.kib, 0, 0, limits.files, 0, 0, 0, 0, QIF_LIMITS, 0)
        self.call(Q_SETQUOTA, project, block)


def limits_in(block: bytes) -> Limits:
    """Return the hard limits in the kernel's answer."""
    fields = DQBLK.unpack(block)
    return Limits(fields[0], fields[3])


def give(fd: int, project: int, *, inherit: bool) -> None:
    """Give a file or folder to a project."""
    block = bytearray(FSXATTR.size)
    fcntl.ioctl(fd, FS_IOC_FSGETXATTR, block)
    flags, size_hint, extents, _, copy_hint = FSXATTR.unpack(block)
    flags |= FS_XFLAG_PROJINHERIT if inherit else 0
    fcntl.ioctl(fd, FS_IOC_FSSETXATTR, FSXATTR.pack(flags, size_hint, extents, project, copy_hint))


class MovedError(Exception):
    """Somebody moves folders while they are walked through."""


def walk(top: int) -> Iterator[tuple[int, list[str]]]:
    """Yield a folder and all below it, each with the names of what else is in it.

    Through no link, and with few descriptors: folders in folders may be thousands. A descriptor is
    closed when the next one is asked for.

    Raises:
        MovedError: a folder is no longer where it was, so the rest is not reached.

    """
    here = os.open(".", FOLDER, dir_fd=top)
    try:
        above: list[tuple[os.stat_result, list[str]]] = []
        ahead, names = content(here)
        yield here, names
        while ahead or above:
            if ahead:
                below = _opened(ahead.pop(), FOLDER, here)
                if below is None:
                    continue
                above.append((os.fstat(here), ahead))
                os.close(here)
                here = below
                ahead, names = content(here)
                yield here, names
                continue
            before, ahead = above.pop()
            upper = os.open("..", FOLDER, dir_fd=here)
            os.close(here)
            here = upper
            if not os.path.samestat(before, os.fstat(here)):
                raise MovedError
    finally:
        os.close(here)


def content(folder: int) -> tuple[list[str], list[str]]:
    """Return the names of the folders in one that is open, and of the files."""
    with os.scandir(folder) as entries:
        there = list(entries)
    folders = [entry.name for entry in there if entry.is_dir(follow_symlinks=False)]
    return folders, [entry.name for entry in there if entry.is_file(follow_symlinks=False)]


def _opened(name: str, flags: int, folder: int) -> int | None:
    """Open what is in a folder; None: somebody has removed, replaced or hidden it."""
    try:
        return os.open(name, flags, dir_fd=folder)
    except OSError as error:
        # EACCES: a program of somebody (FUSE) is mounted there, and lets not even root look.
        gone = (errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.EACCES)
        if error.errno in gone:
            return None
        raise


def give_all(top: int, project: int) -> None:
    """Give a folder and all that is in it to a project, through no link that somebody makes there.

    What can't be opened for that stays: links, sockets, pipes. A file that somebody has leased
    (fcntl(2)), or that a client of NFS alone writes to, comes back soon after it was asked for. If
    not, the folder is not marked, so the next run gives what is left.
    """
    # Again for what is made in a folder between its list and its turn.
    whole = [give_once(top, project), give_once(top, project)]
    if not any(whole):
        # What was asked for is on its way.
        time.sleep(RETURN_S)
        whole.append(give_once(top, project))
    if any(whole):
        os.setxattr(top, MARK, str(project).encode())


def give_once(top: int, project: int) -> bool:
    """Give all that is there now; return whether all of it could be opened."""
    whole = True
    try:
        for folder, names in walk(top):
            give(folder, project, inherit=True)
            for name in names:
                try:
                    # O_NONBLOCK: it may have become a pipe.
                    file = _opened(name, FILE, folder)
                except BlockingIOError:
                    whole = False
                    continue
                if file is None:
                    continue
                try:
                    if stat.S_ISREG(os.fstat(file).st_mode):
                        give(file, project, inherit=False)
                finally:
                    os.close(file)
    except MovedError:
        return False
    return whole


def belongs(top: int, project: int) -> bool:
    """Whether a folder and all in it belong to a project."""
    block = bytearray(FSXATTR.size)
    fcntl.ioctl(top, FS_IOC_FSGETXATTR, block)
    flags, _, _, number, _ = FSXATTR.unpack(block)
    if number != project or not flags & FS_XFLAG_PROJINHERIT:
        return False  # A copy has the mark and no project.
    try:
        return os.getxattr(top, MARK) == str(project).encode()
    except OSError as error:
        if error.errno == errno.ENODATA:
            return False
        raise


def limit(file_system: FileSystem, folder: Folder, *, act: bool) -> Iterator[str]:
    """Yield a line for each change of a folder, before it is made."""
    path, project = folder["path"], folder["project"]
    try:
        top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno == errno.ENOENT and not act:
            yield line(path, Limits(), limits_of(folder))
            return
        raise
    try:
        if not belongs(top, project):
            yield f"{path}: all in it belongs to project {project}"
            if act:
                give_all(top, project)
    finally:
        os.close(top)
    before = file_system.limits(project)
    if before != limits_of(folder):
        yield line(path, before, limits_of(folder))
        if act:
            file_system.limit(project, limits_of(folder))


def limits_of(folder: Folder) -> Limits:
    """Return the wanted limits of a folder."""
    return Limits(folder["gib"] * KIB_OF_GIB, folder["files"])


def line(what: str, before: Limits, after: Limits) -> str:
    """Return a change of limits in words."""
    old, new = (
        ", ".join(
            [
                f"{limits.kib / KIB_OF_GIB:g} GiB" if limits.kib else "any size",
                f"{limits.files} files" if limits.files else "any number of files",
            ]
        )
        for limits in (before, after)
    )
    return f"{what}: {old} -> {new}"
