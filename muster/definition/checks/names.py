"""Checks of names: what SLURM, DNS, Linux, Ansible and Google Cloud refuse."""

from collections.abc import Iterator

from muster.definition.checks.registry import Finding, check
from muster.definition.checks.rows import ReservedWord, SharedValue, Spelling, at, table
from muster.definition.definition import HOST_GROUPS, Definition
from muster.definition.schema import patterns
from muster.definition.yaml_file import KeyPath

# Users and groups that Debian and Ubuntu make (base-passwd), that the packages of a node make, and
# that Muster's roles make.
_SYSTEM_NAMES = """
    root daemon bin sys sync games man lp mail news uucp proxy www-data backup list irc gnats
    _apt nobody nogroup systemd-network systemd-resolve systemd-timesync messagebus sshd tss
    polkitd _chrony chrony slurm munge mysql slurmrestd adm tty disk kmem dialout fax voice cdrom
    floppy tape sudo audio dip operator src shadow utmp video sasl plugdev staff users input sgx
    kvm render crontab ssl-cert netdev msmtp _ssh uuidd debian ubuntu muster-build
"""
_SYSTEM = frozenset(_SYSTEM_NAMES.split())


def _hosts(d: Definition) -> Iterator[tuple[KeyPath, str]]:
    for host in d.hosts.groups.get("all", ()):
        yield ("all", host), host


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
    Spelling("node-set-name",
        "A node set name that can't be part of a host name",
        at("nodes.<name>"), patterns.NODE_SET_NAME,
        '"{value}" can\'t be the name of a node set',
        "use up to 30 small letters, digits and hyphens, a letter first, no hyphen last"),
    ReservedWord("node-set-name-reserved",
        "A node set named like a group or like VMs that have another meaning",
        # The controller may delete VMs whose names begin as its nodes' do, and no others.
        at("nodes.<name>"), (*HOST_GROUPS, "all", "ungrouped", "builder"),
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
        "use up to 63 small letters, digits and hyphens (no dots), no hyphen at the ends",
        file="hosts"),
    ReservedWord("host-name-reserved",
        "A host called localhost or DEFAULT",
        _hosts, ("localhost", "default"),
        '"{value}" can\'t be the name of a host',
        "use the name that the other hosts know it by", file="hosts"),
    Spelling("login-name",
        "A login that Linux refuses",
        at("users.people.<name>"), patterns.LOGIN_NAME,
        '"{value}" can\'t be a login',
        "use up to 32 small letters, digits, hyphens and underscores, a letter first"),
    ReservedWord("login-name-reserved",
        "A login that the system or one of its services has",
        at("users.people.<name>"), _SYSTEM,
        '"{value}" is a user of the system',
        "take another login"),
    Spelling("group-name",
        "A group name that Linux refuses",
        at("users.groups.<name>"), patterns.LOGIN_NAME,
        '"{value}" can\'t be the name of a group',
        "use up to 32 small letters, digits, hyphens and underscores, a letter first"),
    ReservedWord("group-name-reserved",
        "A group that the system or one of its services has",
        at("users.groups.<name>"), _SYSTEM,
        '"{value}" is a group of the system',
        "take another name"),
    Spelling("account-name",
        "An account name that sacctmgr can't take",
        at("accounts.<name>"), patterns.ACCOUNT_NAME,
        '"{value}" can\'t be the name of an account',
        "use letters, digits, hyphens, dots and underscores"),
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
