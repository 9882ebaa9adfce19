# SPDX-License-Identifier: Apache-2.0
"""Ends a program with all that it has started.

A process group is not enough: each of Ansible's workers has its own session
(ansible/executor/process/worker.py, _detach), and only an ansible-playbook that still listens ends
them on SIGTERM.
"""

import os
import signal
import subprocess
import time
from pathlib import Path

GRACE_S = 20.0
"""From SIGTERM to SIGKILL: apt lets go of its lock in that time."""
POLL_S = 0.05


Family = set[tuple[int, str]]
"""Processes: their number, and when they began."""


def end(process: "subprocess.Popen[bytes]") -> None:
    """End a Popen and its descendants, and wait until they are gone.

    What hangs in the kernel, as on a server of folders that is away, outlives it.
    """
    family = _family({process.pid})
    _send(signal.SIGTERM, family)
    _wait(process, family)
    # What they have started since, too.
    family |= _family({pid for pid, _ in _alive(family)})
    _send(signal.SIGKILL, family)
    _wait(process, family)


def _wait(process: "subprocess.Popen[bytes]", family: Family) -> None:
    deadline = time.monotonic() + GRACE_S
    # This program's own child stays as a zombie until it is asked for.
    while (process.poll() is None or _alive(family)) and time.monotonic() < deadline:
        time.sleep(POLL_S)


def _family(pids: set[int]) -> Family:
    """Return these processes and all below them."""
    begun: dict[int, str] = {}
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        stat = _stat(pid)
        if stat:
            parent, begun[pid] = stat
            children.setdefault(parent, []).append(pid)
    known = [pid for pid in pids if pid in begun]
    for pid in known:
        known += children.get(pid, [])
    return {(pid, begun[pid]) for pid in known}


def _stat(pid: int) -> tuple[int, str] | None:
    """Return a process' parent and when it began; None for one that is gone: proc(5)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in ("Z", "X") else (int(fields[1]), fields[19])


def _alive(family: Family) -> Family:
    """Return those that run still, and are no others under an old number."""
    return {(pid, begun) for pid, begun in family if (_stat(pid) or (0, ""))[1] == begun}


def _send(number: int, family: Family) -> None:
    for pid, _ in _alive(family):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue  # ended meanwhile
