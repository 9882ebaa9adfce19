# SPDX-License-Identifier: Apache-2.0
"""The store belongs to an account of its own: who may add runs this program as that account.

sudo says who may. What the account must not see or have, the person's own process does: it reads
their folder and sends its files, and their tokens, through a pipe. A variable would be in
/proc/PID/environ, which all processes of the account can read, also those that others started.
"""

import os
import pwd
import subprocess
from collections.abc import Callable, Sequence
from typing import IO

from muster_models.errors import ModelsError
from muster_models.store import Store

PROGRAM = "/usr/local/bin/muster-models"
ACCOUNT = "muster-models"
"""Made by the role. It has nothing but the store."""


def owner(store: Store, account: str = ACCOUNT) -> str | None:
    """Return the account that the store belongs to; None: this process runs as it.

    Who may write to the folder can put links there that lead anywhere, and where root of a node is
    root in it, as on CephFS, can give it to root. Nobody but `account` must follow them.

    Raises:
        ModelsError: it belongs to somebody else, or is not there.

    """
    try:
        uid = os.stat(store.root).st_uid
    except FileNotFoundError:
        raise ModelsError(
            f"{store.root} is not there; mount it, or run site.yml, which makes it"
        ) from None
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        raise ModelsError(
            f"{store.root} belongs to {uid}, whom this host does not know; run site.yml for it"
        ) from None
    if name != account:
        raise ModelsError(
            f"{store.root} belongs to {name} and not to {account}, so nothing is written there; "
            f"mount it, if `findmnt {store.root}` shows nothing, else run site.yml, or where that "
            f"has no rights in it: chown {account}: {store.root}"
        )
    return None if uid == os.geteuid() else name


def person() -> str:
    """Return the login of who runs this, also by sudo."""
    name = os.environ.get("SUDO_USER")
    if name:
        return name
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def is_by_sudo() -> bool:
    """Whether sudo has started this process; sudo sets the variable, whatever the person has."""
    return "SUDO_UID" in os.environ


def run_as(
    account: str, words: Sequence[str], feed: Callable[[IO[bytes]], None] | None = None
) -> int:
    """Run this program as an account; `feed` writes what it reads. Return its exit code.

    Raises:
        ModelsError: sudo does not let the person do so, or is not installed.
        OSError: what is to be fed can't be read.

    """
    sudo = ["sudo", "--non-interactive", f"--user={account}"]
    try:
        may = subprocess.run([*sudo, "--list", PROGRAM], capture_output=True, check=False)
    except FileNotFoundError:
        raise ModelsError("sudo is not installed here; add models on a login node") from None
    if may.returncode != 0:
        raise ModelsError(
            f"{person()} may not add models; an administrator adds you to the group that "
            "`storage.models.group` names"
        )
    with subprocess.Popen(
        [*sudo, PROGRAM, *words], stdin=subprocess.PIPE if feed else subprocess.DEVNULL
    ) as process:
        if feed is None or process.stdin is None:
            return process.wait()
        # Where `feed` fails, the program reads an end that comes too early: sudo is root's, and so
        # can't be killed.
        try:
            with process.stdin as stream:
                feed(stream)
        except BrokenPipeError:
            # It has ended, and has said why.
            pass
        return process.wait()
