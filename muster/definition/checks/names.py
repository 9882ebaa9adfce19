"""Checks of names: what SLURM, DNS, Linux, Ansible and Google Cloud refuse."""

import re
from collections.abc import Iterator

from muster.definition.checks.registry import Finding, check
from muster.definition.definition import Definition
from muster.definition.schema import patterns

ROLE_GROUPS = ("controller", "database", "login", "compute", "storage")

# Users and groups that Debian and Ubuntu make (base-passwd) and that the packages of a node make.
_SYSTEM_NAMES = """
    root daemon bin sys sync games man lp mail news uucp proxy www-data backup list irc gnats
    _apt nobody nogroup systemd-network systemd-resolve systemd-timesync messagebus sshd tss
    polkitd _chrony chrony slurm munge mysql slurmrestd adm tty disk kmem dialout fax voice cdrom
    floppy tape sudo audio dip operator src shadow utmp video sasl plugdev staff users input sgx
    kvm render crontab ssl-cert netdev msmtp _ssh uuidd debian ubuntu
"""
_SYSTEM = frozenset(_SYSTEM_NAMES.split())


@check("cluster-name")
def cluster_name(d: Definition) -> Iterator[Finding]:
    """A cluster name that SLURM or Google Cloud refuses."""
    if not re.fullmatch(patterns.CLUSTER_NAME, d.cluster.name):
        yield Finding(
            ("name",),
            f'"{d.cluster.name}" can\'t be the name of a cluster',
            "use up to 19 small letters, digits and hyphens, a letter first, no hyphen last",
        )


@check("node-set-name")
def node_set_name(d: Definition) -> Iterator[Finding]:
    """A node set name that can't be part of a host name."""
    for name in d.cluster.nodes:
        if not re.fullmatch(patterns.NODE_SET_NAME, name):
            yield Finding(
                ("nodes", name),
                f'"{name}" can\'t be the name of a node set',
                "use up to 30 small letters, digits and hyphens, a letter first, no hyphen last",
            )


@check("node-set-name-reserved")
def node_set_name_reserved(d: Definition) -> Iterator[Finding]:
    """A node set named like a group that has another meaning."""
    for name in d.cluster.nodes:
        if name in (*ROLE_GROUPS, "all", "ungrouped"):
            yield Finding(
                ("nodes", name),
                f'"{name}" is a group with another meaning',
                "name the node set after its hardware",
            )


@check("partition-name")
def partition_name(d: Definition) -> Iterator[Finding]:
    """A partition name that SLURM can't read."""
    for name in d.cluster.partitions:
        if not re.fullmatch(patterns.PARTITION_NAME, name):
            yield Finding(
                ("partitions", name),
                f'"{name}" can\'t be the name of a partition',
                "use letters, digits, hyphens, dots and underscores",
            )


@check("partition-name-reserved")
def partition_name_reserved(d: Definition) -> Iterator[Finding]:
    """A partition called DEFAULT: to SLURM that is a template of partitions."""
    for name in d.cluster.partitions:
        if name.upper() == "DEFAULT":
            yield Finding(
                ("partitions", name),
                f'"{name}" is reserved by SLURM',
                "take another name; `default: true` makes a partition the default",
            )


@check("host-name", reads_hosts=True)
def host_name(d: Definition) -> Iterator[Finding]:
    """A host name that DNS or SLURM refuses."""
    for host in d.hosts.groups.get("all", ()):
        if not re.fullmatch(patterns.HOST_NAME, host):
            yield Finding(
                ("all", host),
                f'"{host}" can\'t be the name of a host',
                "use up to 63 small letters, digits and hyphens (no dots), no hyphen at the ends",
                "hosts",
            )


@check("host-name-reserved", reads_hosts=True)
def host_name_reserved(d: Definition) -> Iterator[Finding]:
    """A host called localhost or DEFAULT."""
    for host in d.hosts.groups.get("all", ()):
        if host in ("localhost", "default"):
            yield Finding(
                ("all", host),
                f'"{host}" can\'t be the name of a host',
                "use the name that the other hosts know it by",
                "hosts",
            )


@check("login-name")
def login_name(d: Definition) -> Iterator[Finding]:
    """A login that Linux refuses."""
    for name in d.cluster.users.people:
        if not re.fullmatch(patterns.LOGIN_NAME, name):
            yield Finding(
                ("users", "people", name),
                f'"{name}" can\'t be a login',
                "use up to 32 small letters, digits, hyphens and underscores, a letter first",
            )


@check("login-name-reserved")
def login_name_reserved(d: Definition) -> Iterator[Finding]:
    """A login that the system or one of its services has."""
    for name in d.cluster.users.people:
        if name in _SYSTEM:
            yield Finding(
                ("users", "people", name), f'"{name}" is a user of the system', "take another login"
            )


@check("group-name")
def group_name(d: Definition) -> Iterator[Finding]:
    """A group name that Linux refuses."""
    for name in d.cluster.users.groups:
        if not re.fullmatch(patterns.LOGIN_NAME, name):
            yield Finding(
                ("users", "groups", name),
                f'"{name}" can\'t be the name of a group',
                "use up to 32 small letters, digits, hyphens and underscores, a letter first",
            )


@check("group-name-reserved")
def group_name_reserved(d: Definition) -> Iterator[Finding]:
    """A group that the system or one of its services has."""
    for name in d.cluster.users.groups:
        if name in _SYSTEM:
            yield Finding(
                ("users", "groups", name), f'"{name}" is a group of the system', "take another name"
            )


@check("group-named-as-person")
def group_named_as_person(d: Definition) -> Iterator[Finding]:
    """A group with the name of a person, whose own group has that name already."""
    for name in d.cluster.users.groups:
        if name in d.cluster.users.people:
            yield Finding(
                ("users", "groups", name),
                f'"{name}" is a person, who has a group of that name',
                "take another name for the group",
            )


@check("account-name")
def account_name(d: Definition) -> Iterator[Finding]:
    """An account name that sacctmgr can't take."""
    for name in d.cluster.accounts:
        if not re.fullmatch(patterns.ACCOUNT_NAME, name):
            yield Finding(
                ("accounts", name),
                f'"{name}" can\'t be the name of an account',
                "use letters, digits, hyphens, dots and underscores",
            )


@check("account-name-reserved")
def account_name_reserved(d: Definition) -> Iterator[Finding]:
    """An account called root: SLURM has it already, at the top of the tree."""
    for name in d.cluster.accounts:
        if name.casefold() == "root":
            yield Finding(
                ("accounts", name),
                f'"{name}" is SLURM\'s own account',
                "take another name; accounts without parent are below root",
            )


@check("accounts-differ-in-case")
def accounts_differ_in_case(d: Definition) -> Iterator[Finding]:
    """Two accounts that differ only in case: SLURM stores names in small letters."""
    first: dict[str, str] = {}
    for name in d.cluster.accounts:
        twin = first.setdefault(name.casefold(), name)
        if twin != name:
            yield Finding(
                ("accounts", name),
                f'"{name}" and "{twin}" are one account to SLURM',
                "keep one of them, or take another name",
            )
