# SPDX-License-Identifier: Apache-2.0
"""In the job: start JupyterLab at a socket in a private folder, and tell where it is.

A port of the node would be open to everybody who has a job there. A UNIX socket in a folder that
only its owner enters is not, nor are those of the kernels, whose ports let others read what they
print.
"""

import contextlib
import fnmatch
import glob
import http.client
import json
import os
import pwd
import secrets
import shutil
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from muster_notebook.errors import NotebookError

FAILED = 1
PROGRAM = "jupyter-lab"
NOT_LOADED = (
    f"{PROGRAM} is not there: load the module that has it before you type notebook (module avail "
    "shows it; of one that is marked (N) module load says how an administrator builds it)"
)
READY_SECONDS = 300
"""JupyterLab reads thousands of files at its start, which takes a minute from a busy server."""
_START_SECONDS = 60
"""After which a job that has not made its folder is no notebook."""
LONGEST_SOCKET = 107
"""Bytes in the name of a UNIX socket (unix(7): sun_path, less the null byte)."""
_LONGEST_NAME_OF_A_KERNEL = len("/kernel-") + 36 + len("-ipc-5")
"""What JupyterLab adds to the folder for a kernel's sockets."""
_TMP = Path("/tmp")  # noqa: S108 (a folder is made there by this program alone, see `start`)
_SSHD = ("/etc/ssh/sshd_config", "/etc/ssh/sshd_config.d/*.conf")


def main(words: Sequence[str]) -> int:
    """Do the one thing that the word names; return the exit code."""
    try:
        if list(words) == ["start"]:
            start(os.environ)
        if list(words) == ["answer"]:
            sys.stdout.write(f"{json.dumps(answer(os.environ))}\n")
            return 0
    except (NotebookError, OSError) as error:
        sys.stderr.write(f"notebook: {error}\n")
        return FAILED
    sys.stderr.write("notebook: this part of it is started by notebook: type that\n")
    return FAILED


def folder(environment: Mapping[str, str]) -> Path:
    """Return where a notebook that starts here puts its socket and token: in scratch, else in /tmp.

    Not in another folder that the user names by TMPDIR, which may be on a file server.
    """
    job = environment.get("SLURM_JOB_ID", "")
    if not job.isascii() or not job.isdigit():
        raise NotebookError("this is no job: type notebook on a login node")
    scratch = Path(environment.get("TMPDIR", ""))
    if scratch.is_absolute() and scratch.name == job:
        return scratch / "notebook"
    return _TMP / f"notebook-{job}"


def _found(environment: Mapping[str, str]) -> Path:
    """Return where this job's notebook is; it may have been started with another TMPDIR."""
    places = (folder(environment), folder({**environment, "TMPDIR": ""}))
    for place in places:
        with contextlib.suppress(OSError):
            if _is_own(place):
                return place
    return places[0]


def _is_own(place: Path) -> bool:
    found = place.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


def start(environment: Mapping[str, str]) -> NoReturn:
    """Become JupyterLab, with a new token in a file that only its owner reads.

    Raises:
        NotebookError: it can't be started.
        OSError: the folder can't be made.

    """
    program = shutil.which(PROGRAM, path=environment.get("PATH", ""))
    if program is None:
        raise NotebookError(NOT_LOADED)
    private = folder(environment)
    longest = os.fsencode(private)
    if len(longest) + _LONGEST_NAME_OF_A_KERNEL > LONGEST_SOCKET:
        raise NotebookError(
            f"{private} is too long for the name of a socket: ask an administrator for a shorter "
            "folder of scratch"
        )
    try:
        private.mkdir(mode=0o700)
    except FileExistsError as error:
        raise NotebookError(
            f"{private} is there already, and may be somebody else's: start another notebook, on "
            "another node if that does not help (--exclude)"
        ) from error
    token = private / "token"
    with open(token, "x", encoding="ascii", opener=_for_the_owner) as file:
        file.write(secrets.token_urlsafe(32))
    command = [
        program,
        "--no-browser",
        f"--ServerApp.sock={private / 'socket'}",
        "--ServerApp.sock_mode=0600",
        "--KernelManager.transport=ipc",
    ]
    given = {
        **{name: value for name, value in environment.items() if name != "JUPYTER_TOKEN"},
        "JUPYTER_TOKEN_FILE": str(token),
        "JUPYTER_RUNTIME_DIR": str(private),
    }
    sys.stderr.flush()
    os.execve(program, command, given)


def _for_the_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def answer(
    environment: Mapping[str, str],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> dict[str, str]:
    """Wait until JupyterLab of this job answers; return its node, socket and token.

    Raises:
        NotebookError: it does not, or nobody could reach it.

    """
    login = pwd.getpwuid(os.getuid()).pw_name
    node = environment.get("SLURMD_NODENAME") or socket.gethostname()
    if not lets_in(login, _lines()):
        raise NotebookError(
            f"sshd of {node} lets nobody in, not even with a job there (AllowUsers), so the "
            "notebook can't be reached: use a partition whose nodes do, or ask an administrator"
        )
    began = clock()
    while not _answers((private := _found(environment)) / "socket"):
        if clock() >= began + _START_SECONDS and not private.exists():
            raise NotebookError(f"{private} is not on {node}, so this job is none of notebook's")
        if clock() >= began + READY_SECONDS:
            raise NotebookError(
                f"JupyterLab has not answered on {node} within {READY_SECONDS} s: see its output "
                "(~/.local/state/muster), and end the job by scancel if it does not go on"
            )
        sleep(0.5)
    if not _is_own(private):
        raise NotebookError(f"{private} is somebody else's: end the job, and start another one")
    token = (private / "token").read_text(encoding="ascii")
    return {"node": node, "socket": str(private / "socket"), "token": token}


def _lines() -> list[str]:
    """Return what is set for sshd; a file that its owner alone reads says nothing."""
    found: list[str] = []
    for path in (path for pattern in _SSHD for path in glob.glob(pattern)):
        try:
            found += Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
    return found


def lets_in(login: str, lines: Iterable[str]) -> bool:
    """Whether sshd lets a person in, as far as AllowUsers says; PAM asks for the job."""
    words = [line.split() for line in lines]
    allowed = [name for line in words if line[:1] == ["AllowUsers"] for name in line[1:]]
    return not allowed or any(fnmatch.fnmatchcase(login, name) for name in allowed)


class _OverSocket(http.client.HTTPConnection):
    """HTTP over a UNIX socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=5)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


def _answers(path: Path) -> bool:
    """Whether a server answers there; this address of JupyterLab's needs no token."""
    connection = _OverSocket(path)
    try:
        connection.request("GET", "/api")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
