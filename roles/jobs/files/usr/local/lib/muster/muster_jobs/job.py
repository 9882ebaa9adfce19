# SPDX-License-Identifier: Apache-2.0
"""The program muster-job."""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime

from muster_jobs import advice, metrics, records, usage, waiting
from muster_jobs.records import NotKnownError, Record, Run, clean

DONE, FAILED, WRONG = 0, 1, 2


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    whole = argparse.ArgumentParser(
        prog="muster-job",
        description="Say why a job waits and when it may start, or how it ended, what it used and "
        "what to ask for next time.",
        epilog=f"Exit code {DONE}: said. {FAILED}: SLURM did not answer. {WRONG}: there is no such "
        "job, or the words are wrong.",
        allow_abbrev=False,
    )
    whole.add_argument("job", metavar="JOB", help="its number; of an array 12 or 12_3")
    return whole


def run_program(
    command: Sequence[str], timeout: float, data: bytes | None = None
) -> "subprocess.CompletedProcess[bytes]":
    """Run a program of SLURM, with times and numbers in SLURM's own form."""
    unwanted = ("SQUEUE_", "SACCT_", "SLURM_TIME_FORMAT", "SLURM_CLUSTERS", "LC_")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(unwanted)}
    return subprocess.run(
        command,
        timeout=timeout,
        input=data,
        env={**environment, "LC_ALL": "C.UTF-8"},
        capture_output=True,
        check=False,
    )


def main(words: Sequence[str], run: Run = run_program) -> int:
    """Say it; return the exit code."""
    whole = parser()
    job = whole.parse_args(words).job
    if not records.JOB.fullmatch(job):
        whole.error(f"{clean(job)!r} is no number of a job, such as 12 or 12_3")
    try:
        text = report(job, run, datetime.now())  # noqa: DTZ005 (SLURM writes no zone)
    except NotKnownError as error:
        sys.stderr.write(f"error: {error}; try again on a login node, or tell an administrator\n")
        return FAILED
    if not text:
        sys.stderr.write(f"error: there is no job {job}; sacct lists yours of today\n")
        return WRONG
    sys.stdout.write(text)
    return DONE


def report(job: str, run: Run, now: datetime) -> str:
    """Return all about a job; nothing for one that SLURM does not know.

    Raises:
        NotKnownError: a program of SLURM failed.

    """
    text = waiting.report(job, run, now)
    try:
        known = records.asked(job, run)
    except NotKnownError:
        # Without accounting squeue alone knows.
        if text:
            return text
        raise
    started = [record for record in known if records.state(record) != "PENDING"]
    if not records.allocations(started) or (text and not _has_run(started)):
        return text
    return text + _used(job, started, run)


def _has_run(found: Sequence[Record]) -> bool:
    return any(record["ElapsedRaw"] not in ("", "0") for record in records.allocations(found))


def _used(job: str, found: Sequence[Record], run: Run) -> str:
    if any(records.state(record) == "RUNNING" for record in records.allocations(found)):
        found = records.with_running_steps(job, found, run)
    jobs = records.allocations(found)
    # A task of an array has a number of its own too, by which it may be asked for.
    name = job if len(jobs) > 1 else jobs[0]["JobID"]
    rows = usage.rows(found)
    values = _metrics(name, jobs[0])
    if values:
        rows.append(("Metrics", values))
    head = f"Job {name}, {clean(jobs[0]['JobName'], 60)}, of {jobs[0]['User']}:\n"
    said = "".join(f"{sentence}\n" for sentence in advice.sentences(found))
    return head + usage.table(rows) + said


def _metrics(job: str, record: Record) -> str:
    """Return the last numbers that the job wrote; its folder may be closed to others."""
    if not record["WorkDir"].startswith("/"):
        return ""
    try:
        return metrics.row(metrics.last(metrics.path(record["WorkDir"], job)))
    except OSError:
        return ""
