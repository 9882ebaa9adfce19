#!/usr/bin/env python3
"""Say what to ask for at full scale, by two slices of the data: limits.py JOB, on a login node.

JOB is the number of an array with two tasks, whose numbers are the slices in percent, as that of
trial.sbatch. SLURM has measured their time, memory and CPUs.

The rule. Time and memory are taken to grow by a straight line through the two slices, so what a
program needs anyhow, such as for its start, is counted once. If the larger slice needs more than
its share of the data (twice the data, more than twice the time), that is no line: then they are
taken to grow by the power of the data that the two show. Since SLURM counts whole seconds, the
larger slice is taken to have lasted a second more. Then a margin comes on top: half of the time, a
fifth of the memory. CPUs are what the larger slice kept busy.

Memory and CPUs are of one task: a trial with --ntasks=4 that keeps four CPUs busy needs one for
each. SLURM measures the memory of the task that takes most of each step, and the CPU time of all
together. Steps may run side by side, so the memory of a script and of all its steps is added up.

Exit code 0: said. 1: it can't be said, with the reason in one sentence.
"""

import argparse
import math
import re
import subprocess
import sys
from typing import NamedTuple

MORE_TIME, MORE_MEMORY = 1.5, 1.2
"""The margins; muster-job takes the same."""
WHOLE = 100
"""Percent of the data."""
SHORTEST_S = 10
"""A slice that takes less says little: a second is a tenth of it, and SLURM looks at memory every
5 s."""
ROUNDING = 1.02
"""Memory beyond its share of the data by which it counts as more than a line."""
NO_WORK = 0.1
"""CPUs busy by which a program is not worth another CPU."""
SACCT = ["sacct", "--noheader", "--parsable2", "--units=K"]
FIELDS = "JobID,State,ElapsedRaw,TotalCPU,AllocCPUS,MaxRSS,NTasks"
SIZES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class TrialError(Exception):
    """Why it can't be said, in one sentence."""


class Slice(NamedTuple):
    """What SLURM has measured."""

    percent: int
    seconds: int
    memory: float
    """Bytes of one task, at most."""
    busy: float
    """CPUs that a task kept busy, on average."""
    cpus: int
    """Those that a task had."""
    tasks: int = 1


class Growth(NamedTuple):
    """What all of the data needs, and by which rule."""

    value: float
    rule: str


# -- what was measured ----------------------------------------------------------------------------


def measured(job: str) -> tuple[Slice, Slice]:
    """Return the smaller and the larger slice.

    Raises:
        TrialError: SLURM has not measured them.

    """
    try:
        done = subprocess.run(
            [*SACCT, f"--format={FIELDS}", f"--jobs={job}"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TrialError(f"sacct did not answer ({error}): try it on a login node") from error
    if done.returncode != 0:
        raise TrialError(f"sacct failed: {done.stderr.strip() or done.returncode}")
    rows = [line.split("|") for line in done.stdout.splitlines()]
    tasks = [row for row in rows if re.fullmatch(rf"{job}_\d+", row[0])]
    if len(tasks) != 2:
        raise TrialError(
            f"job {job} has {len(tasks)} tasks that began: wait for both, or submit a trial of two "
            "slices: sbatch --array=10,20 trial.sbatch"
        )
    small, large = sorted((slice_of(row, rows) for row in tasks), key=lambda one: one.percent)
    if not 0 < small.percent < large.percent <= WHOLE:
        raise TrialError(
            f"the tasks of job {job} are no percents: submit two slices, such as "
            "sbatch --array=10,20 trial.sbatch"
        )
    return small, large


def slice_of(task: list[str], rows: list[list[str]]) -> Slice:
    """Return what a task of the array took.

    Raises:
        TrialError: it has not ended well, or was not measured.

    """
    name, state, elapsed, cpu, cpus, *_ = task
    state = (state.split() or ["?"])[0]
    if state in {"PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "REQUEUED", "SUSPENDED"}:
        raise TrialError(f"{name} has not ended, or the accounting has not heard of it: wait")
    if state != "COMPLETED":
        raise TrialError(
            f"{name} ended as {state}, so it shows nothing: read what muster-job {name} says, and "
            "give the trial more, or a smaller slice"
        )
    if int(elapsed) < SHORTEST_S:
        raise TrialError(
            f"{name} took {elapsed} s, which is too short to measure: take larger slices, so that "
            f"the smaller one takes {SHORTEST_S} s or more"
        )
    steps = [row for row in rows if row[0].startswith(f"{name}.")]
    memory = sum(size(row[5]) for row in steps)
    # The batch step has one; srun's have as many as the job asked for.
    own = [row for row in steps if not row[0].endswith(".extern")]
    tasks = max((int(row[6]) for row in own if row[6].isdigit()), default=1)
    if not memory:
        raise TrialError(f"the memory of {name} was not measured: take larger slices")
    percent = int(name.partition("_")[2])
    busy = seconds(cpu) / int(elapsed) / tasks
    return Slice(percent, int(elapsed), memory, busy, max(1, int(cpus) // tasks), tasks)


def size(text: str) -> float:
    """Return the bytes of 512000K; 0 where there is no number."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)", text)
    return float(match[1]) * SIZES[match[2]] if match else 0


def seconds(text: str) -> float:
    """Return the seconds of [DD-[HH:]]MM:SS[.mmm]; 0 if it is none."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)", text)
    if not match:
        return 0
    days, hours, minutes, rest = (float(part or 0) for part in match.groups())
    return days * 86400 + hours * 3600 + minutes * 60 + rest


# -- the rule -------------------------------------------------------------------------------------


def grown(small: float, large: float, percents: tuple[int, int], is_more: bool) -> Growth:
    """Return what all of the data needs, without a margin.

    Args:
        small: What the smaller slice needs.
        large: What the larger one needs.
        percents: The two slices.
        is_more: Whether the larger one needs more than its share of the data.

    """
    few, many = percents
    if is_more:
        power = math.log(large / small) / math.log(many / few)
        value = large * (WHOLE / many) ** power
        return Growth(value, f"as the data to the power of {power:.1f}")
    slope = max(large - small, 0) / (many - few)
    return Growth(large + slope * (WHOLE - many), "by a straight line")


def time(small: Slice, large: Slice) -> Growth:
    """Return the seconds that all of the data needs."""
    is_more = large.seconds > (small.seconds + 1) * large.percent / small.percent
    return grown(small.seconds, large.seconds + 1, (small.percent, large.percent), is_more)


def memory(small: Slice, large: Slice) -> Growth:
    """Return the bytes that all of the data needs."""
    is_more = large.memory > small.memory * large.percent / small.percent * ROUNDING
    return grown(small.memory, large.memory, (small.percent, large.percent), is_more)


def cpus(large: Slice) -> int:
    """Return how many CPUs are worth it for a task."""
    return min(max(1, math.ceil(large.busy - NO_WORK)), large.cpus)


# -- words ----------------------------------------------------------------------------------------


def clock(total: float) -> str:
    """Return seconds as SLURM writes them."""
    days, rest = divmod(math.ceil(total), 86400)
    text = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{text}" if days else text


def time_option(total: float) -> str:
    """Return a time limit, rounded up to five minutes."""
    return clock(math.ceil(total / 300) * 300)


def memory_option(amount: float) -> str:
    """Return bytes as --mem takes them, rounded up: whole G, below 4 of them hundreds of M."""
    if amount >= 4 * 2**30:
        return f"{math.ceil(amount / 2**30)}G"
    return f"{math.ceil(amount / 2**20 / 100) * 100}M"


def options(amount: float, each: int, tasks: int) -> list[str]:
    """Return what to ask for; of several tasks memory goes with the CPUs, on whatever nodes."""
    if tasks == 1:
        return [f"#SBATCH --mem={memory_option(amount)}", f"#SBATCH --cpus-per-task={each}"]
    return [
        f"#SBATCH --ntasks={tasks}",
        f"#SBATCH --cpus-per-task={each}",
        f"#SBATCH --mem-per-cpu={memory_option(amount / each)}",
    ]


def report(small: Slice, large: Slice) -> str:
    """Return what was measured and what to ask for."""
    each = "" if large.tasks == 1 else f", each of {large.tasks} tasks"
    lines = [f"slice  time      memory    CPUs busy{each}"]
    lines += [
        f"{one.percent:>3} %  {clock(one.seconds)}  {one.memory / 2**20:>5.0f} MiB"
        f"  {one.busy:.1f} of {one.cpus}"
        for one in (small, large)
    ]
    if small.tasks != large.tasks:
        raise TrialError(
            f"the slices ran in {small.tasks} and {large.tasks} tasks: run both with the same "
            "--ntasks"
        )
    needed, room = time(small, large), memory(small, large)
    lines += [
        f"at {WHOLE} %: {clock(needed.value)}, {needed.rule}",
        f"at {WHOLE} %: {room.value / 2**20:.0f} MiB, {room.rule}",
        "with a margin of half of the time and a fifth of the memory, ask for:",
        f"#SBATCH --time={time_option(needed.value * MORE_TIME)}",
        *options(room.value * MORE_MEMORY, cpus(large), large.tasks),
    ]
    if cpus(large) == large.cpus:
        of_task = "" if large.tasks == 1 else " of each task"
        lines.append(
            f"all {large.cpus} CPUs{of_task} were busy: another trial shows whether it is faster "
            "with more"
        )
    return "\n".join(lines)


def main() -> int:
    """Say it; return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("job", help="the number of the trial's array")
    job = parser.parse_args().job
    if not job.isdigit():
        parser.error(f"{job!r} is no number of an array, such as 41")
    try:
        print(report(*measured(job)))
    except TrialError as error:
        print(f"limits.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
