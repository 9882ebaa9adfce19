# SPDX-License-Identifier: Apache-2.0
"""Why a job waits and when it may start, from squeue."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from muster_jobs import limits, priority
from muster_jobs.limits import Limit
from muster_jobs.reasons import words
from muster_jobs.records import NotKnownError, Run, clean, output
from muster_jobs.units import duration, number

SQUEUE = ["/usr/bin/squeue", "--noheader"]
_FORMAT = "%i|%T|%S|%Q|%P|%D|%u|%r"
"""Number, state, (expected) start, priority, partition, nodes, owner; the reason may be a text."""

_NOT_READY = {
    "CONFIGURING": (
        "its nodes are being started or rebooted",
        "wait some minutes; administrators type muster why JOB on the controller",
    ),
    "POWER_UP_NODE": (
        "its nodes are being started",
        "wait some minutes; administrators type muster why JOB on the controller",
    ),
    "REQUEUE_HOLD": ("it was queued again, and is held", "scontrol release JOB"),
    "SPECIAL_EXIT": ("it is held, as its exit code means something special", "ask its owner"),
    "SUSPENDED": ("it was suspended", "wait, or ask an administrator"),
    "STOPPED": ("it was stopped by a signal", "scancel --signal=CONT JOB"),
    "RESV_DEL_HOLD": ("its reservation was deleted, and it is held", "ask an administrator"),
}
"""States other than PENDING in which a job does nothing."""


@dataclass(frozen=True)
class Entry:
    """A line of squeue: a job, or tasks of an array that wait for the same."""

    job: str
    state: str
    start: str
    """As SLURM writes times; N/A where it has not planned the job."""
    priority: int
    partition: str
    nodes: str
    user: str
    reason: str

    @property
    def number(self) -> str:
        """Its number; of tasks of an array that of the array."""
        return self.job.partition("_")[0]

    @property
    def waits(self) -> bool:
        """Whether it has not started, or can't go on."""
        return self.state == "PENDING" or self.state in _NOT_READY


def entries(job: str, run: Run) -> list[Entry]:
    """Return what is in the queue of a job or an array; nothing for one that is there no more.

    Raises:
        NotKnownError: squeue failed.

    """
    try:
        text = output([*SQUEUE, f"--format={_FORMAT}", f"--jobs={job}"], run)
    except NotKnownError as error:
        # slurmctld forgets a job some minutes after its end.
        if "Invalid job id" in str(error):
            return []
        raise
    return parse(text)


def parse(text: str) -> list[Entry]:
    """Return the lines that squeue prints."""
    found = []
    for line in text.splitlines():
        parts = line.split("|", _FORMAT.count("|"))
        if len(parts) == _FORMAT.count("|") + 1:
            job, state, start, priority, partition, nodes, user, reason = parts
            found.append(
                Entry(job, state, start, number(priority), partition, nodes, user, clean(reason))
            )
    return found


def before(entry: Entry, run: Run) -> int | None:
    """Return how many waiting jobs of the partition are before one; None where squeue failed."""
    command = [*SQUEUE, "--states=PENDING", f"--partition={entry.partition}", "--format=%Q"]
    try:
        text = output(command, run)
    except NotKnownError:
        return None
    return sum(number(line.strip()) > entry.priority for line in text.splitlines())


def report(job: str, run: Run, now: datetime) -> str:
    """Return why a job waits, or tasks of an array, as text; empty where nothing waits.

    Raises:
        NotKnownError: squeue failed.

    """
    waits = [entry for entry in entries(job, run) if entry.waits]
    return "".join(_told(entry, count, run, now) for entry, count in grouped(waits))


def _told(entry: Entry, count: int, run: Run, now: datetime) -> str:
    tasks = f", and {count - 1} more like it" if count > 1 else ""
    nodes = f"{entry.nodes} node{'s' if entry.nodes != '1' else ''}"
    head = f"Job {entry.job}{tasks}, of {entry.user}: {entry.state}, {nodes} in {entry.partition}\n"
    limit, made_of = None, ""
    if entry.state == "PENDING":
        limit = limits.limit(entry.job, entry.reason, entry.user, entry.partition, run)
        # A held job has none.
        made_of = priority.sentence(entry.number, run) if entry.priority else ""
    said = sentences(entry, before(entry, run), now, limit)
    return head + "".join(f"  {one}\n" for one in [*said, made_of] if one)


def sentences(
    entry: Entry, ahead: int | None, now: datetime, limit: Limit | None = None
) -> list[str]:
    """Return why a job waits, what its owner can do, and when it may start.

    Args:
        entry: The job in the queue.
        ahead: What `before` says.
        now: The host's time, without zone, as SLURM writes times.
        limit: The limit for which it waits, if that is known.

    """
    why, remedy = _NOT_READY.get(entry.state) or words(entry.reason)
    shown = f" ({entry.reason})" if entry.state == "PENDING" else ""
    found = [f"It waits: {why}{shown}"]
    if limit:
        found.append(limit.says)
        remedy = limit.remedy
    found.append(f"What you can do: {remedy.replace('JOB', entry.number)}")
    if entry.state == "PENDING" and ahead:
        are = "job of the partition is" if ahead == 1 else "jobs of the partition are"
        found.append(f"{ahead} waiting {are} before it ({entry.partition})")
    start = expected(entry.start, now)
    if start and entry.state == "PENDING":
        found.append(start)
    return found


def expected(start: str, now: datetime) -> str:
    """Return when SLURM expects a job to start; nothing where it does not know."""
    try:
        at = datetime.fromisoformat(start)
    except ValueError:
        return ""
    left = (at - now).total_seconds()
    if left <= 0:
        return f"SLURM expected it to start at {start}, and plans again"
    return (
        f"SLURM expects it to start at {start}, in {duration(left)}: sooner if others end early, "
        "later if jobs with a higher priority come"
    )


def grouped(found: Sequence[Entry]) -> list[tuple[Entry, int]]:
    """Return one entry for each reason, and how many lines of the queue have it."""
    counts = Counter((entry.state, entry.reason) for entry in found)
    firsts = {(entry.state, entry.reason): entry for entry in reversed(found)}
    return [(firsts[key], count) for key, count in counts.items()]
