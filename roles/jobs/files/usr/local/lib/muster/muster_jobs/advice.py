# SPDX-License-Identifier: Apache-2.0
"""How a job ended, and what to ask for next time: sentences."""

import math
import pwd
import re
import signal
from collections import defaultdict
from collections.abc import Sequence

from muster_jobs.records import Record, allocations, allotted, is_unfinished, runs_of, state
from muster_jobs.units import duration, number, option, seconds, shown
from muster_jobs.usage import cpu_part, largest_step, longest_of, node_memory, taken

_ENOUGH = 1.2
"""Memory to ask for, as a multiple of what was taken: the next run differs a little."""
_MORE = 1.5
"""Of what was too little, where nobody knows how much would have been enough."""
_WASTED = 0.5
"""Part of what was allotted below which it is worth a sentence."""
_IDLE = 0.4
"""The same for CPUs: where a core has two, 0.5 is all that a thread for each core can use."""
_SMALL_BYTES = 2**30
_SHORT_SECONDS = 600
"""What a job has anyhow: to ask for less would help nobody."""

_ENDS = {
    "BOOT_FAIL": "Its nodes did not start; submit it again, and tell an administrator if that "
    "does not help",
    "DEADLINE": "It could not have ended before its --deadline, so SLURM removed it",
    "NODE_FAIL": "A node failed under it; a batch job is queued again, unless it has --no-requeue: "
    "let it save now and then, and go on from there",
    "PREEMPTED": "It had to make room for another job; a batch job is queued again, unless it has "
    "--no-requeue: let it save when it gets SIGTERM, and go on from there",
    "REVOKED": "Another cluster of the federation has started it",
}
_FIRST_SIGNAL_CODE = 128
"""A shell's exit code for a program that a signal killed is this and the signal's number."""
_NO_OUTPUT = 53
"""What SLURM records as a signal where slurmstepd ends with ESLURMD_IO_ERROR: 4021 modulo 128."""


def sentences(records: Sequence[Record]) -> list[str]:
    """Return what there is to say about a job that has ended or runs, most important first."""
    jobs = allocations(records)
    if any(is_unfinished(job) for job in jobs):
        return []
    found: list[str] = []
    for one in dict.fromkeys(state(job) for job in jobs):
        found += _how_it_ended(one, [job for job in jobs if state(job) == one], records)
    # The last run of a job that was queued again may be the end of a long one: it went on from a
    # checkpoint, and says little of what the whole job needs.
    is_whole = all(runs_of(job) == 1 for job in jobs)
    if is_whole and all(state(job) == "COMPLETED" for job in jobs):
        found += [*_less_memory(records), *_less_time(records), *_fewer_cpus(jobs)]
    return found


def _how_it_ended(one: str, jobs: Sequence[Record], records: Sequence[Record]) -> list[str]:
    longest = longest_of(jobs)
    if one == "OUT_OF_MEMORY":
        return [_out_of_memory(longest, records)]
    if one == "TIMEOUT":
        limit = seconds(longest["Timelimit"])
        wanted = f"--time={duration(_rounded(limit * _MORE))}" if limit else "more --time"
        return [
            f"It ran into its time limit: ask for {wanted}, or let it save before the limit and be "
            "queued again (--signal)"
        ]
    if one == "CANCELLED":
        return [f"It was cancelled{_by(longest['State'])}"]
    if one == "FAILED":
        return [_failed(longest["ExitCode"])]
    return [_ENDS[one]] if one in _ENDS else []


def _out_of_memory(job: Record, records: Sequence[Record]) -> str:
    has = node_memory(job)
    step = largest_step(records)
    took = f"; the largest sample of it was {shown(taken(step))}" if step else ""
    if not has:
        return f"It needed more memory than it had{took}: ask for more (--mem)"
    nodes = " on each node" if number(allotted(job).get("node", "")) > 1 else ""
    return (
        f"It needed more memory than the {shown(has)}{nodes} that it had{took}: ask for "
        f"--mem={option(has * _MORE)}, or for fewer tasks on a node"
    )


def _by(text: str) -> str:
    match = re.search(r"\bby (\d+)$", text)
    if not match:
        return ""
    if match[1] == "0":
        return " by an administrator"
    try:
        return f" by {pwd.getpwuid(int(match[1])).pw_name}"
    except (KeyError, OverflowError):
        return f" by the user with number {match[1]}"


def _failed(exit_code: str) -> str:
    before, _, after = exit_code.partition(":")
    code, killed = number(before), number(after)
    name = _signal_name(killed) or _signal_name(code - _FIRST_SIGNAL_CODE)
    if name:
        return f"{name} ended its script, or a program of it; its output may say more"
    if killed == _NO_OUTPUT:
        return (
            "SLURM could not open its output file on the node: see that the folder of --output, "
            "and the one in which sbatch was called, are there and you may write to them, and "
            "submit it again"
        )
    if killed:
        return (
            f"SLURM could not start its script, or signal {killed} ended it: its output may say "
            "more, else an administrator finds why in the log of slurmd on its node"
        )
    return f"Its script ended with exit code {code}; its output says why"


def _signal_name(code: int) -> str:
    try:
        return signal.Signals(code).name
    except ValueError:
        return ""


def _less_memory(records: Sequence[Record]) -> list[str]:
    # sacct does not say which steps ran side by side: together they took no more than this.
    took: defaultdict[str, float] = defaultdict(float)
    for record in records:
        took[record["JobID"].partition(".")[0]] += taken(record)
    most = max(took.values())
    has = node_memory(longest_of(records))
    if not most or has - most < _SMALL_BYTES or most > _WASTED * has:
        return []
    enough = max(most * _ENOUGH, 100 * 2**20)
    return [f"--mem={option(enough)} would have been enough memory on each node"]


def _less_time(records: Sequence[Record]) -> list[str]:
    longest = longest_of(records)
    limit, elapsed = seconds(longest["Timelimit"]), number(longest["ElapsedRaw"])
    if limit <= _SHORT_SECONDS or elapsed > _WASTED * limit:
        return []
    enough = max(_rounded(elapsed * _MORE), _SHORT_SECONDS)
    if enough >= limit:
        return []
    return [
        f"--time={duration(enough)} would have been enough; jobs with a shorter limit start earlier"
    ]


def _fewer_cpus(jobs: Sequence[Record]) -> list[str]:
    part = cpu_part(jobs)
    resources = allotted(longest_of(jobs))
    cpus, nodes = number(resources.get("cpu", "")), number(resources.get("node", "")) or 1
    if part is None or cpus <= nodes or part > _IDLE:
        return []
    if number(longest_of(jobs)["ElapsedRaw"]) < _SHORT_SECONDS / 10:
        return []  # its start took most of the time
    busy = max(part * cpus, 0.1)
    return [
        f"It kept {busy:.1f} of its {cpus} CPUs busy: ask for fewer (--cpus-per-task), or, if they "
        "came with memory or GPUs, for less of those, or see that its program uses them (srun "
        "launch --explain)"
    ]


def _rounded(total: float) -> int:
    """Return seconds, rounded up to five minutes."""
    return math.ceil(total / 300) * 300
