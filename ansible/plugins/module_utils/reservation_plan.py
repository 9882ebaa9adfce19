# SPDX-License-Identifier: Apache-2.0
"""Reservations of a slurmctld: what scontrol prints of them, and what leads to the wanted ones.

Functions of text and data. Times are those of the controller's clock, without a zone, as scontrol
prints and reads them.
"""

import re
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TypedDict

SECONDS = "%Y-%m-%dT%H:%M:%S"
MINUTES = "%Y-%m-%dT%H:%M"
_REPEATS = ("HOURLY", "DAILY", "WEEKDAY", "WEEKEND", "WEEKLY")
_DAY = timedelta(days=1)


class ReservationOptions(TypedDict):
    """A wanted reservation, as the module takes it."""

    name: str
    start: str
    minutes: int
    repeat: str | None
    partition: str | None
    node_count: int | None
    accounts: list[str]
    users: list[str]
    maintenance: bool


@dataclass(frozen=True)
class Reservation:
    """A reservation: one that is there, or the present or next time of a wanted one."""

    name: str
    start: datetime
    end: datetime
    repeat: str
    """DAILY, WEEKDAY, WEEKEND or WEEKLY, by hand HOURLY; empty: once."""
    partition: str
    """Empty: nodes of all partitions."""
    node_count: int | None
    """None: all nodes of the partition, or of the cluster."""
    accounts: frozenset[str]
    users: frozenset[str]
    maintenance: bool
    there: str = field(default="", compare=False)
    """The line of scontrol about one that is there."""

    @property
    def place(self) -> tuple[str, bool, str, bool]:
        """What scontrol can't change without taking nodes away and choosing others."""
        return (self.partition, self.node_count is None, self.repeat, self.maintenance)


def parse(text: str) -> list[Reservation]:
    """Return the reservations of `scontrol --oneliner show reservation`."""
    return [_parsed(line) for line in text.splitlines() if line.startswith("ReservationName=")]


def _values(line: str) -> dict[str, str]:
    """Return the values of a line; they hold no blanks, except a comment, which is the last."""
    others, _, comment = line.partition(" Comment=")
    return {**dict(re.findall(r"(\w+)=(\S*)", others)), "Comment": comment.strip() or "(null)"}


def _time(text: str) -> datetime:
    """Return a time; `Unknown` is the end of a reservation that has none."""
    return datetime.fromisoformat("9999-12-31T23:59:59" if text == "Unknown" else text)


def _parsed(line: str) -> Reservation:
    values = _values(line)
    flags = values["Flags"].split(",")
    is_whole = bool({"PART_NODES", "ALL_NODES"} & set(flags))
    return Reservation(
        name=values["ReservationName"],
        start=_time(values["StartTime"]),
        end=_time(values["EndTime"]),
        repeat=next((flag for flag in flags if flag in _REPEATS), ""),
        partition="" if "ALL_NODES" in flags else _word(values["PartitionName"]),
        node_count=None if is_whole else int(values["NodeCnt"]),
        accounts=_names(values["Accounts"]),
        users=_names(values["Users"]),
        maintenance="MAINT" in flags,
        there=line,
    )


def _word(value: str) -> str:
    return "" if value == "(null)" else value


def _names(value: str) -> frozenset[str]:
    return frozenset(name for name in _word(value).split(",") if name)


def wanted(options: ReservationOptions, now: datetime) -> Reservation | None:
    """Return the present or next time of a wanted reservation; None: it is over for good."""
    start = datetime.strptime(options["start"], MINUTES)  # noqa: DTZ007
    lasts = timedelta(minutes=options["minutes"])
    repeat = (options["repeat"] or "").upper()
    while not _may_begin(start, repeat) or (repeat and start + lasts <= now):
        start += 7 * _DAY if repeat == "WEEKLY" else _DAY
    if start + lasts <= now:
        return None
    return Reservation(
        name=options["name"],
        start=start,
        end=start + lasts,
        repeat=repeat,
        partition=options["partition"] or "",
        node_count=options["node_count"],
        accounts=frozenset(options["accounts"]),
        users=frozenset(options["users"]),
        maintenance=options["maintenance"],
    )


def _may_begin(start: datetime, repeat: str) -> bool:
    """Whether a reservation begins on this day of the week."""
    is_weekend = start.weekday() >= 5
    return not ((repeat == "WEEKDAY" and is_weekend) or (repeat == "WEEKEND" and not is_weekend))


def commands(there: Reservation | None, wish: Reservation, now: datetime) -> list[list[str]]:
    """Return the words of the scontrol commands that lead from one to the other."""
    if there is None:
        return [created(wish, now)]
    if there.start > now:
        wish = _next(wish, now)
    # One that comes once began when it was made, at the latest; SLURM repeats another at its hour.
    both_begun = not wish.repeat and there.start <= now and wish.start <= now
    moves = there.start != wish.start and not both_begun
    if there.place != wish.place or (moves and there.start <= now):
        return [["delete", f"ReservationName={wish.name}"], created(wish, now)]
    changes = []
    if moves:
        changes.append(f"StartTime={wish.start.strftime(SECONDS)}")
    if moves or there.end != wish.end:
        changes.append(f"EndTime={wish.end.strftime(SECONDS)}")
    if there.node_count != wish.node_count:
        # SLURM keeps the nodes that it has, and adds others or gives some back (_resize_resv).
        changes.append(f"NodeCnt={wish.node_count}")
    if there.users != wish.users:
        changes.append(f"Users={','.join(sorted(wish.users))}")
    if there.accounts != wish.accounts:
        changes.append(f"Accounts={','.join(sorted(wish.accounts))}")
    if not changes:
        return []
    # Without the flag SLURM refuses each change while jobs run there (_job_overlap).
    return [["update", f"ReservationName={wish.name}", *changes, "Flags=IGNORE_JOBS"]]


def created(wish: Reservation, now: datetime) -> list[str]:
    """Return the words of the scontrol command that makes a reservation.

    One that has begun already begins now, since SLURM refuses a begin in the past; one that repeats
    the next time, since SLURM would repeat it at this hour.
    """
    wish = _next(wish, now)
    flags = [wish.repeat] if wish.repeat else []
    if wish.maintenance:
        flags.append("MAINT")
    else:
        # Jobs that may run there do so without --reservation.
        flags.append("MAGNETIC")
    if wish.node_count is None:
        # All nodes: running jobs are no reason to refuse it, and end in their own time. Of a number
        # of nodes SLURM chooses those without jobs that run too long.
        flags.append("IGNORE_JOBS")
    words = [
        "create",
        "reservation",
        f"ReservationName={wish.name}",
        f"StartTime={'now' if wish.start <= now else wish.start.strftime(SECONDS)}",
        f"EndTime={wish.end.strftime(SECONDS)}",
    ]
    if wish.partition:
        words.append(f"PartitionName={wish.partition}")
    if wish.node_count is not None:
        words.append(f"NodeCnt={wish.node_count}")
    else:
        words.append("Nodes=ALL")
    if wish.users:
        words.append(f"Users={','.join(sorted(wish.users))}")
    if wish.accounts:
        words.append(f"Accounts={','.join(sorted(wish.accounts))}")
    return [*words, f"Flags={','.join(flags)}"]


# SLURM sets these by itself, and scontrol reads none of them (parse_resv_flags in proc_args.c, 22.05
# to 25.11); it reads all others that reservation_flags_string prints.
_SHOWN_ONLY = {"SPEC_NODES", "ALL_NODES"}
_OPTIONAL = (
    *("Users", "Groups", "Accounts", "Licenses", "Features", "BurstBuffer", "MaxStartDelay"),
    "Comment",
)


def restored(there: Reservation, now: datetime) -> list[str]:
    """Return the words of the scontrol command that makes again what was deleted.

    It has what scontrol showed, so also what somebody has set by hand.
    """
    values = _values(there.there)
    flags = values["Flags"].split(",")
    kept = [flag for flag in flags if flag and flag not in {*_SHOWN_ONLY, "IGNORE_JOBS"}]
    begin = "now" if there.start <= now else there.start.strftime(SECONDS)
    # A length of 0 is none: it has no end.
    end = "Duration=0" if values["EndTime"] == "Unknown" else f"EndTime={values['EndTime']}"
    words = [
        *("create", "reservation", f"ReservationName={there.name}"),
        *(f"StartTime={begin}", end),
    ]
    if there.partition:
        words.append(f"PartitionName={there.partition}")
    if there.node_count is None:
        words.append("Nodes=ALL")
    elif "SPEC_NODES" in flags:
        words.append(f"Nodes={values['Nodes']}")
    else:
        words.append(f"NodeCnt={there.node_count}")
    words += [f"{key}={word}" for key in _OPTIONAL if (word := _word(values.get(key, "(null)")))]
    return [*words, f"Flags={','.join([*kept, 'IGNORE_JOBS'])}"]


def _next(wish: Reservation, now: datetime) -> Reservation:
    """Return the next time of a reservation that repeats and has begun; others as they are."""
    if not wish.repeat or wish.start > now:
        return wish
    start, lasts = wish.start, wish.end - wish.start
    while start <= now or not _may_begin(start, wish.repeat):
        start += 7 * _DAY if wish.repeat == "WEEKLY" else _DAY
    return replace(wish, start=start, end=start + lasts)


def shown(reservation: Reservation) -> str:
    """Return a reservation in a line, for --diff."""
    nodes = "all" if reservation.node_count is None else str(reservation.node_count)
    where = f" of {reservation.partition}" if reservation.partition else ""
    who = ",".join(sorted(reservation.accounts) + sorted(reservation.users))
    what = "maintenance" if reservation.maintenance else f"for {who}"
    again = f", {reservation.repeat.lower()}" if reservation.repeat else ""
    begin, end = (time.strftime(MINUTES) for time in (reservation.start, reservation.end))
    return f"{reservation.name}: {begin} to {end}{again}, {nodes} nodes{where}, {what}"
