"""The programs of the role (roles/software/files), as packages, with stand-ins for systemd."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

LIBRARY = Path(__file__).parents[4] / "roles/software/files/usr/local/lib/muster"
sys.path.insert(0, str(LIBRARY))

# In place of the service: the command without walls, once it is said to be closed off.
SERVICE = """echo 'muster-build: closed off'
exec /bin/sh -ec "$(cat)" 2>&1"""

RUN = """
import pwd, sys
sys.path.insert(0, sys.argv[1])
import build_log
from muster_build import build, main, packing, programs, room, service
build.LOCK = sys.argv[2]
build_log.FOLDER = sys.argv[2] + ".logs"
nobody = pwd.getpwuid(65534)
pwd.getpwnam = {service.ACCOUNT: nobody}.__getitem__
sys.exit(main.main(sys.argv[3:]))
"""


def put(path: Path, text: str) -> None:
    """Write a program for sh."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def left(folder: Path) -> list[str]:
    """Return what is in a folder, as paths."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def until(true: Callable[[], bool]) -> None:
    """Return when it holds; fail after half a minute."""
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def with_constant(command_line: list[str], text: str) -> list[str]:
    """Return a command line whose program has other constants: lines of Python."""
    return [word.replace("build.LOCK =", f"{text}\nbuild.LOCK =") for word in command_line]
