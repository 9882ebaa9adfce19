# SPDX-License-Identifier: Apache-2.0
"""What sacct has on record about a job."""

import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from muster_jobs.units import duration, number, seconds

FIELDS = (
    "JobID,State,ExitCode,ElapsedRaw,Timelimit,CPUTimeRAW,TotalCPU,MaxRSS,NNodes,NTasks,AllocTRES,"
    "TRESUsageInAve,TRESUsageInMax,User,Partition,WorkDir,JobName"
)
RUN_FIELDS = "JobID,Submit,State,ElapsedRaw,User,WorkDir,JobName"
"""Of each run of a job."""
SACCT = ["/usr/bin/sacct", "--noheader", "--parsable2"]
SSTAT = ["/usr/bin/sstat", "--noheader", "--parsable2", "--allsteps"]
_SSTAT_FIELDS = "JobID,NTasks,AveCPU,MaxRSS"
NAMES = "--format=JobIDRaw,JobID"
"""What asks sacct for SLURM's own number of a task of an array, by which sstat calls it."""
TIMEOUT_SECONDS = 10

UNFINISHED = {"RUNNING", "PENDING", "COMPLETING", "CONFIGURING", "SUSPENDED", "REQUEUED"}

Record = Mapping[str, str]
"""A line of sacct: field -> value. Of a job (12, 12_1, 12+0) or of a step of it (12.batch)."""

RUNS, ALL_ELAPSED = "Runs", "AllElapsedRaw"
"""Fields that sacct has not: how often a job has run, and for how many seconds in all."""


class NotKnownError(Exception):
    """Why the accounting does not say it, in words for the job's owner."""


class Run(Protocol):
    """Runs a command, as `run_program` does."""

    def __call__(
        self, command: Sequence[str], timeout: float, data: bytes | None = None
    ) -> "subprocess.CompletedProcess[bytes]":
        """Return what became of it."""


def clean(text: str, limit: int = 200) -> str:
    """Return `text` in one line of valid characters, at most `limit` of them.

    Job names are the users' own: a line break in one must not become a line of its own elsewhere.
    """
    valid = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    line = " ".join("".join(c if c.isprintable() else " " for c in valid).split())
    return line if len(line) <= limit else line[: limit - 3] + "..."


def output(command: Sequence[str], run: Run) -> str:
    """Return what a program of SLURM prints.

    Raises:
        NotKnownError: it failed, or did not answer.

    """
    name = command[0].rpartition("/")[2]
    try:
        done = run(command, timeout=TIMEOUT_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotKnownError(f"{name} did not answer: {error}") from error
    if done.returncode != 0:
        said = clean(done.stderr.decode("utf-8", "replace"))
        raise NotKnownError(f"{name} failed: {said or done.returncode}")
    return done.stdout.decode("utf-8", "replace")


def parse(text: str, fields: str = FIELDS) -> list[Record]:
    """Return the lines that sacct prints for fields; only the last one may have the separator."""
    names = fields.split(",")
    rows = (line.split("|", len(names) - 1) for line in text.splitlines())
    return [dict(zip(names, row, strict=True)) for row in rows if len(row) == len(names)]


def state(record: Record) -> str:
    """Return the state alone: CANCELLED of `CANCELLED by 20001`."""
    return (record["State"].split() or ["?"])[0]


def is_unfinished(record: Record) -> bool:
    """Whether it has not ended yet."""
    return state(record) in UNFINISHED


def allocations(records: Sequence[Record]) -> list[Record]:
    """Return the records of jobs (12, 12_1, 12+0), without those of their steps (12.batch)."""
    return [record for record in records if "." not in record["JobID"]]


def allotted(record: Record) -> dict[str, str]:
    """Return name -> amount of a record's AllocTRES: cpu=4,mem=8G,gres/gpu=2."""
    return pairs(record["AllocTRES"])


def pairs(text: str) -> dict[str, str]:
    """Return name -> amount of SLURM's list of trackable resources."""
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)


def asked(job: str, run: Run) -> list[Record]:
    """Return what is on record about a job, or an array, now: of its last run, with RUNS.

    Raises:
        NotKnownError: sacct failed.

    """
    return _with_runs(job, _last_run(job, run), run)


def _last_run(job: str, run: Run) -> list[Record]:
    """Return the records that sacct has by itself: of a job that was queued again the last ones."""
    return parse(output([*SACCT, f"--format={FIELDS}", f"--jobs={job}"], run))


def _with_runs(job: str, records: Sequence[Record], run: Run) -> list[Record]:
    """Return the records, those of jobs with RUNS and ALL_ELAPSED.

    When SLURM queues a job again, slurmdbd begins another record of its number, with another time
    of submission: sacct(1), --duplicates. What never began is no run.
    """
    if not allocations(records):
        return list(records)
    command = [*SACCT, "--allocations", "--duplicates", f"--format={RUN_FIELDS}", f"--jobs={job}"]
    all_runs = parse(output(command, run), RUN_FIELDS)
    found: list[Record] = []
    for record in records:
        if "." in record["JobID"]:
            found.append(record)
            continue
        same = sorted(
            (one for one in all_runs if _is_same(one, record)), key=lambda one: one["Submit"]
        )
        # The last one is the record itself.
        times = [number(one["ElapsedRaw"]) for one in same[:-1] if state(one) != "RESIZING"]
        earlier = [elapsed for elapsed in times if elapsed]
        total = sum(earlier) + number(record["ElapsedRaw"])
        found.append({**record, RUNS: str(len(earlier) + 1), ALL_ELAPSED: str(total)})
    return found


def _is_same(one: Record, record: Record) -> bool:
    """Whether both are of one job: on a cluster that was built again, numbers begin at 1 again."""
    return all(one[name] == record[name] for name in ("JobID", "User", "WorkDir", "JobName"))


def runs_of(record: Record) -> int:
    """Return how often a job has run."""
    return number(record.get(RUNS, "")) or 1


def ended(
    job: str,
    run: Run,
    wait_seconds: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> list[Record]:
    """Return what is on record about a job once its end is.

    The record of a short job comes in parts, the time limit after the state. A limit that is still
    missing after the wait stays empty.

    Args:
        job: Number of the job, or of the array.
        run: Runs a command, as `run_program`.
        wait_seconds: How long the end may be missing.
        clock: Seconds that pass.
        sleep: Waits that many.

    Raises:
        NotKnownError: sacct failed, or the end is still missing after the wait.

    """
    deadline = clock() + wait_seconds
    while True:
        records = _last_run(job, run)
        late = clock() >= deadline
        if records and not any(is_unfinished(record) for record in records):
            if late or all(record["Timelimit"] for record in allocations(records)):
                return _with_runs(job, records, run)
        elif late:
            raise NotKnownError("the accounting has not heard of the end of the job yet")
        sleep(1)


def with_running_steps(job: str, records: Sequence[Record], run: Run) -> list[Record]:
    """Return the records of a job that runs with what its steps have used so far, from sstat.

    As they are where sstat fails: it asks the nodes, which may be busy, and for own jobs alone.
    """
    running = {one["JobID"] for one in allocations(records) if state(one) == "RUNNING"}
    try:
        lines = output([*SACCT, "--allocations", NAMES, f"--jobs={job}"], run).splitlines()
        names = {own: name for own, _, name in (line.partition("|") for line in lines)}
        numbers = ",".join(own for own, name in names.items() if name in running)
        text = output([*SSTAT, f"--format={_SSTAT_FIELDS}", f"--jobs={numbers}"], run)
    except NotKnownError:
        return list(records)
    used: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        words = line.split("|")
        if len(words) == len(_SSTAT_FIELDS.split(",")):
            step, tasks, cpu, memory = words
            own, _, rest = step.partition(".")
            total = seconds(cpu) * (int(tasks) if tasks.isdigit() else 0)
            used[f"{names.get(own, own)}.{rest}"] = {
                "TotalCPU": duration(total),
                "MaxRSS": memory,
                "NTasks": tasks,
            }
    known = [{**record, **used.get(record["JobID"], {})} for record in records]
    return [
        {**record, "TotalCPU": _of_steps(record["JobID"], known)}
        if record["JobID"] in running
        else record
        for record in known
    ]


def _of_steps(job: str, records: Sequence[Record]) -> str:
    """Return the CPU time of all steps of a job; those that are over have it on record."""
    steps = [record for record in records if record["JobID"].startswith(f"{job}.")]
    return duration(sum(seconds(record["TotalCPU"]) for record in steps))


JOB = re.compile(r"[0-9]+(?:[_+][0-9]+)?")
"""What SLURM calls a job, a task of an array or a part of a heterogeneous job."""
