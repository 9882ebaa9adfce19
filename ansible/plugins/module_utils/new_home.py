# SPDX-License-Identifier: Apache-2.0
"""Make a person's home: what the module `people` and the role `directory` share.

The role installs this file on hosts: it uses the standard library alone.
"""

import os
import re
import shutil
import stat

SKEL = "/etc/skel"
MOUNTINFO = "/proc/self/mountinfo"
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW

# Lower numbers are the system's (Debian policy 9.2.2).
FIRST_PERSON = 1000


def make_home(path: str, uid: int, gid: int) -> None:
    """Make a home from /etc/skel; it appears complete or not at all."""
    parent, name = os.path.split(path)
    os.makedirs(parent, mode=0o755, exist_ok=True)
    temporary = f"{parent}/.muster-{name}"
    if os.path.islink(temporary):
        os.unlink(temporary)
    elif os.path.isdir(temporary):
        shutil.rmtree(temporary)  # A run was killed here.
    os.mkdir(temporary, 0o700)
    home = os.open(temporary, FOLDER)
    try:
        copy(SKEL, home, uid, gid)
        os.fchown(home, uid, gid)
        os.fchmod(home, 0o700)
    finally:
        os.close(home)
    os.rename(temporary, path)


def copy(source: str, target: int, uid: int, gid: int) -> None:
    """Copy what is in a folder into another one that is open, and give it to a person.

    By descriptors: where root of nodes is root in the homes, as on CephFS, a path that has just
    been made may be a link to anywhere on this host the next moment.
    """
    for entry in os.scandir(source):
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), entry.name, dir_fd=target)
            os.chown(entry.name, uid, gid, dir_fd=target, follow_symlinks=False)
            continue
        if entry.is_dir():
            os.mkdir(entry.name, 0o700, dir_fd=target)
        made = os.open(entry.name, FOLDER if entry.is_dir() else NEW_FILE, 0o600, dir_fd=target)
        try:
            if entry.is_dir():
                copy(entry.path, made, uid, gid)
            else:
                with open(entry.path, "rb") as read, open(made, "wb", closefd=False) as written:
                    shutil.copyfileobj(read, written)
            os.fchown(made, uid, gid)
            os.fchmod(made, stat.S_IMODE(entry.stat().st_mode))
        finally:
            os.close(made)


def is_mounted(path: str) -> bool:
    """Whether the kernel's table (proc_pid_mountinfo(5)) has a mount at `path`, which has no space.

    Without a look at the path itself, which would wait for a server that is away.
    """
    # Bytes: of text other characters would end a line or a word too, and people name mounts.
    with open(MOUNTINFO, "rb") as table:
        return any(line.split(b" ")[4] == os.fsencode(path) for line in table)


def mounts_of_people() -> set[str]:
    """Return where programs of people have mounted something (FUSE), by proc_pid_mountinfo(5).

    There root sees nothing, or what such a program says, and may wait for it for ever.
    """
    with open(MOUNTINFO, "rb") as table:
        rows = [line.partition(b" - ") for line in table]
    return {os.fsdecode(row.split(b" ")[4]) for row, _, of in rows if _is_of_a_person(of)}


def _is_of_a_person(of: bytes) -> bool:
    """Whether type, source and options of a mount are those of a person's program."""
    options = of.rpartition(b" ")[2]
    owner = re.search(rb"\buser_id=(\d+)", options)
    return of.startswith(b"fuse") and owner is not None and int(owner[1]) >= FIRST_PERSON
