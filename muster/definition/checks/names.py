"""Checks of names: what SLURM, DNS, Linux, Ansible and Google Cloud refuse."""

import re
from collections.abc import Iterator

from muster.catalog.system_names import ROOT_GROUPS, SYSTEM_NAMES
from muster.definition.checks.registry import Finding, check
from muster.definition.checks.rows import ReservedWord, SharedValue, Spelling, at, table
from muster.definition.definition import HOST_GROUPS, Definition
from muster.definition.schema import patterns
from muster.definition.yaml_file import KeyPath

# The controller may delete VMs whose names begin as its nodes' do, and no others.
RESERVED_FOR_GROUPS = (*HOST_GROUPS, "all", "ungrouped", "builder")
"""Names that no node set can have."""


def _hosts(d: Definition) -> Iterator[tuple[KeyPath, str]]:
    # Those of the cloud have names that Muster makes.
    if d.cluster.cloud is None:
        for host in d.hosts.groups.get("all", ()):
            yield ("all", host), host


def _name_in_the_cloud(d: Definition) -> Iterator[tuple[KeyPath, str]]:
    if d.cluster.cloud is not None:
        yield ("name",), d.cluster.name


def _accounts_in_small_letters(d: Definition) -> Iterator[tuple[KeyPath, str]]:
    for path, name in at("accounts.<name>")(d):
        yield path, name.casefold()


# fmt: off
table(
    Spelling("cluster-name",
        "A cluster name that SLURM or Google Cloud refuses",
        at("name"), patterns.CLUSTER_NAME,
        '"{value}" can\'t be the name of a cluster',
        "use up to 19 small letters, digits and hyphens, a letter first, no hyphen last"),
    ReservedWord("cluster-name-reserved",
        "A cluster called all, which SLURM's commands take for every cluster, or default, like the "
        "network that projects of Google Cloud have",
        at("name"), ("all", "default"),
        '"{value}" has another meaning',
        "name the cluster after its site or its group"),
    Spelling("cluster-name-of-google",
        "A cluster in the cloud with google in its name, which no name of a bucket may contain",
        _name_in_the_cloud, lambda name: not re.search("g(oo|00|o0|0o)g[l1]e", name),
        'Google refuses the bucket of a cluster called "{value}"',
        "take a name without google in it"),
    Spelling("node-set-name",
        "A node set name that can't be part of a host name",
        at("nodes.<name>"), patterns.NODE_SET_NAME,
        '"{value}" can\'t be the name of a node set',
        "use up to 30 small letters, digits and hyphens, a letter first, no hyphen last"),
    ReservedWord("node-set-name-reserved",
        "A node set named like a group or like VMs that have another meaning",
        at("nodes.<name>"), RESERVED_FOR_GROUPS,
        '"{value}" is the name of a group or of VMs with another meaning',
        "name the node set after its hardware"),
    Spelling("partition-name",
        "A partition name that SLURM can't read",
        at("partitions.<name>"), patterns.PARTITION_NAME,
        '"{value}" can\'t be the name of a partition',
        "use letters, digits, hyphens, dots and underscores"),
    ReservedWord("partition-name-reserved",
        "A partition called DEFAULT: to SLURM that is a template of partitions",
        at("partitions.<name>"), ("default",),
        '"{value}" is reserved by SLURM',
        "take another name; `default: true` makes a partition the default", any_case=True),
    Spelling("host-name",
        "A host name that DNS or SLURM refuses",
        _hosts, patterns.HOST_NAME,
        '"{value}" can\'t be the name of a host',
        "use up to 63 small letters, digits and hyphens (no dots), no hyphen at the ends, "
        "and not a number alone",
        file="hosts"),
    ReservedWord("host-name-reserved",
        "A host called DEFAULT, localhost or as Debian calls addresses of IPv6",
        _hosts, ("default", "localhost", "ip6-localhost", "ip6-loopback", "ip6-allnodes",
        "ip6-allrouters"),
        '"{value}" can\'t be the name of a host',
        "use the name that the other hosts know it by", file="hosts"),
    Spelling("login-name",
        "A login that Linux refuses",
        at("users.people.<name>"), patterns.LOGIN_NAME,
        '"{value}" can\'t be a login',
        "use up to 32 small letters, digits, hyphens and underscores, a letter first"),
    ReservedWord("login-name-reserved",
        "A login that the system or one of its services has",
        at("users.people.<name>"), SYSTEM_NAMES,
        '"{value}" is a user of the system',
        "take another login"),
    Spelling("group-name",
        "A group name that Linux refuses",
        at("users.groups.<name>"), patterns.LOGIN_NAME,
        '"{value}" can\'t be the name of a group',
        "use up to 32 small letters, digits, hyphens and underscores, a letter first"),
    ReservedWord("group-name-reserved",
        "A group that the system or one of its services has",
        at("users.groups.<name>"), SYSTEM_NAMES,
        '"{value}" is a group of the system',
        "take another name"),
    Spelling("account-name",
        "An account name that sacctmgr can't take",
        at("accounts.<name>"), patterns.ACCOUNT_NAME,
        '"{value}" can\'t be the name of an account',
        "use up to 42 letters, digits, hyphens, dots and underscores"),
    ReservedWord("account-name-reserved",
        "An account called root: SLURM has it already, at the top of the tree",
        at("accounts.<name>"), ("root",),
        '"{value}" is SLURM\'s own account',
        "take another name; accounts without parent are below root", any_case=True),
    SharedValue("accounts-differ-in-case",
        "Two accounts that differ only in case: SLURM stores names in small letters",
        _accounts_in_small_letters,
        '"{path[1]}" and "{first[1]}" are one account to SLURM',
        "keep one of them, or take another name"),
)
# fmt: on


@check("name-of-root")
def name_of_root(d: Definition) -> Iterator[Finding]:
    """A person or group whose name lets all members of the group become root."""
    names = dict.fromkeys(ROOT_GROUPS, "where that is installed")
    if d.cluster.os.startswith("ubuntu-"):
        names["admin"] = "by Ubuntu's sudo"
    for path, name in at("users.people.<name>", "users.groups.<name>")(d):
        if name in names:
            yield Finding(
                path,
                f'members of a group "{name}" become root {names[name]}',
                "take another name",
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
