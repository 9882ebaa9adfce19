"""Checks of QoS and partitions that no job can use, as nobody may."""

import re
from collections.abc import Iterator

from muster.definition.checks.limits import (
    NORMAL,
    associations,
    chosen,
    default_of,
    has_unknown_qos,
    of_partitions,
    qos_of_users,
    takes,
    usable,
)
from muster.definition.checks.registry import Finding, check
from muster.definition.definition import Definition
from muster.definition.schema import patterns
from muster.definition.schema.node_sets import Partition


def _unused(d: Definition) -> list[str]:
    """The QoS that no user may choose, and no partition has as its own."""
    used = chosen(d) | of_partitions(d) | {NORMAL}
    return [name for name in d.cluster.qos if name not in used]


@check("qos-of-nobody")
def qos_of_nobody(d: Definition) -> Iterator[Finding]:
    """A QoS that no user may choose, or no partition takes: no job can ever use it."""
    if has_unknown_qos(d):
        return
    by_nobody = _unused(d)
    # Of a default that is missing in the list there is an error already.
    users = qos_of_users(d) if by_nobody else ()
    defaults = {default_of(d, *one) for one in users}.intersection(by_nobody)
    for name in d.cluster.qos:
        has_error = name in defaults or not re.fullmatch(patterns.QOS_NAME, name)
        if name == NORMAL or has_error:
            continue
        if name in by_nobody:
            yield _of_nobody(d, name)
        elif not usable(d, name):
            yield Finding(
                ("qos", name),
                f'nobody may use "{name}": no partition takes it, by `allow_qos` or `deny_qos`',
                f"add {name} to `allow_qos` of a partition, or take it out of `deny_qos`",
            )


def _of_nobody(d: Definition, name: str) -> Finding:
    """What is wrong with a QoS that no user may choose."""
    lists = [
        ".".join(map(str, (*path, "qos")))
        for path, _, one in associations(d)
        if name in (one.qos or ())
    ]
    if lists:
        more = f" and {len(lists) - 1} more" if len(lists) > 1 else ""
        return Finding(
            ("qos", name),
            f'nobody may use "{name}": it is only in lists that hold for no user, {lists[0]}{more}',
            f"add {name} to `qos` of an account with users who have no list of their own, or to "
            "that of a user",
        )
    # Where it is in `allow_qos`, to be of a partition would be too little.
    is_allowed = any(name in partition.allow_qos for partition in d.cluster.partitions.values())
    return Finding(
        ("qos", name),
        f'nobody may use "{name}": no account has it in `qos`',
        f"add {name} to `qos` of an account"
        + ("" if is_allowed else ", or make it the `qos` of a partition"),
    )


@check("partition-of-nobody")
def partition_of_nobody(d: Definition) -> Iterator[Finding]:
    """A partition whose groups have no members, or that takes no QoS which users may use."""
    by_groups = _groups_are_known(d)
    by_qos = not has_unknown_qos(d)
    names = chosen(d)
    # These have an error of their own.
    of_nobody = [*_unused(d), *(name for name in names if not usable(d, name))]
    of_users: dict[str, set[str]] = {}
    for _, user, several in qos_of_users(d):
        of_users.setdefault(user, set()).update(several)
    for name, partition in d.cluster.partitions.items():
        members = _members(d, partition) if partition.groups and by_groups else None
        if members == set():
            yield Finding(
                ("partitions", name, "groups"),
                f"no job can run here: nobody is in {' or '.join(partition.groups)}",
                f"add {partition.groups[0]} to `groups` of people, or take `groups` out",
                because=("users", "people"),
            )
            continue
        having = of_users.keys() & members if members else set()
        theirs = {one for user in having for one in of_users[user]} or names
        if (
            by_qos
            and theirs
            and not (partition.allow_qos and partition.deny_qos)
            and not any(takes(partition, one) for one in (*theirs, *of_nobody))
        ):
            yield _refuses(name, partition, theirs, theirs < names)


def _groups_are_known(d: Definition) -> bool:
    """Whether the definition says who is in which group."""
    users = d.cluster.users
    return (
        users.directory is None
        and any(person.state == "present" for person in users.people.values())
        and all(group in users.groups for one in users.people.values() for group in one.groups)
    )


def _members(d: Definition, partition: Partition) -> set[str] | None:
    """The people in the groups of a partition; None if one of the groups is not there."""
    users = d.cluster.users
    if any(group not in users.groups for group in partition.groups):
        return None
    return {
        name
        for name, person in users.people.items()
        if person.state == "present" and not {*person.groups}.isdisjoint(partition.groups)
    }


def _refuses(name: str, partition: Partition, theirs: set[str], of_members: bool) -> Finding:
    """What is wrong with a partition that takes no QoS of those who may submit there."""
    who = "members of its groups" if of_members else "users"
    may = ", ".join(sorted(theirs))
    if partition.allow_qos:
        return Finding(
            ("partitions", name, "allow_qos"),
            f"no job can run here: {who} may only use {may}",
            f"add one of these, or add {partition.allow_qos[0]} to `qos` of an account",
            because=("accounts",),
        )
    return Finding(
        ("partitions", name, "deny_qos"),
        f"no job can run here: {who} may only use {may}",
        "take one of these out, or add another QoS to `qos` of an account",
        because=("accounts",),
    )
