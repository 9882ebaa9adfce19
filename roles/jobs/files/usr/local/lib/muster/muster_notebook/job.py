# SPDX-License-Identifier: Apache-2.0
"""The job of a notebook, from the login node: submit it, wait until it runs, ask it where it is."""

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from muster_jobs import waiting
from muster_jobs.records import NotKnownError, Run, clean

from muster_notebook.errors import NotebookError
from muster_notebook.server import LONGEST_SOCKET, READY_SECONDS

SERVER = "/usr/local/lib/muster/notebook-server"
SCRIPT = f"#!/bin/sh\nexec {SERVER} start\n"
_SBATCH = ["/usr/bin/sbatch", "--parsable", "--no-requeue", "--job-name=notebook"]
_SRUN = ["/usr/bin/srun", "--overlap", "--quiet", "--input=none", "--nodes=1", "--ntasks=1"]
_SUBMIT_SECONDS = 120
"""sbatch tries again for a minute where slurmctld has no room for more jobs (MaxJobCount)."""
_STEP_SECONDS = READY_SECONDS + 60
POLL_SECONDS = 3
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*")
_TOKEN = re.compile(r"[A-Za-z0-9_-]+")
_LAST_LINES = 3
_LAST_BYTES = 4096


def log_of(job: str, home: Path) -> Path:
    """Return the file with what JupyterLab of a job writes, as sbatch is told it."""
    return home / ".local/state/muster" / f"notebook-{job}.log"


def submit(options: Sequence[str], home: Path, run: Run) -> str:
    """Submit the job; return its number.

    Raises:
        NotebookError: sbatch refuses it.

    """
    log = log_of("%j", home)
    try:
        log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        done = run(
            [*_SBATCH, f"--output={log}", *options], timeout=_SUBMIT_SECONDS, data=SCRIPT.encode()
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotebookError(
            f"the job was not submitted ({error}): try again on a login node"
        ) from error
    said = clean(done.stderr.decode("utf-8", "replace"), 400)
    number = re.match(r"[0-9]+", done.stdout.decode("utf-8", "replace"))
    if done.returncode != 0 or number is None:
        raise NotebookError(
            f"sbatch refuses the job ({said or done.returncode}): change the options, or wait "
            "until others of your jobs are over if you have too many"
        )
    return number[0]


@dataclass(frozen=True)
class Waiter:
    """Waits until a job runs, and says why it does not yet."""

    run: Run
    say: Callable[[str], object]
    sleep: Callable[[float], object] = time.sleep
    now: Callable[[], datetime] = datetime.now

    def until_it_runs(self, job: str) -> None:
        """Return when the job runs. What is said is said once, as long as it stays the same.

        Raises:
            NotebookError: it is over, or is in no queue.

        """
        told: tuple[str, ...] = ()
        while True:
            try:
                found = waiting.entries(job, self.run)
            except NotKnownError as error:
                if isinstance(error.__cause__, FileNotFoundError):
                    raise NotebookError(f"{error}; type notebook on a login node") from error
                # The job does not need slurmctld to keep its place.
                news: tuple[str, ...] = (str(error),)
                lines = [f"{error}; the job stays where it is, and notebook asks again"]
            else:
                if not found or not found[0].waits:
                    if found and found[0].state == "RUNNING":
                        return
                    raise NotebookError(
                        f"job {job} is over, or was never there: muster-job {job} says how it ended"
                    )
                entry = found[0]
                news = (entry.state, entry.reason)
                lines = waiting.sentences(entry, waiting.before(entry, self.run), self.now())
            if news != told:
                self.say("".join(f"  {line}\n" for line in lines))
                told = news
            self.sleep(POLL_SECONDS)


@dataclass(frozen=True)
class Place:
    """Where a notebook is."""

    node: str
    socket: str
    token: str


def ask(job: str, run: Run) -> Place:
    """Return where the notebook of a job that runs is, when JupyterLab answers.

    Raises:
        NotebookError: it does not, or the job is over.

    """
    # TaskProlog gives a step without TMPDIR the job's own scratch, which the server looks into.
    command = ["/usr/bin/env", "-u", "TMPDIR", *_SRUN, f"--jobid={job}", SERVER, "answer"]
    try:
        done = run(command, timeout=_STEP_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotebookError(
            f"job {job} does not answer ({error}): try again by notebook --job {job}"
        ) from error
    said = done.stderr.decode("utf-8", "replace")
    if done.returncode == 0:
        try:
            found = json.loads(done.stdout)
            return _checked(Place(str(found["node"]), str(found["socket"]), str(found["token"])))
        except (ValueError, KeyError, TypeError) as error:
            raise NotebookError(
                f"job {job} gives no answer that can be read: end it by scancel {job}, and tell an "
                "administrator"
            ) from error
    own = re.search(r"notebook: (.*)", said)
    if own:
        raise NotebookError(clean(own[1], 400))
    raise NotebookError(f"job {job} is not reached ({clean(said) or done.returncode})")


def _checked(place: Place) -> Place:
    """Return a place that can be pasted on the own machine; raise ValueError of any other.

    Who is root of the node says what it likes. ssh itself has variables of the own machine in
    the place of `$` and `%`, and ends the name of a socket at a colon.
    """
    path = place.socket
    is_socket = path.startswith("/") and path.isprintable() and not set("$%:") & set(path)
    if not is_socket or len(path.encode()) > LONGEST_SOCKET:
        raise ValueError("the name of the socket")
    if not _NODE.fullmatch(place.node) or not _TOKEN.fullmatch(place.token):
        raise ValueError("the node or the token")
    return place


def has_ended(job: str, run: Run) -> bool:
    """Whether a job neither waits nor runs any more; False where nobody knows."""
    try:
        found = waiting.entries(job, run)
    except NotKnownError:
        return False
    return not any(entry.waits or entry.state == "RUNNING" for entry in found)


def last_lines(file: Path) -> str:
    """Return how the output of a job ends; a shared folder shows it some seconds late."""
    try:
        with file.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - _LAST_BYTES))
            lines = stream.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return "".join(f"  {clean(line)}\n" for line in lines[-_LAST_LINES:])
