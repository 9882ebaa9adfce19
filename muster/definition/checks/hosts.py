"""Checks of hosts.yml: which host does what, and where it is."""

import ipaddress
import re
from collections.abc import Iterator

from muster.definition.checks.registry import Finding, check
from muster.definition.checks.rows import SharedValue, Spelling, table
from muster.definition.definition import HOST_GROUPS, Definition
from muster.definition.spelling import nearest
from muster.definition.yaml_file import KeyPath

# Digits and dots alone would be an address.
_ADDRESS_NAME = re.compile(r"(?![0-9.]+$)[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")


def _addresses(d: Definition) -> Iterator[tuple[KeyPath, str]]:
    for host in d.hosts.groups.get("all", ()):
        address = d.hosts.vars.get(host, {}).get("ansible_host")
        # Only Ansible knows the value of a template.
        if address is not None and "{{" not in str(address):
            yield ("all", host), str(address)


def _ip(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(address)
    except ValueError:
        return None


# fmt: off
table(
    SharedValue("address-twice",
        "Two hosts with one address",
        _addresses,
        "{first[1]} has the address {value} already",
        "give each host its own ansible_host", file="hosts"),
    Spelling("address-malformed",
        "An `ansible_host` that is neither an address nor a name",
        _addresses, lambda address: _ip(address) or _ADDRESS_NAME.fullmatch(address),
        'ansible_host "{value}" is neither an address nor a name',
        "write it like 192.0.2.11", file="hosts"),
)
# fmt: on


@check("no-controller", reads_hosts=True)
def no_controller(d: Definition) -> Iterator[Finding]:
    """No host for slurmctld."""
    if not d.hosts.groups.get("controller"):
        yield Finding(
            ("controller",),
            "no host is in the group `controller`",
            "add the host that slurmctld runs on",
            "hosts",
        )


@check("two-controllers", reads_hosts=True)
def two_controllers(d: Definition) -> Iterator[Finding]:
    """More than one host for slurmctld."""
    for host in d.hosts.groups.get("controller", ())[1:]:
        yield Finding(
            ("controller", host),
            "Muster does not set up a second controller yet",
            "leave one host in `controller`",
            "hosts",
        )


@check("accounts-without-database", reads_hosts=True)
def accounts_without_database(d: Definition) -> Iterator[Finding]:
    """Accounts, and no host for the database that SLURM keeps them in."""
    if d.cluster.accounts and not d.hosts.groups.get("database"):
        yield Finding(
            ("database",),
            "no host is in the group `database`, and cluster.yml has accounts",
            "add the host that MariaDB and slurmdbd run on; it may be the controller",
            "hosts",
        )


@check("two-databases", reads_hosts=True)
def two_databases(d: Definition) -> Iterator[Finding]:
    """More than one host for the accounting database."""
    for host in d.hosts.groups.get("database", ())[1:]:
        yield Finding(
            ("database", host),
            "Muster does not set up a second database yet",
            "leave one host in `database`",
            "hosts",
        )


@check("people-without-login", reads_hosts=True)
def people_without_login(d: Definition) -> Iterator[Finding]:
    """People, and no host that they can log in to."""
    if d.cluster.users.people and not d.hosts.groups.get("login"):
        yield Finding(
            ("login",),
            "no host is in the group `login`, and cluster.yml has people",
            "add the host that they log in to; it may be the controller",
            "hosts",
        )


@check("group-misspelt", reads_hosts=True)
def group_misspelt(d: Definition) -> Iterator[Finding]:
    """A group whose name is nearly that of one with a meaning."""
    known = set(HOST_GROUPS) | set(d.cluster.nodes)
    for group in d.hosts.groups:
        # A group with another meaning (rack1, login2) is fine; one letter off is not.
        near = None if group in known or group[-1:].isdigit() else nearest(group, HOST_GROUPS)
        if near and abs(len(near) - len(group)) <= 1:
            yield Finding(
                (group,),
                f'the group "{group}" has no meaning',
                f'did you mean "{near}"?',
                "hosts",
            )


@check("host-named-as-group", reads_hosts=True)
def host_named_as_group(d: Definition) -> Iterator[Finding]:
    """A host with the name of a group: Ansible takes one for the other."""
    for host in d.hosts.groups.get("all", ()):
        if host in d.hosts.groups:
            yield Finding(
                ("all", host), f'"{host}" is a host and a group', "rename one of them", "hosts"
            )


@check("address-of-the-host-itself", reads_hosts=True)
def address_of_the_host_itself(d: Definition) -> Iterator[Finding]:
    """A loopback address in a cluster of several hosts: each host would reach itself."""
    several = len(d.hosts.groups.get("all", ())) > 1
    for path, address in _addresses(d):
        ip = _ip(address)
        if several and ip is not None and (ip.is_loopback or ip.is_unspecified):
            yield Finding(
                path,
                f"the other hosts can't reach {path[1]} at {address}",
                "write its address in the network of the cluster",
                "hosts",
            )


@check("group-of-role", reads_hosts=True)
def group_of_role(d: Definition) -> Iterator[Finding]:
    """A group with a name like those that site.yml makes, of the hosts that need a role."""
    for group in d.hosts.groups:
        if group.startswith("role_"):
            yield Finding(
                (group,),
                f'site.yml makes groups of this kind, "{group}", of the hosts that need a role',
                "give the group another name",
                "hosts",
            )
