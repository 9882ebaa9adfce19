"""The spool: what SLURM's programs have asked for and is not settled yet, and how they wake us.

Each call is a file that `client` wrote: a line of JSON (which nodes, when) and, of ResumeProgram,
SLURM_RESUME_FILE as slurmctld made it. The file of a resume stays until its request is closed, so
a daemon that comes after finds it. What calls of the two other programs say, SLURM's node states
say as well: they wake us, and are not read.
"""

import json
import logging
import os
import select
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from muster.autoscaler.reconcile.model import Job, Request
from muster.autoscaler.slurm.power_save_program import WAKE
from muster.catalog.hostlists import expand

log = logging.getLogger("muster")

RESUME = ".resume"
OTHERS = (".suspend", ".resume-failed")
DAMAGED = ".bad"
UNFINISHED_S = 60
"""Older files that nobody has finished are nobody's."""
DAMAGED_KEPT = 20
"""So many damaged files are kept to be looked at."""

_UNREADABLE = (OSError, ValueError, TypeError, KeyError, AttributeError)


class SpoolError(Exception):
    """The spool can't be used; the message is one sentence."""


class Spool:
    """The folder of the spool. Only its owner's process reads it."""

    def __init__(self, folder: Path) -> None:
        """Open the spool and make what wakes its reader.

        Raises:
            SpoolError: there is no such folder, or it belongs to somebody else.

        """
        self.folder = folder
        self._requests: dict[str, Request] = {}
        self._damaged: set[str] = set()
        fifo = folder / WAKE
        try:
            if not fifo.is_fifo():
                fifo.unlink(missing_ok=True)
                os.mkfifo(fifo, 0o600)
            # For reading and writing: else it would end, and poll return, when a writer leaves.
            self._fifo = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
        except OSError as error:
            raise SpoolError(f"the spool {folder} can't be used: {error}; run site.yml") from error
        for path in folder.glob("*.new"):
            # Of a program that was killed: what it wanted, SLURM's node states say.
            if path.stat().st_mtime < time.time() - UNFINISHED_S:
                path.unlink(missing_ok=True)

    def wait(self, seconds: float) -> bool:
        """Sleep until a program wakes us, at most so long; whether one did."""
        waiting = select.poll()
        waiting.register(self._fifo, select.POLLIN)
        if not waiting.poll(max(seconds, 0) * 1000):
            return False
        os.read(self._fifo, 1 << 16)
        return True

    def requests(self) -> list[Request]:
        """Return what ResumeProgram was asked for and is not closed, the oldest first."""
        names = self._names(RESUME)
        self._requests = {name: self._requests[name] for name in names if name in self._requests}
        for name in names:
            if name not in self._requests and (request := self._request(name)):
                self._requests[name] = request
        return [self._requests[name] for name in names if name in self._requests]

    def close(self, request: str) -> None:
        """Take a request out of the spool; one that is not there is closed."""
        self._requests.pop(request, None)
        if request in self._damaged:
            self._damaged.discard(request)
            self._set_aside(request)
        else:
            (self.folder / request).unlink(missing_ok=True)

    def forget_calls(self) -> None:
        """Remove the calls of the other programs."""
        for name in self._names(*OTHERS):
            (self.folder / name).unlink(missing_ok=True)

    def _names(self, *endings: str) -> list[str]:
        """Names of files, the oldest first: each begins with the time, in as many digits."""
        return sorted(path.name for path in self.folder.iterdir() if path.name.endswith(endings))

    def _request(self, name: str) -> Request | None:
        path = self.folder / name
        try:
            head, resume_file = _read(path)
            nodes, asked = _names_of(head["nodes"]), float(head["asked"])
        except _UNREADABLE as error:
            # Such as an empty file after the machine went down.
            log.warning("%s can't be read: %r; SLURM's node states say what it wants", path, error)
            self._set_aside(name)
            return None
        try:
            jobs = _jobs(resume_file)
        except _UNREADABLE as error:
            log.warning(
                "%s: its SLURM_RESUME_FILE can't be read: %r; its nodes are made without regard to "
                "jobs; the file is kept as %s",
                path,
                error,
                f"{name}{DAMAGED}",
            )
            self._damaged.add(name)
            jobs = ()
        return Request(name, asked, nodes, jobs)

    def _set_aside(self, name: str) -> None:
        """Keep a damaged file to be looked at, but not too many."""
        with suppress(FileNotFoundError):
            (self.folder / name).rename(self.folder / f"{name}{DAMAGED}")
        for old in self._names(DAMAGED)[:-DAMAGED_KEPT]:
            (self.folder / old).unlink(missing_ok=True)


def _read(path: Path) -> tuple[dict[str, Any], bytes]:
    """Return a file's first line, and the rest."""
    first, _, rest = path.read_bytes().partition(b"\n")
    return json.loads(first), rest


def _names_of(hostlist: str) -> tuple[str, ...]:
    return tuple(expand(hostlist))


def _jobs(resume_file: bytes) -> tuple[Job, ...]:
    """Return who waits for what, of SLURM_RESUME_FILE: there is none in a SLURM without json-c.

    A job's nodes that are to be made are `nodes_resume`, up to 22.05 `nodes`:
    https://slurm.schedmd.com/power_save.html, and recordings of both in the tests' data.
    """
    if not resume_file:
        return ()
    jobs = []
    for found in json.loads(resume_file)["jobs"]:
        nodes = found["nodes_resume"] if "nodes_resume" in found else found["nodes"]
        if nodes:
            jobs.append(Job(int(found["job_id"]), _names_of(nodes)))
    return tuple(jobs)
