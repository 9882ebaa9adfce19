# SPDX-License-Identifier: Apache-2.0
"""One folder of software: built, handed over to root, looked at, and packed."""

import fcntl
import os
import pwd
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from build_log import log_of
from mount_table import no_answer, not_mounted

from muster_build import packing, programs, service
from muster_build.errors import FailedError, RefusedError, VerifyError
from muster_build.programs import checked, found, remove

LOCK = "/run/muster-build.lock"

PLAIN = re.compile(r"(/[A-Za-z0-9_+-][A-Za-z0-9_.+-]*)+")
"""A path that systemd takes as it is."""


def build(
    root: str, command: str, verify: str | None, image: str | None, timeout_seconds: int | None
) -> None:
    """Make the folder `root` by `command`, have `verify` look at it, and pack it into `image`.

    Raises:
        FailedError: one of the commands failed.
        RefusedError: it can't be built here and now.
        InterruptError: somebody ended this program.
        OSError: a folder or file can't be written.

    """
    if not PLAIN.fullmatch(root):
        raise RefusedError(
            f'"{root}" can\'t be the folder of a build; begin it with / and use letters, digits '
            "and _ . + - between the slashes"
        )
    # The folder of a packed release is a link, and a look where it leads mounts it.
    folder = os.path.dirname(root)
    sentence = no_answer(folder) or not_mounted(folder)
    if sentence is not None:
        raise RefusedError(f"{root} was not built: {sentence}")
    try:
        account = pwd.getpwnam(service.ACCOUNT)
    except KeyError:
        raise RefusedError(
            f"there is no account {service.ACCOUNT} on this host; run the role software, which "
            "makes it"
        ) from None
    if image is not None and shutil.which("mksquashfs", path=programs.PATH) is None:
        raise RefusedError(
            f"{root} was not built, since this host has no mksquashfs to pack it; install "
            "squashfs-tools, as the role software does, and run again"
        )
    busy = "another build runs on this host; wait for it, then run again"
    with locked(LOCK, busy) as lock:
        os.makedirs(os.path.dirname(root), mode=0o755, exist_ok=True)
        mark = f"{root}.building"
        complete = os.path.lexists(root) and not packing.is_broken(root, image)
        if complete and not os.path.exists(mark):
            raise RefusedError(f"{root} is there already; remove it to build it again")
        # Of a program that was killed at the moment at which it started its service.
        service.stop()
        service.refuse_survivors(root)
        # Another host may build there; locks hold across a file server.
        busy = f"{root} is being built by another run; wait for it, then run again"
        with locked(mark, busy) as mark_lock:
            try:
                remove(root, *packing.files_of(image))
                os.mkdir(root, mode=0o755)
                os.chown(root, account.pw_uid, account.pw_gid)
                with (
                    service.ends_with_this_program(lock, mark_lock),
                    packing.mounted(command, verify or ""),
                    opened_log(root) as log,
                ):
                    service.run(root, command, timeout_seconds, log)
                    service.refuse_survivors(root)
                    hand_over(root)
                    if verify is not None:
                        try:
                            service.run(root, verify, timeout_seconds, log)
                        except FailedError as error:
                            raise VerifyError(str(error)) from None
                        service.refuse_survivors(root)
                if image is not None:
                    packing.pack(root, image)
                else:
                    # Without the mark it counts as whole, though a power failure may empty files.
                    checked(["sync", "--file-system", root])
            except BaseException:
                # With the mark beside it a folder counts as missing.
                if not service.survivors():
                    remove(root, *packing.files_of(image))
                    os.unlink(mark)
                raise
            os.unlink(mark)


@contextmanager
def locked(path: str, busy: str) -> Iterator[int]:
    """Hold the lock of a file and give its descriptor. Raises RefusedError with `busy`."""
    # Only root opens it: who can read a file can lock it.
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RefusedError(busy) from None
        yield lock
    finally:
        os.close(lock)


@contextmanager
def opened_log(root: str) -> Iterator[BinaryIO]:
    """Open the file for what the commands of a folder print. Root alone reads it."""
    path = log_of(root)
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    # Unbuffered: what a full disk did not take is not tried again at the end.
    with open(path, "wb", buffering=0, opener=_for_root) as log:
        yield log


def _for_root(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


# Of what others than its owner can write to, or can't read, or can't run or enter as its owner can.
_WRONG_MODE = "-perm /6022 -o ! -perm -444 -o -perm /111 ! -perm -111 -o -type d ! -perm -111"


def hand_over(root: str) -> None:
    """Give what was built to root, so that all can read it. Raises FailedError.

    The programs that do it follow no link, and take paths longer than any that could be named.
    """
    special = found(root, "-type", "b,c,p,s", "-print", "-quit")
    if special:
        raise FailedError(f"it left {special}, which is neither a file nor a folder nor a link")
    # Before the owner: a set-uid program must not become root's. Archives have files for their
    # owner alone, and that is root now.
    chmod = ("-execdir", "chmod", "ug-s,go-w,a+rX", "{}", "+")
    found(root, "!", "-type", "l", "(", *_WRONG_MODE.split(), ")", *chmod)
    checked(["chown", "--recursive", "--no-dereference", "root:root", root])
    # Releases are ordered by it, and `cp -a` or tar has set that of another folder.
    os.utime(root)
