"""Two accounts with shares of 3 to 1 and a full queue: what each of them gets of the GPUs.

SLURM gives free GPUs to the account that has used least of its share, until usage is counted
again: every PriorityCalcPeriod, of at least a minute, and when slurmctld starts. So accounts take
turns, of a minute or more, and only the sum of many turns is 3 to 1. Here slurmctld is started
again every few seconds, which makes turns short: eight of the smaller account pass in minutes.
Running jobs, the queue and the usage outlive each start.
"""

import re
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

import pytest
from accounted import accounted, for_release, lab_of_page
from emulation import Emulation, wait_for

from muster.definition import Definition
from muster.definition.schema.people import Account
from muster_sandbox.containers import base_image

pytestmark = pytest.mark.proof("some ten minutes of jobs, until usage has been counted often")

SHARES = {"large": 3, "small": 1}
PEOPLE = {"large": "bob", "small": "cleo"}
HALF_LIFE = "00:10:00"
TURN_SECONDS = 15
TURNS = 8
"""Of the small account, so four times as many in all."""
LIMIT_SECONDS = 700
JOB_SECONDS = 3


def two_accounts(definition: Definition) -> Definition:
    """Return a lab with two accounts, of one person each, and no limits."""
    cluster = definition.cluster
    accounts = {
        name: Account(fairshare=share, users=[PEOPLE[name]]) for name, share in SHARES.items()
    }
    partitions = {
        name: partition.model_copy(update={"qos": None})
        for name, partition in cluster.partitions.items()
    }
    people = {
        name: person.model_copy(update={"default_account": None})
        for name, person in cluster.users.people.items()
    }
    changes = {
        "accounts": accounts,
        "qos": {},
        "partitions": partitions,
        "reservations": {},
        "users": cluster.users.model_copy(update={"people": people}),
    }
    return replace(definition, cluster=cluster.model_copy(update=changes))


class Queue:
    """The cluster of one release, with a full queue of both accounts."""

    def __init__(self, lab: Emulation) -> None:
        self.lab = lab

    def fill(self) -> None:
        """Queue 2,000 tasks of each account, by turns, that ask for a GPU for some seconds."""
        options = [
            *("--partition=ml-gpu", "--gpus=1", "--cpus-per-gpu=1", "--mem-per-gpu=1G"),
            *("--time=00:05:00", "--output=/dev/null", "--array=1-1000"),
        ]
        for login in [*PEOPLE.values()] * 2:
            self.lab.run(
                *("setpriv", f"--reuid={login}", f"--regid={login}", "--init-groups"),
                *("env", f"--chdir=/home/{login}", "sbatch", *options),
                *("--wrap", f"sleep {JOB_SECONDS}"),
            )

    def usage(self) -> dict[str, float]:
        """Return the usage of accounts as SLURM has it: GPU seconds, less what has decayed."""
        said = self.lab.run("sshare", "--noheader", "--parsable2", "--format=Account,User,RawUsage")
        rows = [line.strip().split("|") for line in said.splitlines()]
        return {row[0]: float(row[2]) for row in rows if len(row) == 3 and not row[1]}

    def is_next(self) -> str:
        """Return the account whose jobs come first: it has used least of its share."""
        usage = self.usage()
        return min(SHARES, key=lambda name: usage[name] / SHARES[name])

    def count_usage(self) -> None:
        """Start slurmctld again."""
        log = "/var/log/slurm/slurmctld.log"
        died = f"echo slurmctld was gone; tail -n 50 {log}; exit 1"
        self.lab.run("sh", "-c", f"pkill -x slurmctld || {{ {died}; }}")
        gone = ["sh", "-c", "pgrep -x slurmctld || echo none"]
        wait_for(lambda: self.lab.run(*gone).strip() == "none", lambda: "slurmctld still runs")
        self.lab.starts_slurmctld(log)

    def now(self) -> float:
        """Return the time of the container's clock, in seconds."""
        return float(self.lab.run("date", "+%s.%N"))

    def gpu_seconds(self, begin: float, end: float) -> dict[str, float]:
        """Return what jobs of each account had between two times."""
        said = self.lab.run(
            *("env", "SLURM_TIME_FORMAT=%s", "sacct", "--allusers", "--allocations"),
            *("--noheader", "--parsable2", "--format=Account,Start,End,AllocTRES"),
            "--starttime=today",
        )
        had = dict.fromkeys(SHARES, 0.0)
        for line in said.splitlines():
            account, start, stop, tres = line.strip().split("|")
            gpus = re.search(r"gres/gpu=(\d+)", tres)
            if gpus and start.isdigit():
                last = float(stop) if stop.isdigit() else end
                had[account] += int(gpus[1]) * max(0.0, min(last, end) - max(float(start), begin))
        return had


def measured(lab: Emulation) -> tuple[dict[str, float], int]:
    """Let both accounts take turns; return their GPU seconds, and how long that took in seconds.

    From the end of a turn of the small account to that of another: a part of a cycle would say
    nothing.
    """
    queue = Queue(lab)
    queue.fill()
    deadline = time.monotonic() + LIMIT_SECONDS
    before, ends = "", []
    while len(ends) <= TURNS and time.monotonic() < deadline:
        time.sleep(TURN_SECONDS)
        queue.count_usage()
        following = queue.is_next()
        if (before, following) == ("small", "large"):
            ends.append(queue.now())
        before = following
    assert len(ends) > TURNS, f"{len(ends)} turns within {LIMIT_SECONDS} s: {queue.usage()}"
    # sacct has a job's end when slurmdbd has heard of it.
    time.sleep(5)
    return queue.gpu_seconds(ends[0], ends[-1]), round(ends[-1] - ends[0])


@pytest.fixture(scope="module")
def labs(tmp_path_factory) -> Iterator[Mapping[str, Emulation]]:
    """Both releases at the same time: their jobs only wait."""
    page = two_accounts(lab_of_page("docs/limits.md", tmp_path_factory.mktemp("page")))
    with ExitStack() as stack:
        yield {
            release: stack.enter_context(
                accounted(
                    "muster-fairness",
                    release,
                    for_release(
                        page,
                        release,
                        {"PriorityDecayHalfLife": HALF_LIFE, "PriorityCalcPeriod": 1},
                    ),
                )
            )
            for release in base_image.RELEASES
        }


def test_accounts_get_gpus_by_their_shares(labs, record_property):
    with ThreadPoolExecutor() as pool:
        results = dict(zip(labs, pool.map(measured, labs.values()), strict=True))
    ratios = {}
    for release, (had, seconds) in results.items():
        ratios[release] = had["large"] / had["small"]
        record_property(
            "measured",
            f"{release}: GPU minutes in {seconds} s: large {had['large'] / 60:.1f}, "
            f"small {had['small'] / 60:.1f}: {ratios[release]:.2f} to 1",
        )
    for release, ratio in ratios.items():
        assert ratio == pytest.approx(3, rel=0.1), release
