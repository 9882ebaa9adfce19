"""A lab whose queue is full, and what its sbatch and scheduler need then.

The lab of docs/limits.md on emulated nodes. No node can start one of the waiting jobs: each wants a
whole node, and something runs on all of them. One GPU of each node is free, for whoever wants just
one. The jobs are short, so that a pass of backfill finds a place for thousands of them: it tries
no job for which the nodes are taken until the end of bf_window (a day, or as Muster writes it).
"""

import re
import time
from dataclasses import dataclass
from statistics import fmean

from emulation import Emulation, wait_for

PEOPLE = ("ada", "bob", "cleo", "dan", "finn", "gil", "hana", "ian", "jo")
JOBS = 5000
"""That wait, each of its own; arrays of 1,000 tasks may come to them."""

GPU = "--partition=ml-gpu --nodes=1 --gpus-per-node=4 --time=00:05:00"
CPU = "--partition=ml-cpu --nodes=1 --ntasks=48 --time=00:05:00"
SUBMIT = f"""
each=$1 jobs=0
while [ $jobs -lt $each ]; do
  sbatch --quiet --output=/dev/null {GPU} --wrap true
  sbatch --quiet --output=/dev/null {CPU} --wrap true
  jobs=$((jobs + 2))
done
"""


@dataclass(frozen=True)
class Measured:
    """Seconds: of sbatch, of the longest passes, and until somebody else's small job started."""

    longest_sbatch: float
    mean_sbatch: float
    scheduler: float
    backfill: float
    tried: int
    """Jobs that the last pass of backfill tried."""
    started: float | None


class Full:
    """The lab, on all nodes of which jobs of `seconds` run."""

    def __init__(self, lab: Emulation, *, tasks: int = 0, seconds: int = 900) -> None:
        self.lab = lab
        limit = f"--time={seconds // 60 + 5}"
        for n in (1, 2):
            gpus = f"--partition=ml-gpu --nodelist=lab-gpu-0{n} --gpus=3 {limit}"
            cpus = f"--partition=ml-cpu --nodelist=lab-cpu-0{n} --ntasks=40 {limit}"
            for options in (gpus, cpus):
                login = PEOPLE[n - 1]
                job = self.submit(login, *options.split(), script=f"sleep {seconds}")
                wait_for(lambda job=job: self.state(job) == "RUNNING", self.queue)
        # A third of them at a time, or clients of one machine would wait for each other.
        for first in range(0, len(PEOPLE), 3):
            people = " ".join(PEOPLE[first : first + 3])
            user = 'setpriv --reuid="$login" --regid="$login" --init-groups env --chdir=/tmp'
            each = -(-JOBS // len(PEOPLE))
            loop = f"for login in {people}; do {user} sh -ec '{SUBMIT}' sh {each} & done; wait"
            lab.run("sh", "-ec", loop)
        for login in PEOPLE[: tasks // 1000]:
            self.submit(login, *GPU.split(), "--array=1-1000")

    def submit(self, login: str, *options: str, script: str = "true") -> str:
        return self.lab.run(
            *("setpriv", f"--reuid={login}", f"--regid={login}", "--init-groups"),
            *("env", "--chdir=/tmp", "sbatch", "--parsable", "--output=/dev/null"),
            *(*options, "--wrap", script),
        ).strip()

    def state(self, job: str) -> str:
        return self.lab.run("squeue", "--noheader", f"--jobs={job}", "--format=%T").strip()

    def queue(self) -> str:
        return self.lab.run("sh", "-c", "squeue --long | head -20; sinfo --long; sdiag")

    def waiting(self) -> int:
        """Return how many jobs wait, each task of an array counted."""
        told = self.lab.run("squeue", "--noheader", "--array", "--states=PENDING", "--format=%i")
        return len(told.splitlines())

    def measure(self, duration: float) -> Measured:
        """Submit a job each second for some seconds, and a small one first; cancel them again."""
        self.lab.run("sdiag", "--reset")
        begin = time.monotonic()
        # Behind all of them, with the least priority: only backfill starts it.
        small = self.submit(
            *("eve", "--partition=ml-gpu", "--gpus=1", "--qos=scavenger", "--time=00:10:00"),
            script="sleep 900",
        )
        jobs, seconds, started = [small], [], None
        while time.monotonic() < begin + duration:
            before = time.monotonic()
            jobs.append(self.submit("jo", *GPU.split()))
            seconds.append(time.monotonic() - before)
            if started is None and self.state(small) == "RUNNING":
                started = time.monotonic() - begin
            time.sleep(1)
        main, backfill = self.lab.run("sdiag").split("Backfilling stats")
        self.lab.run("scancel", *jobs)
        return Measured(
            max(seconds),
            fmean(seconds),
            self._number(main, "Max cycle") / 1e6,
            self._number(backfill, "Max cycle") / 1e6,
            self._number(backfill, r"Last depth cycle \(try sched\)"),
            started,
        )

    def _number(self, told: str, name: str) -> int:
        found = re.search(rf"{name}: +(\d+)", told)
        assert found, self.queue()
        return int(found[1])
