"""The spool: the requests of SLURM's programs that are not closed yet, and what wakes the daemon.

`power_save_program` writes a file for each call: a line of JSON (which nodes, when) and, from
ResumeProgram, SLURM_RESUME_FILE as slurmctld wrote it. A resume's file stays until its request is
closed, so a restarted daemon reads it again. The two other programs only wake the daemon: their
files are not read, as SLURM's node states say the same.
"""

import fcntl
import json
import logging
import os
import select
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from muster.autoscaler.clock import Clock
from muster.autoscaler.reconcile.model import Job, Request
from muster.autoscaler.slurm.power_save_program import BOOT_ID, WAKE
from muster.catalog.hostlists import expand

log = logging.getLogger("muster")

RESUME = ".resume"
OTHERS = (".suspend", ".resume-failed")
DAMAGED = ".bad"
UNFINISHED_S = 60
"""Unfinished files that are older are removed."""
DAMAGED_KEPT = 20
"""How many damaged files are kept for the administrator."""

_DAMAGED = (ValueError, TypeError, KeyError, AttributeError)


class SpoolError(Exception):
    """The spool can't be used; the message is one sentence.

    `requests` are those that are known, if it can't be read now.
    """

    def __init__(self, message: str, requests: Sequence[Request] = ()) -> None:
        super().__init__(message)
        self.requests = list(requests)


class Spool:
    """The folder of the spool. Only one process reads it, the daemon."""

    def __init__(self, folder: Path, clock: Clock = Clock()) -> None:
        """Open the spool and create the FIFO that wakes the daemon.

        Raises:
            SpoolError: there is no such folder, or it belongs to another user.

        """
        self.folder = folder
        self._clock = clock
        self._requests: dict[str, Request] = {}
        self._damaged: set[str] = set()
        self._unusable: set[str] = set()
        """Files that can't be read and can't be set aside now, such as on a read-only disk."""
        fifo = folder / WAKE
        try:
            if not fifo.is_fifo():
                fifo.unlink(missing_ok=True)
                os.mkfifo(fifo, 0o600)
            # For reading and writing: else the FIFO would be at its end when a writer closes it.
            self._fifo = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
            self._boot = Path(BOOT_ID).read_text(encoding="ascii").strip()
        except OSError as error:
            raise SpoolError(f"the spool {folder} can't be used: {error}; run site.yml") from error
        for path in folder.glob("*.new"):
            # From a program that was killed; SLURM's node states say what it asked for. It may be
            # complete by now, or the disk be read-only.
            with suppress(OSError):
                if path.stat().st_mtime < self._clock.now() - UNFINISHED_S:
                    path.unlink()

    def wait(self, seconds: float) -> bool:
        """Sleep until a program wakes the daemon, at most so long; whether one did."""
        waiting = select.poll()
        waiting.register(self._fifo, select.POLLIN)
        if not waiting.poll(max(seconds, 0) * 1000):
            return False
        os.read(self._fifo, 1 << 16)
        return True

    def requests(self) -> list[Request]:
        """Return the requests of ResumeProgram that are not closed, the oldest first.

        Raises:
            SpoolError: the folder can't be listed, or some of the files can't be read now.

        """
        try:
            names = self._names(RESUME)
        except OSError as error:
            raise self._unread(str(error.strerror)) from error
        self._requests = {name: self._requests[name] for name in names if name in self._requests}
        failed: tuple[str, OSError] | None = None
        for name in names:
            if name not in self._requests:
                try:
                    request = self._request(name)
                except OSError as error:
                    # Such as when the process has too many files open.
                    failed = failed or (name, error)
                    continue
                if request:
                    self._requests[name] = request
        if failed:
            name, why = failed
            raise self._unread(f"{name}: {why.strerror}") from why
        return self._sorted()

    def _sorted(self) -> list[Request]:
        return sorted(self._requests.values(), key=lambda request: (request.asked, request.id))

    def _unread(self, why: str) -> SpoolError:
        return SpoolError(f"{why}; using SLURM's node states meanwhile", self._sorted())

    def close(self, request: str) -> None:
        """Remove a request from the spool; no error if it is not there.

        Raises:
            SpoolError: it is there still, such as on a file system that is read-only.

        """
        try:
            if request in self._damaged:
                self._set_aside(request)
            else:
                (self.folder / request).unlink(missing_ok=True)
        except OSError as error:
            raise SpoolError(f"{error.strerror}; make {self.folder} writable") from error
        self._damaged.discard(request)
        self._requests.pop(request, None)

    def forget_calls(self) -> None:
        """Remove the files of the other programs."""
        # What can't be removed now says nothing that SLURM's node states don't say.
        with suppress(OSError):
            for name in self._names(*OTHERS):
                with suppress(OSError):
                    (self.folder / name).unlink()

    def _names(self, *endings: str) -> list[str]:
        """Names of files, the oldest first: each begins with the time, in as many digits."""
        return sorted(path.name for path in self.folder.iterdir() if path.name.endswith(endings))

    def _request(self, name: str) -> Request | None:
        """Read a request; None: there is none.

        Raises:
            OSError: its file can't be read now.

        """
        path = self.folder / name
        try:
            head, resume_file = _read(path)
            nodes, asked = _names_of(head["nodes"]), self._asked(head)
        except FileNotFoundError:
            return None
        except _DAMAGED as error:
            # Such as an empty file after the machine went down.
            if name not in self._unusable:
                log.warning("%s can't be read: %r; using SLURM's node states instead", path, error)
                self._unusable.add(name)
            with suppress(OSError):
                self._set_aside(name)
                self._unusable.discard(name)
            return None
        try:
            jobs = _jobs(resume_file)
        except _DAMAGED as error:
            log.warning(
                "%s: its SLURM_RESUME_FILE can't be read: %r; its nodes are created without regard "
                "to jobs; the file is kept as %s",
                path,
                error,
                f"{name}{DAMAGED}",
            )
            self._damaged.add(name)
            jobs = ()
        return Request(name, asked, nodes, jobs)

    def _asked(self, head: dict[str, Any]) -> float:
        """When a program was called, by the daemon's monotonic clock.

        Its seconds since the boot count from another boot if the machine was rebooted: then the
        program's date says how long ago that was, as far as the system clock was right.
        """
        if head["boot"] == self._boot:
            return min(float(head["since_boot"]), self._clock.monotonic())
        age_s = self._clock.now() - float(head["asked"])
        # It was before this boot, whatever the system clock says.
        return min(self._clock.monotonic() - age_s, -1.0)

    def _set_aside(self, name: str) -> None:
        """Keep a damaged file for the administrator, but not too many."""
        with suppress(FileNotFoundError):
            (self.folder / name).rename(self.folder / f"{name}{DAMAGED}")
        for old in self._names(DAMAGED)[:-DAMAGED_KEPT]:
            (self.folder / old).unlink(missing_ok=True)


def hold(folder: Path) -> int:
    """Lock a spool for this process, until it ends; return the lock's file descriptor.

    Raises:
        SpoolError: another daemon has it.

    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise SpoolError(
            f"another autoscaler works with the spool {folder}; stop it (fuser -v {folder})"
        ) from error
    except OSError as error:
        raise SpoolError(f"the spool {folder} can't be used: {error}; run site.yml") from error
    return descriptor


def _read(path: Path) -> tuple[dict[str, Any], bytes]:
    """Return a file's first line, and the rest."""
    first, _, rest = path.read_bytes().partition(b"\n")
    return json.loads(first), rest


def _names_of(hostlist: str) -> tuple[str, ...]:
    return tuple(expand(hostlist))


def _jobs(resume_file: bytes) -> tuple[Job, ...]:
    """Parse SLURM_RESUME_FILE; it is empty if SLURM was built without json-c.

    A job's nodes that are to be powered up are `nodes_resume`, up to 22.05 `nodes`; all of them are
    `nodes_alloc`, which 22.05 does not have:
    https://slurm.schedmd.com/power_save.html; the tests' data has recordings of both.
    """
    if not resume_file:
        return ()
    jobs = []
    for job in json.loads(resume_file)["jobs"]:
        nodes = job["nodes_resume"] if "nodes_resume" in job else job["nodes"]
        if nodes:
            resumed = _names_of(nodes)
            others = dict.fromkeys(_names_of(job.get("nodes_alloc") or nodes))
            for name in resumed:
                others.pop(name, None)
            jobs.append(Job(int(job["job_id"]), resumed, tuple(others)))
    return tuple(jobs)
