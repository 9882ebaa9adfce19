# SPDX-License-Identifier: Apache-2.0
"""Who has limits for a job: associations and QoS, from `scontrol show assoc_mgr`.

It tells everybody unless PrivateData has usage or users. Its form is that of
src/scontrol/info_assoc_mgr.c in the tags slurm-22-05-8-1 and slurm-24-11-5-1.
"""

import pwd
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from muster_jobs.asks import Asks
from muster_jobs.reasons import Named
from muster_jobs.records import NotKnownError, Run, output

_SCONTROL = ["/usr/bin/scontrol", "--oneliner", "show"]
_FLAGS = ["/usr/bin/sacctmgr", "--noheader", "--parsable2", "show", "qos", "format=name,flags"]
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
_MINUTES = {"": "", "Minutes": "Mins", "RunMinutes": "RunMins", "RunMins": "RunMins"}
_PER = {"Job": "PJ", "Node": "PN", "User": "PU", "Account": "PA"}
_OTHER_QOS = ", or use another QoS (--qos)"
_OTHER_PARTITION = ", or use another partition (--partition)"

Values = Mapping[str, str]
"""What scontrol prints of an association or a QoS: name -> value."""


@dataclass(frozen=True)
class Holder:
    """Who has a limit."""

    name: str
    """`account students` or `QoS long`."""
    options: Sequence[str]
    """What narrows squeue to the jobs that are counted."""
    values: Values
    other: str = ""
    """What else its owner can do."""


@dataclass(frozen=True)
class Value:
    """A limit of a holder."""

    most: int
    used: "int | None"
    """None of what a job alone may have."""


def associations(
    user: str, account: str, partitions: Sequence[str], run: Run
) -> tuple[bool, list[Holder]]:
    """Return whether a user has an association, then that and the accounts above it.

    Raises:
        NotKnownError: scontrol failed.

    """
    text = output([*_SCONTROL, "assoc_mgr", "flags=assoc", f"users={user}"], run)
    own: list[Values] = []
    accounts: dict[str, Values] = {}
    for values in map(values_of, text.splitlines()):
        if values.get("UserName", "").startswith(f"{user}(") and values.get("Account") == account:
            if values.get("Partition", "") in ("", *partitions):
                own.append(values)
        elif "Account" in values and not values.get("UserName"):
            accounts[values["Account"]] = values
    # One that is for the partition alone goes before that for all.
    own.sort(key=lambda values: not values.get("Partition"))
    options = [f"--user={user}", f"--account={account}"]
    levels = [Holder(f"{user} in account {account}", options, values) for values in own[:1]]
    above = account
    while above in accounts and len(levels) <= len(accounts):
        narrow = (
            [f"--account={','.join(_below(above, accounts))}"] if _parent(accounts[above]) else []
        )
        levels.append(Holder(f"account {above}", narrow, accounts[above]))
        above = _parent(accounts[above])
    return bool(own), levels


def _below(account: str, accounts: Mapping[str, Values]) -> list[str]:
    """Return an account and all below it: squeue takes each by its own name alone."""
    found = [account]
    for name in found:
        found += [one for one in accounts if _parent(accounts[one]) == name and one not in found]
    return found


def _parent(values: Values) -> str:
    return values.get("ParentAccount", "").partition("(")[0]


def qos(
    name: Named, user: str, asked: Asks, partitions: Sequence[str], run: Run
) -> list[list[Holder]]:
    """Return for each partition the QoS that limit a job there, in the order that SLURM has.

    Raises:
        NotKnownError: scontrol failed.

    """
    of_partition = {one: _partition_qos(one, run) for one in partitions}
    names = dict.fromkeys([*of_partition.values(), asked.qos])
    known = _known_qos(name, user, asked.account, [one for one in names if one], run)
    counted = {"User": [f"--user={user}"], "Account": [f"--account={asked.account}"]}
    narrow = counted.get(name.per, [])
    own = Holder(
        f"QoS {asked.qos}",
        [*narrow, f"--qos={asked.qos}"],
        known.get(asked.qos, {}),
        _OTHER_QOS,
    )
    found = []
    for partition, its_qos in of_partition.items():
        if its_qos in ("", asked.qos):
            found.append([own])
            continue
        with_it = [one for one, its in of_partition.items() if its == its_qos]
        first = Holder(
            f"QoS {its_qos} of partition {partition}",
            [*narrow, f"--partition={','.join(with_it)}"],
            known.get(its_qos, {}),
            _OTHER_PARTITION,
        )
        goes_first = limits_of(name, own) and limits_of(name, first) and _over_part(asked.qos, run)
        found.append([own, first] if goes_first else [first, own])
    return found


def _over_part(name: str, run: Run) -> bool:
    """Whether a QoS goes before that of a partition; scontrol does not show its flags."""
    try:
        lines = output(_FLAGS, run).splitlines()
    except NotKnownError:
        return False
    flags = dict(line.partition("|")[::2] for line in lines)
    return "OverPartQOS" in flags.get(name, "").split(",")


def _partition_qos(partition: str, run: Run) -> str:
    name = values_of(output([*_SCONTROL, "partition", partition], run)).get("QoS", "N/A")
    return "" if name == "N/A" else name


def _known_qos(
    name: Named, user: str, account: str, qos: Sequence[str], run: Run
) -> dict[str, Values]:
    text = output([*_SCONTROL, "assoc_mgr", "flags=qos", f"qos={','.join(qos)}"], run)
    whose = {"User": ("MaxJobsPU", _names(user)), "Account": ("MaxJobsPA", {account})}
    # An account may be called as a user is.
    field, names = whose.get(name.per, ("", set()))
    known: dict[str, Values] = {}
    for line in text.splitlines():
        values = dict(values_of(_BLOCK.sub("", line)))
        for who, block in _BLOCK.findall(line):
            if f"{field}=" in block and who in names:
                values |= values_of(block)
        known[values.get("QOS", "").partition("(")[0]] = values
    return known


def _names(user: str) -> set[str]:
    """Return what scontrol may call a user among those of a QoS."""
    try:
        number = pwd.getpwnam(user).pw_uid
    except KeyError:
        return {user}
    return {user, str(number), f"{user}({number})"}


def values_of(text: str) -> Values:
    """Return name -> value; a comment, which is the last, can't change what is before it."""
    values: dict[str, str] = {}
    for word in text.split():
        name, _, value = word.partition("=")
        values.setdefault(name, value)
    return values


def limits_of(name: Named, holder: Holder) -> dict[str, Value]:
    """Return what a holder limits of what a reason names: resource, or empty -> limit."""
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
    found = {}
    for tres, value in parts:
        match = _VALUE.fullmatch(value)
        if match and match[1] != "N":
            found[tres] = Value(int(match[1]), int(match[2]) if match[2] else None)
    return found


def _field(name: Named) -> str:
    """Return what scontrol calls a limit."""
    per = "" if name.kind == "Grp" else _PER[name.per]
    if name.what in ("Job", "Submit"):
        jobs = "Jobs" if name.what == "Job" else "SubmitJobs"
        return f"{name.kind}{jobs}{'' if name.of_account else per}"
    if name.what == "Wall":
        return f"{name.kind}Wall{per}"
    return f"{name.kind}TRES{_MINUTES[name.time]}{per}"
