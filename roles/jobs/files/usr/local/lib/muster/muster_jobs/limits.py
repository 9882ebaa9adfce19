# SPDX-License-Identifier: Apache-2.0
"""The limit for which a job waits: whose it is, what it allows, and what is used of it.

`scontrol show assoc_mgr` has both, for everybody unless PrivateData has usage or users. Its form is
that of src/scontrol/info_assoc_mgr.c in the tags slurm-22-05-8-1 and slurm-24-11-5-1.
"""

import pwd
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from muster_jobs.reasons import Named, counted, named
from muster_jobs.records import NotKnownError, Run, output
from muster_jobs.units import duration, shown

_SCONTROL = ["/usr/bin/scontrol", "--oneliner", "show"]
_SQUEUE = ["/usr/bin/squeue", "--noheader", "--format=%a|%q"]
_VALUE = re.compile(r"(N|[0-9]+)(?:\(([0-9]+)(?:\.[0-9]+)?\))?")
_BLOCK = re.compile(r"(\S+)=\{([^}]*)\}")
"""What a user, `20005` or from 24.11 on `eve(20005)`, or an account has of a QoS."""

_TRES = {
    "BB": "bb/",
    "Billing": "billing",
    "CPU": "cpu",
    "Energy": "energy",
    "GRES": "gres/",
    "License": "license/",
    "Mem": "mem",
    "Node": "node",
}
_TRES_WORDS = {
    "cpu": "CPUs",
    "mem": "memory",
    "node": "nodes",
    "billing": "billing units",
    "gres/gpu": "GPUs",
    "gres/shard": "shards of GPUs",
}
_MINUTES = {"": "", "Minutes": "Mins", "RunMinutes": "RunMins", "RunMins": "RunMins"}
_PER = {"Job": "PJ", "Node": "PN", "User": "PU", "Account": "PA"}

Values = Mapping[str, str]
"""What scontrol prints of an association or a QoS: name -> value."""


@dataclass(frozen=True)
class Limit:
    """A limit that keeps a job from running, in words for its owner."""

    says: str
    """Whose it is, what it allows, and what is used."""
    remedy: str
    """What the owner can do; JOB stands for the job's number."""


@dataclass(frozen=True)
class _Holder:
    """Who has a limit."""

    name: str
    """`account students` or `QoS long`."""
    option: str
    """What narrows squeue to its jobs."""
    values: Values


@dataclass(frozen=True)
class _Found:
    holder: _Holder
    most: str
    """What is allowed, in words: `6 GPUs`."""
    used: str
    """What is used of it: `6`; empty for what a job alone may have."""
    share: float
    """The part that is used; 1: all."""


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
    if name is None:
        return None
    number = job.partition("_")[0]
    try:
        lines = output([*_SQUEUE, f"--jobs={number}"], run).splitlines()
        account, _, qos = (lines[0] if lines else "").strip().partition("|")
        if name.of_account:
            found = _of_associations(name, user, account, partition, run)
        else:
            names = [*_partition_qos(partition, run), qos]
            found = _of_qos(name, user, account, [one for one in names if one], run)
    except NotKnownError:
        return None
    if found is None:
        return None
    return Limit(_says(name, user, account, found), _remedy(name, user, account, found))


def _of_associations(
    name: Named, user: str, account: str, partition: str, run: Run
) -> "_Found | None":
    """Return the limit of the user's association, or of an account above."""
    text = output([*_SCONTROL, "assoc_mgr", "flags=assoc", f"users={user}"], run)
    own: list[Values] = []
    accounts: dict[str, Values] = {}
    for values in map(_values, text.splitlines()):
        if values.get("UserName", "").startswith(f"{user}(") and values.get("Account") == account:
            if values.get("Partition", "") in ("", partition):
                own.append(values)
        elif "Account" in values and not values.get("UserName"):
            accounts[values["Account"]] = values
    # One that is for the partition alone goes before that for all.
    own.sort(key=lambda values: not values.get("Partition"))
    levels = [_Holder(f"{user} in account {account}", f"--user={user}", v) for v in own[:1]]
    above = account
    while above in accounts:
        levels.append(_Holder(f"account {above}", f"--account={above}", accounts.pop(above)))
        above = levels[-1].values.get("ParentAccount", "").partition("(")[0]
    if name.kind == "Grp":
        return _fullest([one for level in levels for one in _of_holder(name, level)])
    found = _fullest(_of_holder(name, levels[0])) if own else None
    if found is None:
        return None
    # slurmctld hands these down: an association shows what an account above it has.
    whose = levels[0]
    for level in levels[1:]:
        if found.most not in [one.most for one in _of_holder(name, level)]:
            break
        whose = level
    return replace(found, holder=whose)


def _partition_qos(partition: str, run: Run) -> list[str]:
    text = output([*_SCONTROL, "partition", partition.partition(",")[0]], run)
    name = _values(text).get("QoS", "N/A")
    return [] if name == "N/A" else [name]


def _of_qos(name: Named, user: str, account: str, qos: Sequence[str], run: Run) -> "_Found | None":
    """Return the limit of the first QoS that has one: the partition's goes before the job's."""
    text = output([*_SCONTROL, "assoc_mgr", "flags=qos", f"qos={','.join(qos)}"], run)
    holders = {"User": ("MaxJobsPU", _names(user)), "Account": ("MaxJobsPA", {account})}
    known: dict[str, Values] = {}
    for line in text.splitlines():
        values = dict(_values(_BLOCK.sub("", line)))
        for whose, block in _BLOCK.findall(line):
            # An account may be called as a user is.
            field, names = holders.get(name.per, ("", set()))
            if f"{field}=" in block and whose in names:
                values |= _values(block)
        known[values.get("QOS", "").partition("(")[0]] = values
    for one in qos:
        holder = _Holder(f"QoS {one}", f"--qos={one}", known.get(one, {}))
        if found := _fullest(_of_holder(name, holder)):
            return found
    return None


def _names(user: str) -> set[str]:
    """Return what scontrol may call a user among those of a QoS."""
    try:
        number = pwd.getpwnam(user).pw_uid
    except KeyError:
        return {user}
    return {user, str(number), f"{user}({number})"}


def _values(text: str) -> Values:
    """Return name -> value; a comment, which is the last, can't change what is before it."""
    values: dict[str, str] = {}
    for word in text.split():
        name, _, value = word.partition("=")
        values.setdefault(name, value)
    return values


def _field(name: Named) -> str:
    """Return what scontrol calls a limit."""
    per = "" if name.kind == "Grp" else _PER[name.per]
    if name.what in ("Job", "Submit"):
        jobs = "Jobs" if name.what == "Job" else "SubmitJobs"
        return f"{name.kind}{jobs}{'' if name.of_account else per}"
    if name.what == "Wall":
        return f"{name.kind}Wall{per}"
    return f"{name.kind}TRES{_MINUTES[name.time]}{per}"


def _of_holder(name: Named, holder: _Holder) -> list[_Found]:
    """Return what an association or a QoS limits of it: of GPUs maybe all and those of a type."""
    text = holder.values.get(_field(name), "")
    wanted = _TRES.get(name.what)
    parts = [("", text)]
    if wanted:
        pairs = [part.rpartition("=") for part in text.split(",")]
        parts = [
            (tres, value)
            for tres, _, value in pairs
            if tres == wanted or (wanted.endswith("/") and tres.startswith(wanted))
        ]
    found = []
    for tres, value in parts:
        match = _VALUE.fullmatch(value)
        if match and match[1] != "N":
            most, used = int(match[1]), int(match[2] or 0)
            words = _words(name, tres, most)
            count = _amount(name, tres, used) if match[2] else ""
            found.append(_Found(holder, words, count, used / (most or 1)))
    if found and not any(one.used for one in found):
        # What the job asks for is not known here, so all are told.
        return [replace(found[0], most=" and ".join(one.most for one in found))]
    return found


def _fullest(found: Sequence[_Found]) -> "_Found | None":
    """Return the limit of which most is used: the others do not keep the job from running."""
    return max(found, key=lambda one: one.share, default=None)


def _says(name: Named, user: str, account: str, found: _Found) -> str:
    if name.kind == "Min":
        return f"The limit: {found.holder.name} wants a job to have at least {found.most}"
    whom = {
        "": "all of its jobs together",
        "Job": "a job",
        "Node": "a job on each node",
        "User": f"the jobs of {user} together",
        "Account": f"the jobs of account {account} together",
    }[name.per]
    used = f", in use: {found.used}" if found.used else ""
    return f"The limit: {found.holder.name} allows {whom} at most {found.most}{used}"


def _words(name: Named, tres: str, number: int) -> str:
    """Return a number and what it counts."""
    amount = _amount(name, tres, number)
    if name.what == "Wall":
        return amount
    what = _TRES_WORDS.get(tres) or counted(replace(name, time=""))
    if tres.startswith("gres/"):
        kind = tres.partition(":")[2]
        what = _TRES_WORDS.get(tres.partition(":")[0], tres) + (f" of type {kind}" if kind else "")
    if name.time:
        return f"{amount} minutes of {what}"
    return f"{amount} of {what}" if tres == "mem" else f"{amount} {what}"


def _amount(name: Named, tres: str, number: int) -> str:
    if name.what == "Wall":
        return duration(number * 60)
    if tres == "mem" and not name.time:
        return shown(number * 2**20)
    return str(number)


def _remedy(name: Named, user: str, account: str, found: _Found) -> str:
    other = "" if name.of_account else ", or use another QoS (--qos)"
    most = found.most
    if name.kind == "Min":
        return f"ask for {most} or more{other}"
    if name.what == "Wall" and name.per == "Job":
        return f"scontrol update jobid=JOB timelimit={most}{other}"
    if name.per in ("Job", "Node"):
        return f"scancel JOB, and ask for {most} or less{other}"
    jobs = {"User": f"--user={user}", "Account": f"--account={account}"}.get(
        name.per, found.holder.option
    )
    return f"wait until others end (squeue {jobs} lists them), or ask for less{other}"
