"""Checks of reservations: what SLURM would refuse, or keep for nobody."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from muster.definition.checks.limits import qos_of_users, takes
from muster.definition.checks.registry import Finding, check
from muster.definition.checks.rows import ListedTwice, Spelling, UnknownName, at, table
from muster.definition.definition import Definition
from muster.definition.problems import counted
from muster.definition.schema import patterns, times
from muster.definition.schema.node_sets import Partition, VirtualMachines
from muster.definition.schema.reservations import START, Reservation
from muster.definition.yaml_file import KeyPath

_DAY = 24 * 60 * 60
_PERIODS = {"daily": _DAY, "weekday": _DAY, "weekend": _DAY, "weekly": 7 * _DAY}
"""Seconds from one begin to the next one, where the least lies between them."""


def _is_start(text: str) -> bool:
    if not re.fullmatch(patterns.DATE_TIME, text):
        return False
    try:
        datetime.strptime(text, START)  # noqa: DTZ007 - by the clock of another machine
    except ValueError:
        return False
    return True


def _users(d: Definition) -> Iterator[tuple[KeyPath, str]]:
    # Others may be in the directory.
    if d.cluster.users.directory is None:
        yield from at("reservations.<name>.users.[]")(d)


# fmt: off
table(
    Spelling("reservation-name",
        "A name that a reservation can't have",
        at("reservations.<name>"), patterns.RESERVATION_NAME,
        '"{value}" can\'t be the name of a reservation',
        "use up to 40 letters, digits, hyphens, dots and underscores, a letter first"),
    Spelling("reservation-start",
        "A begin of a reservation that is no day and time",
        at("reservations.<name>.start"), _is_start,
        '"{value}" is no day and time',
        'write "YEAR-MONTH-DAYThour:min", such as "2027-01-11T14:00"'),
    UnknownName("reservation-unknown-partition",
        "A reservation in a partition that is not there",
        at("reservations.<name>.partition"), "partitions.<name>",
        'no partition "{value}"',
        "describe it below `partitions`"),
    UnknownName("reservation-unknown-account",
        "A reservation for an account that is not there",
        at("reservations.<name>.accounts.[]"), "accounts.<name>",
        'no account "{value}"',
        "describe it below `accounts`"),
    UnknownName("reservation-unknown-user",
        "A reservation for somebody who is not there",
        _users, "users.people.<name>",
        'nobody has the login "{value}"',
        "add the person to users.people"),
    ListedTwice("reservation-twice",
        "A reservation that lists an account or a person twice",
        at("reservations.<name>.accounts.[]", "reservations.<name>.users.[]")),
)
# fmt: on


@check("reservation-of-nobody")
def reservation_of_nobody(d: Definition) -> Iterator[Finding]:
    """A reservation for nobody, or a maintenance for somebody: its jobs would run meanwhile."""
    for name, reservation in d.cluster.reservations.items():
        somebody = [*reservation.accounts, *reservation.users]
        if reservation.maintenance and somebody:
            yield Finding(
                ("reservations", name, "maintenance"),
                f"jobs of {', '.join(somebody)} would run during the maintenance",
                "take `maintenance` out, or `accounts` and `users`",
            )
        elif not reservation.maintenance and not somebody:
            yield Finding(
                ("reservations", name),
                "the nodes are kept for nobody",
                "add `accounts` or `users`, or `maintenance: true`",
            )
        elif not reservation.users and _are_empty(d, reservation.accounts):
            several = len(reservation.accounts) > 1
            yield Finding(
                ("reservations", name, "accounts"),
                f"{' and '.join(reservation.accounts)} {'have' if several else 'has'} no users, "
                "nor have accounts below, so the nodes are kept for nobody",
                f"add people to accounts.{reservation.accounts[0]}.users, or name other accounts",
            )


def _are_empty(d: Definition, accounts: list[str]) -> bool:
    """Whether accounts that are there, and those below them, have no users."""
    known = d.cluster.accounts
    is_known = bool(accounts) and all(account in known for account in accounts)
    return is_known and not any(known[account].users for account in _with_those_below(d, accounts))


def _with_those_below(d: Definition, accounts: list[str]) -> set[str]:
    """Accounts and all accounts below them."""
    below: dict[str | None, list[str]] = {}
    for name, account in d.cluster.accounts.items():
        below.setdefault(account.parent, []).append(name)
    tree: set[str] = set()
    left = [*accounts]
    while left:
        name = left.pop()
        if name in d.cluster.accounts and name not in tree:
            tree.add(name)
            left += below.get(name, [])
    return tree


@check("reservation-user-without-account")
def reservation_user_without_account(d: Definition) -> Iterator[Finding]:
    """A reservation for somebody who is in no account: slurmctld refuses it."""
    users = {user for account in d.cluster.accounts.values() for user in account.users}
    if not d.hosts.groups.get("database"):
        return
    for name, reservation in d.cluster.reservations.items():
        for index, user in enumerate(reservation.users):
            # Who is not there at all has an error already; a directory may have any login.
            is_there = user in d.cluster.users.people or d.cluster.users.directory is not None
            if is_there and user not in users:
                yield Finding(
                    ("reservations", name, "users", index),
                    f"{user} is in no account, and no job of {user} could run there",
                    f"add {user} to `users` of an account, or take it out",
                )


@check("reservation-user-of-other-account")
def reservation_user_of_other_account(d: Definition) -> Iterator[Finding]:
    """A reservation for somebody who is not in each of its accounts: slurmctld refuses it."""
    # _set_assoc_list in reservation.c wants an association of each user in each account.
    accounts = d.cluster.accounts
    everybody = {user for account in accounts.values() for user in account.users}
    for name, reservation in d.cluster.reservations.items():
        for index, user in enumerate(reservation.users):
            person = d.cluster.users.people.get(user)
            if user not in everybody or (person and person.state == "absent"):
                continue  # the first has an error already, and the second is left out
            without = [
                account
                for account in reservation.accounts
                if account in accounts and user not in accounts[account].users
            ]
            if without:
                yield Finding(
                    ("reservations", name, "users", index),
                    f"{user} is no user of {' and '.join(without)}, and SLURM refuses a "
                    "reservation unless each of its users is in each of its accounts",
                    f"add {user} to accounts.{without[0]}.users, or leave `accounts` or {user} "
                    "out here",
                )


@check("reservation-closed")
def reservation_closed(d: Definition) -> Iterator[Finding]:
    """A reservation for people whose jobs no partition of its nodes takes, by groups or QoS."""
    people = d.cluster.users.people
    absent = {name for name, person in people.items() if person.state == "absent"}
    of_all = [one for one in qos_of_users(d) if one[1] not in absent]
    for name, reservation in d.cluster.reservations.items():
        accounts = _with_those_below(d, reservation.accounts)
        its = [
            (account, user, names)
            for account, user, names in of_all
            if (account in accounts or not reservation.accounts)
            and (user in reservation.users or not reservation.users)
        ]
        partitions = _partitions(d, reservation)
        if reservation.maintenance or not its or not partitions:
            continue
        if any(_may_run(d, user, names, partitions) for _, user, names in its):
            continue
        if not any(_may_run(d, user, names, partitions) for _, user, names in of_all):
            continue  # the partitions are of nobody, which is an error of its own
        which = ", ".join(partitions)
        of_groups = any(
            _may_enter(d, user, one) for _, user, _ in its for one in partitions.values()
        )
        if of_groups:
            why = f"no QoS of theirs may be used in {which}, by `allow_qos` or `deny_qos`"
            remedy = "let the partition take one of theirs, or name others"
        else:
            why = f"none of them is in `groups` of {which}"
            remedy = "add them to one of these groups, or name others"
        somebody = [*reservation.accounts, *reservation.users]
        yield Finding(
            ("reservations", name),
            f"jobs of {', '.join(somebody)} can't run on its nodes, since {why}",
            remedy,
        )


def _partitions(d: Definition, reservation: Reservation) -> dict[str, Partition]:
    """The partitions that have nodes of a reservation; none if its own is not there."""
    known = d.cluster.partitions
    if reservation.partition is None:
        return known
    if reservation.partition not in known:
        return {}
    sets = set(known[reservation.partition].nodes)
    return {name: one for name, one in known.items() if sets & set(one.nodes)}


def _may_enter(d: Definition, user: str, partition: Partition) -> bool:
    """Whether a user is in one of the groups of a partition, or may be."""
    users = d.cluster.users
    person = users.people.get(user)
    # The directory may have the group, or the person.
    if not partition.groups or person is None or users.directory is not None:
        return True
    # A group that is not there has an error already.
    return bool({*person.groups} & {*partition.groups} or {*partition.groups} - {*users.groups})


def _may_run(d: Definition, user: str, qos: list[str], partitions: dict[str, Partition]) -> bool:
    return any(
        _may_enter(d, user, one) and any(takes(one, name) for name in qos)
        for one in partitions.values()
    )


@check("reservation-too-long")
def reservation_too_long(d: Definition) -> Iterator[Finding]:
    """A reservation without end, or one that lasts until it begins again."""
    for name, reservation in d.cluster.reservations.items():
        try:
            lasts = times.seconds(reservation.duration)
        except times.TimeError:
            continue  # has an error already
        most = _PERIODS.get(reservation.repeat or "", float("inf"))
        if lasts > times.LONGEST and reservation.duration.upper() in times.ENDLESS:
            yield Finding(
                ("reservations", name, "duration"),
                "the nodes would never be anybody else's",
                "give a time, such as 02:00:00; nodes that are always for some people are a "
                "partition with `groups` or `allow_qos`",
            )
        elif lasts > most:
            yield Finding(
                ("reservations", name, "duration"),
                f"it begins again ({reservation.repeat}) before {reservation.duration} are over",
                "give a shorter time, or repeat it less often",
            )


@check("reservation-node-count")
def reservation_node_count(d: Definition) -> Iterator[Finding]:
    """More nodes than the partition has or as many, or a number of nodes of no partition."""
    for name, reservation in d.cluster.reservations.items():
        if reservation.node_count is None:
            continue
        path = ("reservations", name, "node_count")
        if reservation.partition is None:
            yield Finding(path, "nodes of which partition?", "add `partition`")
        elif partition := d.cluster.partitions.get(reservation.partition):
            there = sum(_count(d, node_set) for node_set in dict.fromkeys(partition.nodes))
            if reservation.node_count > there:
                yield Finding(
                    path,
                    f"{reservation.partition} has {counted(there, 'node')}",
                    f"give at most {there}, or leave it out for all of them",
                )
            elif reservation.node_count == there:
                yield Finding(
                    path,
                    f"all of {reservation.partition}: by their number SLURM reserves nodes only if "
                    "no job runs there that long",
                    "leave it out, for all nodes whatever runs there",
                )


def _count(d: Definition, name: str) -> int:
    """Nodes of a set; 0 where there is none of this name, which has an error already."""
    node_set = d.cluster.nodes.get(name)
    if isinstance(node_set, VirtualMachines):
        return node_set.max_nodes
    return len(d.hosts.groups.get(name, ())) if node_set else 0


@dataclass(frozen=True)
class _Kept:
    """A reservation as days, seconds and sets of nodes."""

    name: str
    start: datetime
    lasts: timedelta
    repeat: str | None
    sets: frozenset[str]
    nodes: int

    def begins_on(self, day: date) -> datetime | None:
        """The begin on a day, if it has one then."""
        begin = datetime.combine(day, self.start.time())
        weekend = day.weekday() >= 5
        of_this_day = {
            None: begin == self.start,
            "daily": True,
            "weekday": not weekend,
            "weekend": weekend,
            "weekly": day.weekday() == self.start.weekday(),
        }
        return begin if begin >= self.start and of_this_day[self.repeat] else None

    def is_on(self, time: datetime) -> bool:
        """Whether it lasts at some time."""
        if self.repeat is None:
            return self.start <= time < self.start + self.lasts
        days = range(self.lasts.days + 2)
        begins = (self.begins_on(time.date() - timedelta(back)) for back in days)
        return any(begin is not None and begin <= time < begin + self.lasts for begin in begins)

    def begins_within_a_week(self, first: datetime) -> Iterator[datetime]:
        """The begins in the week after some time; later ones meet what these meet."""
        for later in range(8):
            begin = self.begins_on(first.date() + timedelta(later))
            if begin is not None and begin >= first:
                yield begin


def _kept(d: Definition) -> Iterator[_Kept]:
    """What keeps nodes from others; maintenance may overlap it."""
    for name, reservation in d.cluster.reservations.items():
        partition = d.cluster.partitions.get(reservation.partition or "")
        is_known = partition is not None or reservation.partition is None
        if reservation.maintenance or not is_known or not _is_start(reservation.start):
            continue
        try:
            lasts = timedelta(seconds=times.seconds(reservation.duration))
            start = datetime.strptime(reservation.start, START)  # noqa: DTZ007
            _ = start + lasts + timedelta(8)
        except (times.TimeError, OverflowError):
            continue  # has an error already
        sets = frozenset(partition.nodes if partition else d.cluster.nodes)
        count = reservation.node_count or sum(_count(d, node_set) for node_set in sets)
        yield _Kept(name, start, lasts, reservation.repeat, sets, count)


@check("reservations-overlap")
def reservations_overlap(d: Definition) -> Iterator[Finding]:
    """Reservations that want more nodes at some time than there are: SLURM refuses the last one."""
    kept = list(_kept(d))
    said: set[str] = set()
    moments = {
        (begin, one.name)
        for one in kept
        for other in kept
        for begin in one.begins_within_a_week(max(one.start, other.start))
    }
    for moment, _ in sorted(moments):
        on = [one for one in kept if one.is_on(moment)]
        for place in {first.sets | second.sets for first in on for second in on}:
            there = sum(_count(d, node_set) for node_set in place)
            inside = [one for one in on if one.sets <= place]
            wanted = sum(one.nodes for one in inside)
            last = inside[-1]
            if wanted > there and len(inside) > 1 and last.name not in said:
                said.add(last.name)
                others = " and ".join(one.name for one in inside[:-1])
                yield Finding(
                    ("reservations", last.name),
                    f"at {moment.strftime(START)} it overlaps {others}: together they want "
                    f"{counted(wanted, 'node')}, and there are {there}",
                    "choose another time, other nodes or fewer; only `maintenance` may overlap",
                    other=("reservations", inside[0].name),
                )
