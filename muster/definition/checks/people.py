"""Checks of people and groups: numbers, groups, addresses, where administrators come from."""

from collections.abc import Iterator

from muster.catalog.system_names import ROOT_GROUPS, SYSTEM_NAMES
from muster.definition.checks.registry import Finding, check
from muster.definition.checks.rows import (
    ListedTwice,
    SharedValue,
    Spelling,
    UnknownName,
    at,
    table,
)
from muster.definition.definition import Definition
from muster.definition.schema import patterns

_SLURM_ID = 64030  # fixed in Debian's and Ubuntu's packages
_NOBODY_ID = 65534
LARGEST_ID = 2**31 - 1  # beyond, programs that take ids as signed numbers fail
# Below the first, and from the second to the last. Debian Policy 9.2.2 and systemd's UIDS-GIDS.md:
# packages, dynamic users, nobody, 16-bit -1.
OF_THE_SYSTEM = (1000, 60000, 65535)
# Another check refuses these, with whatever number.
_NAMES = SYSTEM_NAMES.union(ROOT_GROUPS)
_UIDS = at("users.people.<name>.uid")
_GIDS = at("users.groups.<name>.gid")


# fmt: off
table(
    SharedValue("uid-twice",
        "Two people with one uid: each could read the other's files",
        _UIDS,
        "{value} is {first[2]}'s uid",
        "give each person a number"),
    SharedValue("gid-twice",
        "Two groups with one gid",
        _GIDS,
        '{value} is the gid of "{first[2]}"',
        "give each group a number"),
    UnknownName("person-unknown-group",
        "A person in a group that is not there",
        at("users.people.<name>.groups.[]"), "users.groups.<name>",
        'no group "{value}"',
        "add it to users.groups"),
    ListedTwice("person-group-twice",
        "A person who is twice in a group",
        at("users.people.<name>.groups.[]")),
    Spelling("email-shape",
        "An email address that mail programs refuse",
        at("users.people.<name>.email"), patterns.EMAIL,
        '"{value}" is no address',
        "write it as name@example.org"),
    Spelling("admin-network",
        "A network of administrators that sshd does not take",
        at("users.admin_networks.[]"), patterns.is_network,
        '"{value}" is neither an address nor a network',
        "write it like 192.0.2.7 or 192.0.2.0/24"),
    ListedTwice("admin-network-twice",
        "A network of administrators, listed twice",
        at("users.admin_networks.[]")),
)
# fmt: on


def _taken(number: int) -> str | None:
    """Why a number is not for people; None if it is free."""
    if number == _SLURM_ID:
        return "the number of SLURM's own user"
    if number == _NOBODY_ID:
        return "the number of nobody"
    least, first, last = OF_THE_SYSTEM
    if number < least:
        return f"below {least}, a number of the system"
    if first <= number <= last:
        return f"between {first} and {last}, a number of the system"
    return f"above {LARGEST_ID}" if number > LARGEST_ID else None


@check("uid-of-the-system")
def uid_of_the_system(d: Definition) -> Iterator[Finding]:
    """A uid from the ranges that belong to the system."""
    for path, uid in _UIDS(d):
        if (why := _taken(uid)) and path[2] not in _NAMES:
            yield Finding(path, f"{uid} is {why}", "take one from 1000 to 59999")


@check("gid-of-the-system")
def gid_of_the_system(d: Definition) -> Iterator[Finding]:
    """A gid from the ranges that belong to the system."""
    for path, gid in _GIDS(d):
        if (why := _taken(gid)) and path[2] not in _NAMES:
            yield Finding(path, f"{gid} is {why}", "take one from 1000 to 59999")


@check("uid-is-a-gid")
def uid_is_a_gid(d: Definition) -> Iterator[Finding]:
    """A uid that is a group's gid: a person's own group has the number of the uid."""
    groups = {gid: path[2] for path, gid in _GIDS(d)}
    for path, uid in _UIDS(d):
        if uid in groups:
            yield Finding(
                path,
                f'{uid} is the gid of "{groups[uid]}", and {path[2]}\'s own group needs it',
                "take another uid",
            )


@check("admin-networks-in-the-cloud")
def admin_networks_in_the_cloud(d: Definition) -> Iterator[Finding]:
    """Networks of administrators where people come through IAP alone."""
    if d.cluster.cloud and d.cluster.users.admin_networks:
        yield Finding(
            ("users", "admin_networks"),
            "nobody comes to VMs of the cloud from a network, but through IAP",
            "leave it out; cloud.iap_admins says who may reach the controller",
        )
