"""10,000 waiting jobs of nine people: what sbatch and the scheduler need, and who is still reached.

The lab of docs/limits.md on emulated nodes. No node can start one of these jobs: each wants a whole
node, and something runs on all of them. One GPU of each node is free, for whoever wants just one.
"""

import re
import time
from collections.abc import Iterator

import pytest
from accounted import accounted, for_release, lab_of_page
from emulation import Emulation, wait_for

from muster_sandbox.containers import base_image

pytestmark = pytest.mark.proof("fills a queue and waits for passes of the scheduler on it")

PEOPLE = ("ada", "bob", "cleo", "dan", "finn", "gil", "hana", "ian", "jo")
JOBS, TASKS = 5000, 5000
"""Jobs of their own, and tasks of arrays of 1,000."""

GPU = "--partition=ml-gpu --nodes=1 --gpus-per-node=4 --time=1-00:00:00"
CPU = "--partition=ml-cpu --nodes=1 --ntasks=48 --time=1-00:00:00"
SUBMIT = f"""
each=$1 jobs=0
while [ $jobs -lt $each ]; do
  sbatch --quiet --output=/dev/null {GPU} --wrap true
  sbatch --quiet --output=/dev/null {CPU} --wrap true
  jobs=$((jobs + 2))
done
"""


class Full:
    """A lab whose queue is full."""

    def __init__(self, lab: Emulation) -> None:
        self.lab = lab
        for n in (1, 2):
            gpus = f"--partition=ml-gpu --nodelist=lab-gpu-0{n} --gpus=3 --time=1-00:00:00"
            cpus = f"--partition=ml-cpu --nodelist=lab-cpu-0{n} --ntasks=40 --time=1-00:00:00"
            for options in (gpus, cpus):
                login = PEOPLE[n - 1]
                job = self.submit(login, *options.split(), script="sleep 900")
                wait_for(lambda job=job: self.state(job) == "RUNNING", self.queue)
        # A third of them at a time, or clients of one machine would wait for each other.
        for first in range(0, len(PEOPLE), 3):
            people = " ".join(PEOPLE[first : first + 3])
            user = 'setpriv --reuid="$login" --regid="$login" --init-groups env --chdir=/tmp'
            each = -(-JOBS // len(PEOPLE))
            loop = f"for login in {people}; do {user} sh -ec '{SUBMIT}' sh {each} & done; wait"
            lab.run("sh", "-ec", loop)
        for login in PEOPLE[: TASKS // 1000]:
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

    def cycles(self) -> tuple[float, float]:
        """Return the longest pass of the scheduler and of backfill, in seconds."""
        main, backfill = self.lab.run("sdiag").split("Backfilling stats")
        times = [re.search(r"Max cycle: +(\d+)", part) for part in (main, backfill)]
        assert all(times), self.queue()
        return tuple(int(found[1]) / 1e6 for found in times)


@pytest.fixture(scope="module", params=list(base_image.RELEASES))
def full(request, tmp_path_factory) -> Iterator[Full]:
    page = lab_of_page("docs/limits.md", tmp_path_factory.mktemp("page"))
    definition = for_release(page, request.param, {})
    with accounted("muster-full-queue", request.param, definition) as emulation:
        yield Full(emulation)


def test_ten_thousand_waiting_jobs(full, record_property):
    assert full.waiting() >= JOBS + TASKS
    full.lab.run("sdiag", "--reset")
    begin = time.monotonic()
    # Behind all of them, with the least priority: only backfill starts it.
    small = full.submit(
        *("eve", "--partition=ml-gpu", "--gpus=1", "--qos=scavenger", "--time=00:10:00"),
        script="sleep 900",
    )
    seconds, started = [], None
    # Backfill begins a pass every 30 s, so this has two.
    while time.monotonic() < begin + 75:
        before = time.monotonic()
        full.submit("jo", *GPU.split())
        seconds.append(time.monotonic() - before)
        if started is None and full.state(small) == "RUNNING":
            started = time.monotonic() - begin
        time.sleep(1)
    main, backfill = full.cycles()
    record_property(
        "measured",
        f"{full.lab.release}: {full.waiting()} jobs wait, sbatch at most {max(seconds):.2f} s, "
        f"scheduler at most {main:.2f} s, backfill at most {backfill:.2f} s, small job started "
        f"after {started or float('nan'):.0f} s",
    )
    assert max(seconds) <= 1
    assert main <= 1
    assert backfill <= 5
    assert started is not None, full.queue()
