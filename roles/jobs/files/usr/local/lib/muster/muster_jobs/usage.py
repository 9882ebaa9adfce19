# SPDX-License-Identifier: Apache-2.0
"""What a job used, in one line for each resource."""

from collections import Counter
from collections.abc import Sequence

from muster_jobs.records import (
    ALL_ELAPSED,
    Record,
    allocations,
    allotted,
    pairs,
    runs_of,
    state,
)
from muster_jobs.units import duration, number, seconds, shown, size


def table(rows: Sequence[tuple[str, str]]) -> str:
    """Return (name, value) rows as indented text."""
    return "".join(f"  {name:<12} {value}\n" for name, value in rows)


def rows(records: Sequence[Record]) -> list[tuple[str, str]]:
    """Return what a job used, from the lines of sacct; an array counts as one job."""
    jobs = allocations(records)
    longest = longest_of(records)
    several = len(jobs) > 1
    states = Counter(state(job) for job in jobs)
    resources = allotted(longest)
    found = [
        ("State", ", ".join(f"{s} {n}" if several else s for s, n in states.items())),
        ("Exit code", ", ".join(sorted({job["ExitCode"] for job in jobs}))),
        ("Longest" if several else "Elapsed", _elapsed(longest)),
        ("CPU", _cpu(jobs, resources)),
        ("Memory", _memory(records, longest)),
    ]
    again = [job for job in jobs if runs_of(job) > 1]
    if again:
        found.insert(0, _runs(again, len(jobs)))
    if number(resources.get("gres/gpu", "")):
        found.append(("GPUs", _gpus(records, resources["gres/gpu"])))
    return found


def longest_of(records: Sequence[Record]) -> Record:
    """Return the job that ran longest: of an array its longest task."""
    return max(allocations(records), key=lambda job: number(job["ElapsedRaw"]))


def cpu_part(jobs: Sequence[Record]) -> float | None:
    """Return the part of the CPUs' time in which they were busy; None where none has passed."""
    allotted_seconds = sum(number(job["CPUTimeRAW"]) for job in jobs)
    busy_seconds = sum(seconds(job["TotalCPU"]) for job in jobs)
    return busy_seconds / allotted_seconds if allotted_seconds else None


def node_memory(record: Record) -> float:
    """Return the bytes that a job has on each of its nodes; 0 where they are not on record."""
    resources = allotted(record)
    return size(resources.get("mem", "")) / (number(resources.get("node", "")) or 1)


def largest_step(records: Sequence[Record]) -> Record | None:
    """Return the step that took most on a node; None where no sample met one.

    Some megabytes are in each process: a step at 0 was over before the first sample.
    """
    measured = [record for record in records if size(record["MaxRSS"])]
    return max(measured, key=taken, default=None)


def tasks_on_node(step: Record) -> int:
    """Return how many tasks of a step a node has at most, if they are spread evenly."""
    nodes = number(step["NNodes"]) or 1
    return max(1, -(-number(step["NTasks"]) // nodes))


def taken(step: Record) -> float:
    """Return the bytes that a step takes on a node if each task takes what the largest does."""
    return size(step["MaxRSS"]) * tasks_on_node(step)


def _runs(again: Sequence[Record], jobs: int) -> tuple[str, str]:
    """Return the row for jobs that were queued again: all other rows are of a job's last run."""
    if jobs > 1:
        most = max(runs_of(job) for job in again)
        text = f"{len(again)} of {jobs} jobs were queued again and ran up to {most} times"
        return "Runs", f"{text}: the lines below are of the last run of each"
    runs, total = runs_of(again[0]), number(again[0][ALL_ELAPSED])
    together = f"all runs together took {duration(total)}"
    return "Run", f"{runs} of {runs}: the lines below are of this run, {together}"


def _elapsed(job: Record) -> str:
    limit = job["Timelimit"]
    return duration(number(job["ElapsedRaw"])) + (f" of {limit}" if limit else "")


def _cpu(jobs: Sequence[Record], resources: dict[str, str]) -> str:
    part = cpu_part(jobs)
    if part is None:
        return "no time used"
    return f"{100 * part:.0f} % of {resources.get('cpu', '?')} allotted"


def _memory(records: Sequence[Record], longest: Record) -> str:
    step = largest_step(records)
    if step is None:
        return "not measured"
    has = node_memory(longest)
    on_node = tasks_on_node(step)
    text = f"{shown(size(step['MaxRSS']))} at most in one task"
    if on_node > 1:
        text += f", {on_node} tasks on a node"
    if not has:
        return text
    nodes = number(allotted(longest).get("node", ""))
    where = " on each node" if nodes > 1 else ""
    return f"{text}: {100 * taken(step) / has:.0f} % of {shown(has)} allotted{where}"


def _gpus(records: Sequence[Record], number_of_gpus: str) -> str:
    """Return what is known of GPUs: their use only where SLURM asks NVML for it."""
    busy = [number(pairs(record["TRESUsageInAve"]).get("gres/gpuutil", "")) for record in records]
    memory = [size(pairs(record["TRESUsageInMax"]).get("gres/gpumem", "")) for record in records]
    if not any(busy) and not any(memory):
        return f"{number_of_gpus} allotted, their use is not measured"
    return (
        f"{number_of_gpus} allotted, {max(busy)} % busy on average, {shown(max(memory))} of memory "
        "at most in one task"
    )
