#!/usr/bin/python3 -IS
# SPDX-License-Identifier: Apache-2.0
"""Wait until Google preempts this spot VM, then drain its SLURM node and end or requeue its jobs.

instance/preempted turns TRUE, the power button is pressed, and 30 s later the VM is off:
https://cloud.google.com/compute/docs/instances/spot#preemption-process. In between

* the node takes no more jobs, and SLURM powers it down when it has none (POWER_DOWN_ASAP);
* batch jobs are queued again, all at once. SLURM sends SIGTERM to all their processes and SIGKILL
  after KillWait. However they end now, they run again: SLURM counts no end of a queued job;
* jobs that can't be queued again get SIGTERM, too, and may end by themselves.

The power button lets systemd stop this program; slurmd, munged, jobs, network and folders are
stopped after it (muster-spot.service), so it ends when the jobs have ended.

Python's standard library alone, and no more processes than it takes.
"""

import http.client
import os
import signal
import subprocess
import time
from collections.abc import Callable
from urllib.parse import urlsplit

# The address needs no DNS: https://cloud.google.com/compute/docs/metadata/querying-metadata
METADATA = "http://169.254.169.254/computeMetadata/v1/"
NAME = "/run/muster-node/spot"
"""The node's name; node.py writes it on spot VMs."""

REASON = "muster: Google takes this spot VM back"
WAIT_S = 60
"""How long one request waits for the notice."""
LATE_S = 2
"""By how much the notice may come after the power button."""
ANSWER_S = 10.0
PAUSE_S = 5.0
"""After a request that failed."""
COMMAND_S = 5.0
AGAIN_S = 0.5
REACH_S = 12.0
"""How long to retry slurmctld: without it the jobs get only systemd's SIGTERM."""
STATES = "RUNNING,CONFIGURING,SUSPENDED"
# The id of an array's last task is that of the whole array: tasks go by their array's id.
COLUMNS = "JobArrayID:40,HetJobID:20,BatchFlag:8,Requeue:8"


class StoppedError(Exception):
    """systemd stops the service."""


class TroubleError(Exception):
    """What did not work, in one sentence."""


def stop(_number: int, _frame: object) -> None:
    """Stop waiting."""
    raise StoppedError


class Notice:
    """What the metadata server says: whether Google preempts the VM."""

    def __init__(self, metadata: str = METADATA) -> None:
        """Take the address of the metadata server; the default is Google's."""
        self.address = urlsplit(f"{metadata}instance/preempted")
        # No value has the etag 0: the first answer comes at once.
        self.etag = "0"

    def wait(self) -> None:
        """Return when Google preempts the VM."""
        said = ""
        while True:
            try:
                if self.ask(WAIT_S):
                    return
                said = ""
            except TroubleError as error:
                if str(error) != said:
                    said = str(error)
                    print(f"muster: the preemption notice can't be read: {said}", flush=True)
                time.sleep(PAUSE_S)

    def ask(self, seconds: float) -> bool:
        """Return whether Google preempts it, when that has changed or `seconds` are over.

        Raises:
            TroubleError: there is no answer.

        """
        # By its etag, a change between two requests is not missed.
        query = f"wait_for_change=true&timeout_sec={seconds}&last_etag={self.etag}"
        connection = http.client.HTTPConnection(self.address.netloc, timeout=seconds + ANSWER_S)
        try:
            connection.request(
                "GET", f"{self.address.path}?{query}", headers={"Metadata-Flavor": "Google"}
            )
            answer = connection.getresponse()
            text = answer.read().decode("utf-8", errors="replace").strip()
        except (OSError, http.client.HTTPException) as error:
            why = error or type(error).__name__
            raise TroubleError(f"the metadata server does not answer: {why}") from error
        finally:
            connection.close()
        if answer.status != 200:
            raise TroubleError(f"the metadata server answers {answer.status}")
        self.etag = answer.getheader("ETag", "0")
        return text == "TRUE"


class Node:
    """A node as SLURM has it; `run` gets the words of a command and returns its output."""

    def __init__(self, name: str, run: Callable[[list[str]], str], proc: str = "/proc") -> None:
        """Take the node's name, what runs a command, and where the kernel lists processes."""
        self.name = name
        self.run = run
        self.proc = proc

    def leave(self) -> None:
        """Take the node out of SLURM and its jobs off it; return when they have ended.

        If slurmctld can't be reached it is given up: systemd then stops the jobs.
        """
        print(f"{REASON}: {self.name} leaves SLURM", flush=True)
        end = time.monotonic() + REACH_S
        # First: otherwise a requeued job could start here again.
        drained = persist(self.drain, end)
        told: set[str] = set()
        if not drained or not persist(lambda: self.clear(told), end):
            print("muster: slurmctld is not reached, and learns from the VM's end", flush=True)
            return
        while self.has_jobs():
            time.sleep(AGAIN_S)
        print(f"muster: the jobs of {self.name} have ended", flush=True)

    def drain(self) -> bool:
        """Let the node take no more jobs, and be powered down when it has none."""
        what = ["state=power_down_asap", f"reason={REASON}"]
        self.run(["scontrol", "update", f"nodename={self.name}", *what])
        return True

    def clear(self, told: set[str]) -> bool:
        """Queue jobs again, tell others once (`told`); return whether all jobs were handled."""
        where = [f"--nodelist={self.name}", f"--states={STATES}"]
        listing = self.run(["squeue", "--noheader", *where, f"--Format={COLUMNS}"])
        again, others, scripts = [], [], []
        for line in listing.splitlines():
            job, whole, batch, requeue = line.split()
            # Of a heterogeneous job only the whole can be queued again, by its first part.
            job = whole if whole.isdigit() else job
            if batch == requeue == "1":
                again.append(job)
            elif job not in told:
                others.append(job)
                scripts += [job] if batch == "1" else []
        try:
            if again:
                print(f"muster: requeue {' '.join(again)}", flush=True)
                self.run(["scontrol", "requeue", ",".join(dict.fromkeys(again))])
        finally:
            # Also when one of them can't be queued again.
            told.update(others)
            self.tell(others, scripts)
        return not again

    def tell(self, others: list[str], scripts: list[str]) -> None:
        """Send SIGTERM to jobs; `scripts` are those of them that have a batch script."""
        if others:
            print(f"muster: SIGTERM to {' '.join(others)}", flush=True)
            self.run(["scancel", "--signal=TERM", *others])
        if scripts:
            # Not with --full: srun would kill its tasks.
            self.run(["scancel", "--signal=TERM", "--batch", *scripts])

    def has_jobs(self) -> bool:
        """Return whether a step of a job is left on this machine."""
        for entry in os.listdir(self.proc):
            if entry.isdigit():
                try:
                    with open(f"{self.proc}/{entry}/cmdline", "rb") as file:
                        line = file.read(16)
                except OSError:
                    continue  # it has ended
                # `slurmstepd: [41.batch]`; the one that only keeps a cgroup has no step.
                if line.startswith(b"slurmstepd: ["):
                    return True
        return False


def persist(work: Callable[[], bool], end: float) -> bool:
    """Return whether `work` succeeded; it is repeated until the time `end`."""
    said = ""
    while True:
        try:
            if work():
                return True
        except TroubleError as error:
            if str(error) != said:
                said = str(error)
                print(f"muster: {said}", flush=True)
        if time.monotonic() >= end:
            return False
        time.sleep(AGAIN_S)


def command(words: list[str]) -> str:
    """Run a program and return what it prints.

    Raises:
        TroubleError: it fails, or takes longer than COMMAND_S.

    """
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TroubleError(str(error)) from error
    if done.returncode:
        last = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1]
        raise TroubleError(f"{' '.join(words)}: {last}")
    return done.stdout


def main(notice: Notice, node: Node) -> None:
    """Wait for the notice, then leave; any other shutdown ends it at once."""
    signal.signal(signal.SIGTERM, stop)
    try:
        notice.wait()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    except StoppedError:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        try:
            if not notice.ask(LATE_S):
                return
        except TroubleError as error:
            print(f"muster: the preemption notice can't be read: {error}", flush=True)
            return
    node.leave()


if __name__ == "__main__":
    with open(NAME, encoding="utf-8") as file:
        main(Notice(), Node(file.read().strip(), command))
