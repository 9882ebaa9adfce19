"""Checks of people and groups: numbers, keys, addresses."""

import base64
import binascii
import re
from collections.abc import Iterator

from muster.definition.checks.registry import Finding, check, repeated, suggestion
from muster.definition.definition import Definition
from muster.definition.schema import patterns
from muster.definition.yaml_file import KeyPath

_SLURM_ID = 64030  # fixed in Debian's and Ubuntu's packages
_NOBODY_ID = 65534
_LARGEST_ID = 2**31 - 1  # beyond, programs that take ids as signed numbers fail
_KEY_TYPES = (
    "ssh-ed25519",
    "ssh-rsa",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
)


def _uids(d: Definition) -> Iterator[tuple[KeyPath, int]]:
    for name, person in d.cluster.users.people.items():
        yield ("users", "people", name, "uid"), person.uid


def _gids(d: Definition) -> Iterator[tuple[KeyPath, int]]:
    for name, group in d.cluster.users.groups.items():
        yield ("users", "groups", name, "gid"), group.gid


def _taken(number: int) -> str | None:
    """Why a number is not for people; None if it is free."""
    if number == _SLURM_ID:
        return "the number of SLURM's own user"
    if number == _NOBODY_ID:
        return "the number of nobody"
    if number < 1000:
        return "below 1000, a number of the system"
    # Debian Policy 9.2.2 and systemd's UIDS-GIDS.md: packages, dynamic users, nobody, 16-bit -1.
    if 60000 <= number <= 65535:
        return "between 60000 and 65535, a number of the system"
    return "above 2147483647" if number > _LARGEST_ID else None


@check("uid-of-the-system")
def uid_of_the_system(d: Definition) -> Iterator[Finding]:
    """A uid from the ranges that belong to the system."""
    for path, uid in _uids(d):
        if why := _taken(uid):
            yield Finding(path, f"{uid} is {why}", "take one from 1000 to 59999")


@check("gid-of-the-system")
def gid_of_the_system(d: Definition) -> Iterator[Finding]:
    """A gid from the ranges that belong to the system."""
    for path, gid in _gids(d):
        if why := _taken(gid):
            yield Finding(path, f"{gid} is {why}", "take one from 1000 to 59999")


@check("uid-twice")
def uid_twice(d: Definition) -> Iterator[Finding]:
    """Two people with one uid: each could read the other's files."""
    first: dict[int, KeyPath] = {}
    for path, uid in _uids(d):
        owner = first.setdefault(uid, path)
        if owner is not path:
            yield Finding(path, f"{uid} is {owner[2]}'s uid", "give each person a number")


@check("gid-twice")
def gid_twice(d: Definition) -> Iterator[Finding]:
    """Two groups with one gid."""
    first: dict[int, KeyPath] = {}
    for path, gid in _gids(d):
        owner = first.setdefault(gid, path)
        if owner is not path:
            yield Finding(path, f'{gid} is the gid of "{owner[2]}"', "give each group a number")


@check("uid-is-a-gid")
def uid_is_a_gid(d: Definition) -> Iterator[Finding]:
    """A uid that is a group's gid: a person's own group has the number of the uid."""
    groups = {gid: path[2] for path, gid in _gids(d)}
    for path, uid in _uids(d):
        if uid in groups:
            yield Finding(
                path,
                f'{uid} is the gid of "{groups[uid]}", and {path[2]}\'s own group needs it',
                "take another uid",
            )


@check("person-unknown-group")
def person_unknown_group(d: Definition) -> Iterator[Finding]:
    """A person in a group that is not there."""
    groups = d.cluster.users.groups
    for name, person in d.cluster.users.people.items():
        for index, group in enumerate(person.groups):
            if group not in groups:
                yield Finding(
                    ("users", "people", name, "groups", index),
                    f'no group "{group}"',
                    suggestion(group, groups, "add it to users.groups"),
                )


@check("person-group-twice")
def person_group_twice(d: Definition) -> Iterator[Finding]:
    """A person who is twice in a group."""
    for name, person in d.cluster.users.people.items():
        for index, group in repeated(person.groups):
            yield Finding(
                ("users", "people", name, "groups", index),
                f'"{group}" is listed twice',
                "take one out",
            )


def _ssh_keys(d: Definition) -> Iterator[tuple[KeyPath, str]]:
    for name, person in d.cluster.users.people.items():
        for index, key in enumerate(person.ssh_keys):
            yield ("users", "people", name, "ssh_keys", index), key


def _is_private(key: str) -> bool:
    return "PRIVATE KEY" in key or key.startswith("PuTTY-User-Key-File")


def _is_public(key: str) -> bool:
    """Whether it is a type, and a blob that begins with the same type."""
    kind, _, rest = key.partition(" ")
    blob = rest.split(" ", 1)[0]
    try:
        decoded = base64.b64decode(blob, validate=True)
    except (binascii.Error, ValueError):
        return False
    length = int.from_bytes(decoded[:4], "big")
    return kind in _KEY_TYPES and decoded[4 : 4 + length] == kind.encode() and len(decoded) > 40


@check("ssh-key-private")
def ssh_key_private(d: Definition) -> Iterator[Finding]:
    """A private key where a public one belongs."""
    for path, key in _ssh_keys(d):
        if _is_private(key):
            yield Finding(
                path,
                "a private key: whoever reads this file can log in with it",
                "make a new pair (ssh-keygen), give the .pub file, and throw this key away",
            )


@check("ssh-key-weak")
def ssh_key_weak(d: Definition) -> Iterator[Finding]:
    """A DSA key: sshd has refused them since OpenSSH 7."""
    for path, key in _ssh_keys(d):
        if key.startswith("ssh-dss "):
            yield Finding(path, "a DSA key, which sshd refuses", "use an ed25519 key")


@check("ssh-key-malformed")
def ssh_key_malformed(d: Definition) -> Iterator[Finding]:
    """Something that sshd would not read as a public key."""
    for path, key in _ssh_keys(d):
        if not _is_private(key) and not key.startswith("ssh-dss ") and not _is_public(key):
            yield Finding(
                path,
                f'"{key[:24]}..." is no public key',
                "copy the whole line of the .pub file: type, key, comment",
            )


@check("ssh-key-twice")
def ssh_key_twice(d: Definition) -> Iterator[Finding]:
    """One key for two people: the log would not show who logged in."""
    first: dict[str, KeyPath] = {}
    for path, key in _ssh_keys(d):
        blob = " ".join(key.split()[:2])
        owner = first.setdefault(blob, path)
        if owner is not path:
            yield Finding(path, f"{owner[2]} has this key already", "give each person their own")


@check("email-shape")
def email_shape(d: Definition) -> Iterator[Finding]:
    """An email address that is not one."""
    for name, person in d.cluster.users.people.items():
        if person.email is not None and not re.fullmatch(patterns.EMAIL, person.email):
            yield Finding(
                ("users", "people", name, "email"),
                f'"{person.email}" is no address',
                "write it as name@example.org",
            )


@check("shell-not-absolute")
def shell_not_absolute(d: Definition) -> Iterator[Finding]:
    """A shell that is no absolute path: the login would fail."""
    for name, person in d.cluster.users.people.items():
        if not re.fullmatch(r"/[^\s:]+", person.shell):
            yield Finding(
                ("users", "people", name, "shell"),
                f'"{person.shell}" is no path of a program',
                "write the whole path, such as /bin/bash",
            )
