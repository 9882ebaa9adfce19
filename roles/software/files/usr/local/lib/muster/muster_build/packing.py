# SPDX-License-Identifier: Apache-2.0
"""Releases that are packed into one file each: made here, and mounted while a build needs them."""

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from muster_build.errors import FailedError, PackError, RefusedError
from muster_build.programs import checked, remove
from muster_build.room import refuse_no_room

RELEASES = "/usr/local/lib/muster/releases"
"""Where autofs mounts packed releases, on each host, by their names.

A build sees it, which does not see /run and /var, and no shared folder can be mounted over it.
"""

PACK = (
    # The kernels of all systems that Muster knows read zstd.
    *("-comp", "zstd", "-no-xattrs", "-no-exports", "-mkfs-time", "0", "-noappend"),
    *("-no-progress", "-quiet"),
)
"""Options of mksquashfs: the same folder makes the same file. The times of what is in it stay:
Python compares that of a module with the one in its compiled file."""

KNOWN_SECONDS = 10.0
"""How long autofs may take to know a new release: it remembers for 5 s that there was none."""

RELEASE = re.compile(r"(?:/[\w.+-]+)*?/[0-9a-f]{16}(?![\w.+-])")
"""The folder of a release in a command or a modulefile."""


@contextmanager
def mounted(*commands: str) -> Iterator[None]:
    """Keep packed releases mounted that commands name, and those that these are built on.

    Among the mounts of a service nothing new appears, and what autofs takes away goes there too.
    Raises RefusedError if this host does not mount one.
    """
    ahead = [root for command in commands for root in RELEASE.findall(command)]
    seen: set[str] = set()
    with ExitStack() as stack:
        while ahead:
            root = ahead.pop()
            if root in seen:
                continue
            seen.add(root)
            if os.path.islink(root):
                stack.callback(os.close, entered(root))
            if os.path.exists(f"{root}.json"):
                with open(f"{root}.json", encoding="utf-8") as stream:
                    ahead += json.load(stream)["built_on"]
        yield


def entered(root: str) -> int:
    """Return a descriptor of a packed release, which mounts it. Raises RefusedError."""
    try:
        return os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise RefusedError(
            f"this host does not mount {os.readlink(root)}: {error.strerror}; see journalctl -u "
            "autofs, and run site.yml, whose role lmod configures it"
        ) from None


def enter_new(root: str) -> None:
    """Have this host mount a release that is new. Raises RefusedError."""
    deadline = time.monotonic() + KNOWN_SECONDS
    while True:
        try:
            os.close(entered(root))
        except RefusedError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.5)
        else:
            return


def is_broken(root: str, image: str | None) -> bool:
    """Whether the file that a release was packed into has gone, and only the link is left."""
    return image is not None and os.path.islink(root) and not os.path.exists(image)


def files_of(image: str | None) -> tuple[str, ...]:
    """Return what packing writes: the file, and the one that is not whole yet."""
    return (image, f"{image}.new") if image is not None else ()


def pack(root: str, image: str) -> None:
    """Pack a folder into a file, and make it a link to where hosts mount that. Raises PackError."""
    folder, new = os.path.dirname(image), f"{image}.new"
    try:
        os.makedirs(folder, mode=0o755, exist_ok=True)
        refuse_no_room(folder, root)
        # If this program is killed, nothing writes on beside the next one.
        checked(["setpriv", "--pdeathsig=KILL", "mksquashfs", root, new, *PACK])
        os.chmod(new, 0o644)
        sync(new)
        os.rename(new, image)
        sync(folder)
        remove(root)
        os.symlink(f"{RELEASES}/{os.path.basename(image).partition('.')[0]}", root)
        enter_new(root)
    except (FailedError, RefusedError) as error:
        raise PackError(str(error)) from None
    except OSError as error:
        # That of fsync names no file; over NFS it is the first to tell of a full disk.
        raise PackError(f"{error.filename or image}: {error.strerror}") from None


def sync(path: str) -> None:
    """Have the disk, or the server, keep what was written to a file or folder."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
