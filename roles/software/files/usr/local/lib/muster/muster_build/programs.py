# SPDX-License-Identifier: Apache-2.0
"""Programs of this host that root runs itself."""

import subprocess
from collections.abc import Sequence

from muster_build.errors import FailedError, RefusedError

PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
"""Of the programs that root runs itself."""

LAST_WORDS = 5
"""How many lines of a failed command its message repeats."""


def found(root: str, *words: str) -> str:
    """Return what `find` prints."""
    return checked(["find", root, *words]).strip()


def remove(*paths: str) -> None:
    """Remove a folder, whatever a build has made of it, and files. Raises RefusedError."""
    try:
        checked(["rm", "--recursive", "--force", "--one-file-system", *paths])
    except FailedError as error:
        raise RefusedError(
            f"{' '.join(paths)} can't be removed: {error}; remove it and run again"
        ) from None


def checked(command: Sequence[str]) -> str:
    """Run a program of the host; return what it prints. Raises FailedError."""
    done = subprocess.run(
        command, env={"PATH": PATH, "LC_ALL": "C.UTF-8"}, capture_output=True, check=False
    )
    if done.returncode != 0:
        raise FailedError(one_line(done.stderr.decode(errors="replace")))
    return done.stdout.decode(errors="replace")


def one_line(text: str) -> str:
    """Return the last lines of a text in one."""
    return " / ".join(line.strip() for line in text.splitlines()[-LAST_WORDS:] if line.strip())
