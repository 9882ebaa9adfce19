# SPDX-License-Identifier: Apache-2.0
"""Folders in which others write: a path there leads where it seems to, not where their links do.

Each part of a path is opened by itself, in the open folder before it. So nobody can put a link
there between a check and what it is for.
"""

import errno
import os
import pwd
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress

from muster_models.errors import ModelsError

_MOST_LINKS = 40
"""As the kernel has it: more are a circle."""
_ROOT = 0
_NOT_A_FOLDER = (errno.ENOTDIR, errno.ELOOP)


def trusted() -> Collection[int]:
    """Return whose links are followed in a path that somebody has typed: their own, and root's."""
    return (os.geteuid(), _ROOT)


@contextmanager
def opened(
    path: str,
    start: int | None,
    owners: Collection[int],
    remedy: str,
    *,
    makes: bool = False,
) -> Iterator[int]:
    """Open what a path leads to, whatever it is, with O_PATH: nothing of it is read or written.

    Args:
        path: From the folder `start`, if it does not begin with a slash.
        start: A descriptor of a folder; None: the working directory.
        owners: Numbers of the users whose links are followed.
        remedy: What to do about a link of anybody else.
        makes: Whether folders that are not there are made.

    Raises:
        ModelsError: there is a link of somebody else.
        OSError: there is nothing, or it can't be opened or made.

    """
    place = _led_to(path, start, owners, remedy, makes)
    try:
        yield place
    finally:
        os.close(place)


def _led_to(path: str, start: int | None, owners: Collection[int], remedy: str, makes: bool) -> int:
    parts = path.split("/")[::-1]
    here = _folder("/" if path.startswith("/") else ".", start)
    links, part = 0, ""
    try:
        while parts:
            part = parts.pop()
            if part in ("", "."):
                continue
            there = _next(part, here, makes)
            if not stat.S_ISLNK(os.fstat(there).st_mode):
                os.close(here)
                here = there
                continue
            links += 1
            try:
                leads_to = _read_link(there, owners)
                if leads_to is None:
                    login = _login(os.fstat(there).st_uid)
                    raise ModelsError(
                        f"{os.path.join(path_of(here), part)} is a link of {login}, which is not "
                        f"followed, as it may lead anywhere; {remedy}"
                    )
            finally:
                os.close(there)
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            parts += leads_to.split("/")[::-1]
            if leads_to.startswith("/"):
                os.close(here)
                here = _folder("/", None)
    except BaseException as error:
        if isinstance(error, OSError):
            error.filename = os.path.join(path_of(here), part)
        os.close(here)
        raise
    return here


def _read_link(handle: int, owners: Collection[int]) -> str | None:
    """Return where an open link leads; None: it belongs to none of `owners`."""
    return os.readlink("", dir_fd=handle) if os.fstat(handle).st_uid in owners else None


def _folder(name: str, start: int | None) -> int:
    # With O_DIRECTORY an automounter mounts what belongs there; O_PATH alone does not ask it.
    return os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=start)


def _next(part: str, here: int, makes: bool) -> int:
    try:
        return _folder(part, here)
    except FileNotFoundError:
        if not makes:
            raise
    except OSError as error:
        if error.errno not in _NOT_A_FOLDER:
            raise
        return os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
    # Another process may make it meanwhile.
    with suppress(FileExistsError):
        os.mkdir(part, dir_fd=here)
    return _next(part, here, makes=False)


def path_of(handle: int) -> str:
    """Return the path of what is open, without links."""
    return os.readlink(f"/proc/self/fd/{handle}")


def names_in(handle: int) -> list[str]:
    """Return the names in a folder that is open by `opened`. Raises OSError."""
    reads = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=handle)
    try:
        return sorted(os.listdir(reads))
    finally:
        os.close(reads)


def is_folder(handle: int) -> bool:
    """Whether it is a folder that is open."""
    return stat.S_ISDIR(os.fstat(handle).st_mode)


def is_file(handle: int) -> bool:
    """Whether it is a regular file that is open."""
    return stat.S_ISREG(os.fstat(handle).st_mode)


def reopened(handle: int) -> int:
    """Return a descriptor to read a file that is open by `opened`. Raises OSError."""
    return os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_CLOEXEC)


class NoFileError(OSError):
    """What is read as a file is none, or is a link."""


def opened_file(path: str) -> int:
    """Return a descriptor to read a file of the store; nothing else is opened.

    Who may write in the store may put anything there: opening alone waits for ever at a FIFO, and
    does something at a device.

    Raises:
        NoFileError: it is no regular file.
        OSError: it can't be read.

    """
    handle = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not is_file(handle):
            raise NoFileError("it is no file")
        try:
            return reopened(handle)
        except OSError as error:
            error.filename = path
            raise
    finally:
        os.close(handle)


def _login(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
