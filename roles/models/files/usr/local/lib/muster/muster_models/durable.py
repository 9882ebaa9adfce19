# SPDX-License-Identifier: Apache-2.0
"""Files that are whole after a kill or a loss of power, and locks that die with their process."""

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager

TEMPORARY = ".muster-new."
"""How names of files and folders begin that are not renamed yet."""


def sync(path: str, folder: int | None = None) -> None:
    """Have the disk take what was written to a file or folder. Raises OSError.

    `folder` is a descriptor of the folder from which the path leads.
    """
    handle = os.open(path, os.O_RDONLY, dir_fd=folder)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write(path: str, text: str, mode: int = 0o644) -> None:
    """Put a file at `path`, whole or not at all. Raises OSError."""
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f"{TEMPORARY}{os.getpid()}.{name}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    sync(folder)


def opened_there(path: str, flags: int, folder: int | None = None) -> int:
    """Open a file for `open`, but not where a link of somebody else leads. Raises OSError."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=folder)


def remove(path: str) -> None:
    """Remove a file or a folder with all in it; nothing there is no error. Raises OSError."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


class BusyError(Exception):
    """Another process holds the lock."""


@contextmanager
def locked(
    path: str,
    *,
    shared: bool = False,
    waits: Callable[[], None] | None = None,
    folder: int | None = None,
) -> Iterator[None]:
    """Hold the lock of a file, which the kernel gives up with this process, however it ends.

    NFS has such locks too, between hosts (nfs(5)): the server gives them up with the client.
    `folder` is a descriptor of the folder from which the path leads.

    Raises:
        BusyError: another process holds it; with `waits` that is called, and then it waits.
        OSError: there can't be such a file.

    """
    how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    while True:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(path, flags, 0o600, dir_fd=folder)
        try:
            try:
                fcntl.flock(handle, how | fcntl.LOCK_NB)
            except BlockingIOError:
                if waits is None:
                    raise BusyError from None
                waits()
                fcntl.flock(handle, how)
            # Who held it may have removed the file meanwhile.
            if _is_at(handle, path, folder):
                yield
                return
        finally:
            os.close(handle)


def _is_at(handle: int, path: str, folder: int | None = None) -> bool:
    try:
        held, there = os.fstat(handle), os.stat(path, dir_fd=folder)
    except OSError as error:
        # Stale: removed by another host, over NFS.
        if error.errno not in (errno.ENOENT, errno.ESTALE):
            raise
        return False
    # A file server gives the number of a removed file to a new one.
    return held.st_nlink > 0 and os.path.samestat(held, there)
