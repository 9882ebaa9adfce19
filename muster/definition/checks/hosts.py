"""Checks of hosts.yml: which host does what."""

from collections.abc import Iterator

from muster.definition.checks.misspelt import misspelt
from muster.definition.checks.names import RESERVED_FOR_GROUPS
from muster.definition.checks.registry import Finding, check, source_check
from muster.definition.definition import HOST_GROUPS, Definition
from muster.definition.schema.node_sets import Machines
from muster.definition.sources import Sources
from muster.definition.spelling import nearest


def meant_groups(d: Definition) -> dict[str, str]:
    """Groups whose name is nearly that of one with a meaning, with that name."""
    known = set(HOST_GROUPS) | set(d.cluster.nodes)
    # A group with another meaning (rack1, login2) is fine; one letter off is not.
    unknown = [g for g in d.hosts.groups if g not in known and not g[-1:].isdigit()]
    if not unknown:
        return {}
    without_hosts = {
        name
        for name, nodes in d.cluster.nodes.items()
        if isinstance(nodes, Machines) and not d.hosts_of(name)
    }
    used = {name.used for name in misspelt(d)}
    meant = {}
    for group in unknown:
        if group in used:
            continue
        near = nearest(group, HOST_GROUPS) or nearest(group, without_hosts)
        if near and abs(len(near) - len(group)) <= 1:
            meant[group] = near
    return meant


def lacks(d: Definition, group: str) -> bool:
    """Whether a group has no hosts, under whatever spelling."""
    return not d.hosts.groups.get(group) and group not in meant_groups(d).values()


@check("no-controller", reads_hosts=True)
def no_controller(d: Definition) -> Iterator[Finding]:
    """No host for slurmctld."""
    if lacks(d, "controller"):
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
    """Accounts or QoS, and no host for the database that SLURM keeps them in."""
    kept_there = "accounts" if d.cluster.accounts else "qos" if d.cluster.qos else ""
    if kept_there and lacks(d, "database"):
        yield Finding(
            ("database",),
            f"no host is in the group `database`, and cluster.yml has {kept_there}",
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
    if d.cluster.users.people and lacks(d, "login"):
        yield Finding(
            ("login",),
            "no host is in the group `login`, and cluster.yml has people",
            "add the host that they log in to; it may be the controller",
            "hosts",
        )


@check("group-misspelt", reads_hosts=True)
def group_misspelt(d: Definition) -> Iterator[Finding]:
    """A group whose name is nearly that of one with a meaning."""
    for group, near in meant_groups(d).items():
        message = f'the group "{group}" has no meaning'
        yield Finding((group,), message, f'did you mean "{near}"?', "hosts")


@source_check("hosts-cycle", "hosts-cycle")
def hosts_cycle(sources: Sources) -> Iterator[Finding]:
    """A group of hosts.yml that is its own child."""
    definition = sources.definition
    nodes = definition.get("nodes") if isinstance(definition, dict) else None
    node_sets = nodes if isinstance(nodes, dict) else {}
    for file, fault in sources.faults("hosts-cycle"):
        # A node set of that name is refused, and its group follows from it.
        if fault.text not in RESERVED_FOR_GROUPS or fault.text not in node_sets:
            yield Finding(
                fault.path,
                f'group "{fault.text}" is below itself',
                "take it out of its own children",
                file,
                fault.line,
            )


@check("host-named-as-group", reads_hosts=True)
def host_named_as_group(d: Definition) -> Iterator[Finding]:
    """A host with the name of a group: Ansible takes one for the other."""
    for host in d.hosts.groups.get("all", ()):
        if host in d.hosts.groups:
            yield Finding(
                ("all", host), f'"{host}" is a host and a group', "rename one of them", "hosts"
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
