"""Checks of the directory (LDAP) and of names that are in it alone."""

import base64
import binascii
import re
from collections.abc import Iterator

from muster.catalog.system_names import ROOT_GROUPS, SUDO_GROUPS
from muster.definition.checks.people import LARGEST_ID, OF_THE_SYSTEM
from muster.definition.checks.registry import Finding, check
from muster.definition.checks.rows import ListedTwice, Spelling, at, table
from muster.definition.definition import Definition
from muster.definition.schema import patterns
from muster.definition.yaml_file import KeyPath

_CERTIFICATE = re.compile(
    r"-----BEGIN CERTIFICATE-----\n([A-Za-z0-9+/=\n]+)-----END CERTIFICATE-----\n?"
)


def _has_certificates(text: str) -> bool:
    """Whether a text is one certificate or more, in PEM, and nothing secret."""
    blocks = _CERTIFICATE.findall(text)
    try:
        # DER: a certificate is a SEQUENCE with a length of two bytes (X.690, 8.1).
        are_whole = all(
            base64.b64decode("".join(block.split()), validate=True)[:2] == b"\x30\x82"
            for block in blocks
        )
    except binascii.Error:
        return False
    return bool(blocks) and are_whole and "PRIVATE KEY" not in text


def people_elsewhere(d: Definition) -> Iterator[tuple[KeyPath, str]]:
    """People who are named in accounts, and must be in the directory."""
    if d.cluster.users.directory is not None:
        for path, name in at("accounts.<name>.users.[]")(d):
            if name not in d.cluster.users.people:
                yield path, name


def groups_elsewhere(d: Definition) -> Iterator[tuple[KeyPath, str]]:
    """Groups that are named, and must be in the directory."""
    if d.cluster.users.directory is not None:
        yield from at("users.directory.groups.[]")(d)
        for path, name in at("partitions.<name>.groups.[]")(d):
            if name not in d.cluster.users.groups:
                yield path, name


# fmt: off
table(
    Spelling("directory-server",
        "A server of the directory that is no address of LDAP",
        at("users.directory.servers.[]"), patterns.is_ldap_server,
        '"{value}" is no address of an LDAP server',
        "write ldaps:// and its name, as in ldaps://ldap.example.org"),
    ListedTwice("directory-server-twice",
        "A server of the directory that is listed twice",
        at("users.directory.servers.[]")),
    Spelling("directory-name-in-it",
        "A base or login of the directory that is no distinguished name",
        at("users.directory.base", "users.directory.bind_dn"), patterns.DISTINGUISHED_NAME,
        '"{value}" is no distinguished name',
        "write it as in dc=example,dc=org"),
    Spelling("directory-ca",
        "A certificate of the directory's authority that is none, or comes with its key",
        at("users.directory.ca"), _has_certificates,
        "this is not a certificate in PEM alone",
        "write the lines from BEGIN CERTIFICATE to END CERTIFICATE below `ca: |`"),
    Spelling("directory-login",
        "A person of the directory whose login sacctmgr or Linux does not take",
        people_elsewhere, patterns.DIRECTORY_LOGIN,
        'nobody has the login "{value}", and no directory can have it',
        "use up to 32 small letters, digits, hyphens, dots and underscores, a letter first"),
    Spelling("directory-group",
        "A group of the directory whose name slurm.conf or sssd does not take",
        groups_elsewhere, patterns.DIRECTORY_GROUP,
        'no group "{value}", and no directory can have it',
        "use up to 64 letters, digits, hyphens, dots and underscores, a letter first"),
    ListedTwice("directory-group-twice",
        "A group of the directory that is listed twice",
        at("users.directory.groups.[]")),
)
# fmt: on


@check("directory-without-server")
def directory_without_server(d: Definition) -> Iterator[Finding]:
    """A directory without a server."""
    directory = d.cluster.users.directory
    if directory is not None and not directory.servers:
        yield Finding(
            ("users", "directory", "servers"), "no server", "name one, as in ldaps://HOST"
        )


@check("directory-without-group")
def directory_without_group(d: Definition) -> Iterator[Finding]:
    """A directory of which nobody may log in."""
    directory = d.cluster.users.directory
    if directory is not None and not directory.groups:
        yield Finding(
            ("users", "directory", "groups"),
            "no group, so nobody of the directory may log in",
            "name the groups of the directory whose members may",
        )


@check("directory-group-hidden")
def directory_group_hidden(d: Definition) -> Iterator[Finding]:
    """A group of the directory that is hidden: one of users.groups, or whose members are root."""
    for path, name in at("users.directory.groups.[]")(d):
        if name in d.cluster.users.groups or name in d.cluster.users.people:
            yield Finding(
                path,
                f'"{name}" is in the definition, which hides the directory\'s group of that name',
                "name another group of the directory, or take it out of the definition",
            )
    for path, name in groups_elsewhere(d):
        if name in (*SUDO_GROUPS, *ROOT_GROUPS):
            yield Finding(
                path,
                f'"{name}" is a group whose members are root on many hosts, so it is hidden',
                "name another group of the directory",
            )


@check("directory-ids")
def directory_ids(d: Definition) -> Iterator[Finding]:
    """A range of numbers for people of the directory that has numbers of the system."""
    directory = d.cluster.users.directory
    if directory is None:
        return
    first, last = directory.min_id, directory.max_id
    place = ("users", "directory")
    if first < OF_THE_SYSTEM[0]:
        yield Finding(
            (*place, "min_id"),
            f"numbers below {OF_THE_SYSTEM[0]} are the system's",
            f"set it to {OF_THE_SYSTEM[0]} or more",
        )
    elif last > LARGEST_ID:
        yield Finding(
            (*place, "max_id"),
            f"{last} is above {LARGEST_ID}",
            f"set it to {LARGEST_ID} or less",
        )
    elif first > last:
        yield Finding(
            (*place, "min_id"),
            f"no number is from {first} to {last}",
            "set min_id to the smallest and max_id to the largest number",
        )
    elif first <= OF_THE_SYSTEM[2] and last >= OF_THE_SYSTEM[1]:
        yield Finding(
            (*place, "max_id"),
            f"{OF_THE_SYSTEM[1]} to {OF_THE_SYSTEM[2]} are numbers of the system",
            f"end the range at {OF_THE_SYSTEM[1] - 1}, or begin it at {OF_THE_SYSTEM[2] + 1} "
            "or later",
        )


@check("directory-in-the-cloud")
def directory_in_the_cloud(d: Definition) -> Iterator[Finding]:
    """A directory for a cluster in the cloud, whose nodes know people of the definition alone."""
    if d.cluster.users.directory is not None and d.cluster.cloud is not None:
        yield Finding(
            ("users", "directory"),
            "nodes in the cloud know the people of users.people alone",
            "take it out, and write its people and groups into users.people and users.groups",
        )
