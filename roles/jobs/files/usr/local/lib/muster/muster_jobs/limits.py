# SPDX-License-Identifier: Apache-2.0
"""The limit for which a job waits: whose it is, what it allows, and what is used of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from muster_jobs import asks, holders
from muster_jobs.asks import Asks
from muster_jobs.holders import Holder, Value
from muster_jobs.partition_limits import PARTITION_LIMITS, partition_limit
from muster_jobs.reasons import Named, counted, named
from muster_jobs.records import NotKnownError, Run
from muster_jobs.units import duration, shown

_TRES_WORDS = {
    "cpu": "CPU",
    "mem": "memory",
    "node": "node",
    "billing": "billing unit",
    "gres/gpu": "GPU",
    "gres/shard": "shard of GPUs",
}
_ONE = {"Job": "job that runs", "Submit": "job in the queue"}
_AHEAD = ("RunMinutes", "RunMins")
"""What is counted is what running jobs may still use until their time limits."""


@dataclass(frozen=True)
class Limit:
    """A limit that keeps a job from running, in words for its owner."""

    says: str
    """Whose it is, what it allows, and what is used."""
    remedy: str
    """What the owner can do; JOB stands for the job's number."""


@dataclass(frozen=True)
class _Found:
    holder: Holder
    most: str
    """What is allowed, in words: `6 GPUs`."""
    used: str
    """What is used of it: `6`; empty for what a job alone may have."""
    asked: str
    """What the job asks for; empty where that is not known, or goes without saying."""
    over: bool
    """It is what keeps the job from running."""
    share: float
    """The part that is used, with what the job asks for; 1: all."""


def limit(job: str, reason: str, user: str, partition: str, run: Run) -> "Limit | None":
    """Return the limit for which a job waits; None where there is none, or nobody says which.

    Args:
        job: Its number, as squeue has it.
        reason: SLURM's word for why it waits.
        user: Its owner.
        partition: That of the job, or several.
        run: Runs a command, as `run_program`.

    """
    name = named(reason)
    of_partition = reason.strip().strip("()") in PARTITION_LIMITS
    if name is None and not of_partition:
        return None
    partitions = partition.split(",")
    try:
        asked = asks.of_job(job.partition("_")[0], run)
        if name is None:
            told = partition_limit(reason.strip().strip("()"), asked, partitions, run)
            return Limit(*told) if told else None
        if name.of_account:
            found = _of_associations(name, user, asked, partitions, run)
        else:
            found = _of_qos(name, user, asked, partitions, run)
    except NotKnownError:
        return None
    if found is None:
        return None
    return Limit(_says(name, user, asked, found), _remedy(name, found))


def _of_associations(
    name: Named, user: str, asked: Asks, partitions: Sequence[str], run: Run
) -> "_Found | None":
    """Return the limit of the user's association, or of an account above."""
    own, levels = holders.associations(user, asked.account, partitions, run)
    if name.kind == "Grp":
        # As SLURM does, from the user up.
        return _first_over([one for level in levels for one in _of_holder(name, level, asked)])
    found = _first_over(_of_holder(name, levels[0], asked)) if own else None
    if found is None:
        return None
    # slurmctld hands these down: an association shows what an account above it has.
    whose = levels[0].name
    for level in levels[1:]:
        if found.most not in [one.most for one in _of_holder(name, level, asked)]:
            break
        whose = level.name
    return replace(found, holder=replace(found.holder, name=whose))


def _of_qos(
    name: Named, user: str, asked: Asks, partitions: Sequence[str], run: Run
) -> "_Found | None":
    """Return the limit of the partition's QoS, or of the job's.

    Of each resource the first one that has a limit of it counts.
    """
    found: list[_Found] = []
    for both in holders.qos(name, user, asked, partitions, run):
        limited: set[str] = set()
        for holder in both:
            values = holders.limits_of(name, holder)
            left = {tres: value for tres, value in values.items() if tres not in limited}
            limited |= left.keys()
            found += _told(name, holder, left, asked)
    return _first_over(found)


def _of_holder(name: Named, holder: Holder, asked: Asks) -> list[_Found]:
    return _told(name, holder, holders.limits_of(name, holder), asked)


def _told(name: Named, holder: Holder, values: Mapping[str, Value], asked: Asks) -> list[_Found]:
    """Return what an association or a QoS limits: of GPUs maybe all and those of a type."""
    found = []
    for tres, value in values.items():
        wants = _wanted(name, tres, asked)
        used = value.used or 0
        if name.kind == "Min":
            over = wants is not None and wants < value.most
        elif wants is None:
            over = value.used is not None and used >= value.most
        else:
            over = used + wants > value.most
        counts = name.what not in ("Job", "Submit")
        found.append(
            _Found(
                holder,
                _words(name, tres, value.most),
                _amount(name, tres, used) if value.used is not None else "",
                _amount(name, tres, wants) if wants is not None and counts else "",
                over,
                (used + (wants or 0)) / (value.most or 1),
            )
        )
    if len(found) > 1 and not any(one.used or one.asked for one in found):
        # Nothing tells them apart, so all are told.
        return [replace(found[0], most=" and ".join(one.most for one in found))]
    return found


def _wanted(name: Named, tres: str, asked: Asks) -> "float | None":
    """Return how much of a limit the job asks for; None where that is not known."""
    if name.what in ("Job", "Submit"):
        return 1
    if name.what == "Wall":
        return asked.minutes if name.per == "Job" and asked.minutes else None
    amount = asked.amount(tres)
    if amount is None:
        return None
    if name.time:
        return amount * asked.minutes if asked.minutes else None
    if name.per == "Node":
        return amount / max(1, asked.tres.get("node", 1))
    return amount


def _first_over(found: Sequence[_Found]) -> "_Found | None":
    """Return the limit that keeps the job from running, or else that of which most is used."""
    over = (one for one in found if one.over)
    return next(over, max(found, key=lambda one: one.share, default=None))


def _says(name: Named, user: str, asked: Asks, found: _Found) -> str:
    this = f", and this job asks for {found.asked}" if found.asked else ""
    if name.kind == "Min":
        return f"The limit: {found.holder.name} wants a job to have at least {found.most}{this}"
    whom = {
        "": "all of its jobs together",
        "Job": "a job",
        "Node": "a job on each node",
        "User": f"the jobs of {user} together",
        "Account": f"the jobs of account {asked.account} together",
    }[name.per]
    ahead = " (what running jobs may still use)" if name.time in _AHEAD else ""
    used = f", in use: {found.used}" if found.used else ""
    return f"The limit: {found.holder.name} allows {whom} at most {found.most}{ahead}{used}{this}"


def _words(name: Named, tres: str, number: int) -> str:
    """Return a number and what it counts."""
    amount = _amount(name, tres, number)
    if name.what == "Wall":
        return amount
    # `GPU:a100` of gres/gpu:a100.
    plain, _, kind = tres.partition(":")
    what = _TRES_WORDS.get(plain) or plain or counted(replace(name, time=""))
    of_kind = f" of type {kind}" if kind else ""
    if name.time:
        minutes = "MiB minutes of memory" if tres == "mem" else f"{what} minutes"
        ahead = " ahead" if name.time in _AHEAD else ""
        return f"{amount} {minutes}{of_kind}{ahead}"
    if tres == "mem":
        return f"{amount} of memory"
    if not plain and number == 1:
        what = _ONE.get(name.what, what)
    if plain in _TRES_WORDS and number != 1:
        what = "shards of GPUs" if plain == "gres/shard" else f"{what}s"
    return f"{amount} {what}{of_kind}"


def _amount(name: Named, tres: str, number: float) -> str:
    if name.what == "Wall":
        return duration(number * 60)
    if tres == "mem" and not name.time:
        return shown(number * 2**20)
    return f"{number:g}" if number < 1000 and number != int(number) else f"{number:.0f}"


def _remedy(name: Named, found: _Found) -> str:
    holder, most = found.holder, found.most
    if name.kind == "Min":
        return f"ask for {most} or more{holder.other}"
    if name.what == "Wall" and name.per == "Job":
        return f"scontrol update jobid=JOB timelimit={most}{holder.other}"
    if name.per in ("Job", "Node"):
        return f"scancel JOB, and ask for {most} or less{holder.other}"
    jobs = " ".join(["squeue", *holder.options])
    less = "" if name.what in ("Job", "Submit") else ", or ask for less"
    return f"wait until others end ({jobs} lists them){less}{holder.other}"
