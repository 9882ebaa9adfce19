"""Checks of people and groups: numbers, keys, addresses."""

import base64
import binascii
from collections.abc import Iterator

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
_UIDS = at("users.people.<name>.uid")
_GIDS = at("users.groups.<name>.gid")
_SSH_KEYS = at("users.people.<name>.ssh_keys.[]")


def _keys_without_comments(d: Definition) -> Iterator[tuple[KeyPath, str]]:
    for path, key in _SSH_KEYS(d):
        yield path, " ".join(key.split()[:2])


def _is_private(key: str) -> bool:
    return "PRIVATE KEY" in key or key.startswith("PuTTY-User-Key-File")


def _is_weak(key: str) -> bool:
    return key.startswith("ssh-dss ")


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
    Spelling("ssh-key-private",
        "A private key where a public one belongs",
        _SSH_KEYS, lambda key: not _is_private(key),
        "a private key: anybody who can read this file can log in with it",
        "make a new pair (ssh-keygen), give the .pub file, and throw this key away"),
    Spelling("ssh-key-weak",
        "A DSA key: sshd has refused them since OpenSSH 7",
        _SSH_KEYS, lambda key: not _is_weak(key),
        "a DSA key, which sshd refuses",
        "use an ed25519 key"),
    Spelling("ssh-key-malformed",
        "Something that sshd would not read as a public key",
        _SSH_KEYS, lambda key: _is_private(key) or _is_weak(key) or _is_public(key),
        '"{value:.24}..." is no public key',
        "copy the whole line of the .pub file: type, key, comment"),
    SharedValue("ssh-key-twice",
        "One key for two people: the log would not show who logged in",
        _keys_without_comments,
        "{first[2]} has this key already",
        "give each person their own"),
    Spelling("email-shape",
        "An email address that is not one",
        at("users.people.<name>.email"), patterns.EMAIL,
        '"{value}" is no address',
        "write it as name@example.org"),
    Spelling("shell-not-absolute",
        "A shell that is no absolute path: the login would fail",
        at("users.people.<name>.shell"), r"/[^\s:]+",
        '"{value}" is no path of a program',
        "write the whole path, such as /bin/bash"),
)
# fmt: on


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
    for path, uid in _UIDS(d):
        if why := _taken(uid):
            yield Finding(path, f"{uid} is {why}", "take one from 1000 to 59999")


@check("gid-of-the-system")
def gid_of_the_system(d: Definition) -> Iterator[Finding]:
    """A gid from the ranges that belong to the system."""
    for path, gid in _GIDS(d):
        if why := _taken(gid):
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
