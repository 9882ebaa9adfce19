"""Checks of the variables that say where hosts are, and how Ansible logs in to them."""

import ipaddress
import re
from collections.abc import Iterator
from functools import lru_cache

from muster.definition.checks.registry import Finding, source_check
from muster.definition.checks.variables import Variable, variables
from muster.definition.sources import Sources
from muster.definition.spelling import nearest
from muster.definition.yaml_file import Vaulted

# Digits and dots alone would be an address.
_ADDRESS_NAME = re.compile(r"(?![0-9.]+$)[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_HIGHEST_PORT = 65535
_LIKENESS = 0.8
_LIKENESS_OF_PREFIX = 0.7

ADDRESS, PORT, USER = "ansible_host", "ansible_port", "ansible_user"
CONNECTION = "ansible_connection"
PASSWORDS = (
    *("ansible_password", "ansible_ssh_pass", "ansible_ssh_password"),
    *("ansible_become_password", "ansible_become_pass", "ansible_sudo_pass"),
    *("ansible_private_key", "ansible_ssh_private_key"),
    *("ansible_private_key_passphrase", "ansible_ssh_private_key_passphrase"),
)

# What Ansible takes from `ansible_X` for connections by ssh and on the machine itself, for the
# shell there, and for sudo; a test compares this with Ansible. ansible_ssh_host and the like are
# not here: Muster reads their names for all kinds of connections.
_CONNECTION = """
    async_dir become become_exe become_flags become_method become_pass become_password become_user
    common_remote_group connection control_path control_path_dir host host_key_checking
    module_compression password pipelining port private_key private_key_file
    private_key_passphrase python_interpreter remote_tmp scp_executable scp_extra_args
    sftp_batch_mode sftp_executable sftp_extra_args shell_allow_world_readable_temp
    shell_executable shell_type ssh_args ssh_common_args ssh_executable ssh_extra_args
    ssh_host_key_checking ssh_pass ssh_password ssh_password_mechanism ssh_pipelining
    ssh_pkcs11_provider ssh_private_key ssh_private_key_file ssh_private_key_passphrase ssh_retries
    ssh_timeout ssh_transfer_method ssh_use_tty ssh_verbosity sshpass_prompt sudo_chdir sudo_exe
    sudo_flags sudo_pass sudo_user system_tmpdirs timeout user admin_users
    local_become_strip_preamble local_become_success_timeout
"""
KNOWN = frozenset(f"ansible_{name}" for name in _CONNECTION.split())
"""Variables with which Ansible connects to hosts."""


def _is_template(value: object) -> bool:
    """Whether only Ansible knows the value."""
    return isinstance(value, Vaulted) or (isinstance(value, str) and "{{" in value)


def _of(sources: Sources, *names: str) -> Iterator[Variable]:
    """Connection variables of these names whose value is known."""
    for given in variables(sources, names):
        if not _is_template(given.value):
            yield given


@lru_cache(maxsize=1000)  # the same few names for each of thousands of hosts
def _meant(name: str) -> str | None:
    """The known variable that is nearly called so; None if there is none, or it is one itself."""
    # mail_password is no misspelt ansible_password.
    begins_so = nearest(re.split("[_-]", name)[0], ("ansible",), _LIKENESS_OF_PREFIX)
    return nearest(name, KNOWN, _LIKENESS) if begins_so and name not in KNOWN else None


@source_check("connection-misspelt")
def connection_misspelt(sources: Sources) -> Iterator[Finding]:
    """A variable that is nearly called like one with which Ansible connects, as `ansible_hosts`."""
    for given in variables(sources):
        if near := _meant(given.name):
            yield given.finding(
                f'Ansible connects with no variable "{given.name}"', f'did you mean "{near}"?'
            )


@source_check("connection-value")
def connection_value(sources: Sources) -> Iterator[Finding]:
    """An address or a user that is no text."""
    for given in _of(sources, ADDRESS, USER):
        if given.spelt or not isinstance(given.value, str) or not given.value.strip():
            yield given.finding(
                f"{given.name} is no text", "write the value in quotes, or take the line out"
            )


@source_check("port-malformed")
def port_malformed(sources: Sources) -> Iterator[Finding]:
    """An `ansible_port` that is no number of a port, or one that YAML reads as another number."""
    for given in _of(sources, PORT):
        text = given.spelt or str(given.value)
        if not re.fullmatch("[1-9][0-9]{0,4}", text) or int(text) > _HIGHEST_PORT:
            yield given.finding(
                f'ansible_port "{text}" is no port',
                f"write a number from 1 to {_HIGHEST_PORT} without a leading zero",
            )


@source_check("connection-password")
def connection_password(sources: Sources) -> Iterator[Finding]:
    """A password or key for connections in plain text: these files are in git."""
    for given in _of(sources, *PASSWORDS):
        yield given.finding(
            f"{given.name} is a secret in plain text",
            "log in with a key of ssh, or encrypt the value: ansible-vault encrypt_string",
        )


@source_check("address-of-several")
def address_of_several(sources: Sources) -> Iterator[Finding]:
    """An address that a group or a range of hosts has: all of them would be one machine."""
    for given in _of(sources, ADDRESS):
        if isinstance(given.value, str) and _is_of_several(given):
            yield given.finding(
                f'all hosts of "{given.owner}" would be at {given.value}',
                "give each host its own ansible_host",
            )


@source_check("connection-local")
def connection_local(sources: Sources) -> Iterator[Finding]:
    """Several hosts that are the machine on which Ansible runs."""
    groups = sources.members.groups if sources.members else {}
    for given in _of(sources, CONNECTION):
        hosts = groups.get(given.owner, []) if given.hosts is None else given.hosts
        if given.value == "local" and len(hosts) > 1:
            yield given.finding(
                f'all hosts of "{given.owner}" would be this machine (ansible_connection: local)',
                "take it out, or write it at one host",
            )


def _is_of_several(given: Variable) -> bool:
    return given.hosts is None or len(given.hosts) > 1


def _addresses(sources: Sources) -> Iterator[tuple[str, str, Variable]]:
    """Host and address, where it is given to that host alone; without IPv6."""
    for host, address, given in _own_addresses(sources):
        if not isinstance(_ip(address), ipaddress.IPv6Address):
            yield host, address, given


def _own_addresses(sources: Sources) -> Iterator[tuple[str, str, Variable]]:
    """The same, with those of IPv6."""
    for given in _of(sources, ADDRESS):
        text = isinstance(given.value, str) and given.value.strip() and not given.spelt
        if text and given.hosts and len(given.hosts) == 1:
            yield given.hosts[0], given.value, given


@lru_cache(maxsize=20_000)  # several checks look at each
def _ip(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(address)
    except ValueError:
        return None


@source_check("address-of-ipv6")
def address_of_ipv6(sources: Sources) -> Iterator[Finding]:
    """An `ansible_host` that is an IPv6 address: SLURM's daemons talk IPv4 to each other."""
    for host, address, given in _own_addresses(sources):
        if isinstance(_ip(address), ipaddress.IPv6Address):
            yield given.finding(
                f"{host} has an IPv6 address, {address}, and SLURM's daemons talk IPv4 to each "
                "other",
                "write its IPv4 address, or a name that has one",
                mistake="IPv6",
            )


@source_check("address-malformed")
def address_malformed(sources: Sources) -> Iterator[Finding]:
    """An `ansible_host` that is neither the address of one host nor a name."""
    for host, address, given in _addresses(sources):
        ip = _ip(address)
        if not ip and not _ADDRESS_NAME.fullmatch(address):
            message = f'ansible_host "{address}" is neither an address nor a name'
        elif ip and (ip.is_multicast or str(ip) == "255.255.255.255"):
            message = f"{address} is no address of one host"
        else:
            continue
        yield given.finding(f"{message}, for {host}", "write it like 192.0.2.11")


@source_check("connection-differs")
def connection_differs(sources: Sources) -> Iterator[Finding]:
    """A host with two addresses, ports or users: Ansible takes the one that it reads last."""
    first: dict[tuple[str, str], Variable] = {}
    for given in _of(sources, ADDRESS, PORT, USER):
        for host in given.hosts or ():
            other = first.setdefault((host, given.name), given)
            if str(other.value) != str(given.value) and not _in_two_sets(sources, other, given):
                yield given.finding(
                    f'{host} has {given.name} "{other.value}" already, and here "{given.value}"',
                    "take one of them out",
                )
                break


def _in_two_sets(sources: Sources, *places: Variable) -> bool:
    """Whether a host has a variable in two node sets, in which another check refuses it."""
    definition = sources.definition
    nodes = definition.get("nodes") if isinstance(definition, dict) else None
    groups = {given.path[0] for given in places if given.file == "hosts"}
    return isinstance(nodes, dict) and len(groups & nodes.keys()) == len(places)


@source_check("address-twice")
def address_twice(sources: Sources) -> Iterator[Finding]:
    """Two hosts with one address."""
    # What a host is given last is what Ansible takes; a host without an address is at its name.
    last = {host: (address, given) for host, address, given in _addresses(sources)}
    names = set(sources.members.groups["all"]) if sources.members else set()
    first: dict[str, str] = {}
    for host, (address, given) in last.items():
        if names and host not in names:
            continue  # a file of host_vars whose name is no host's, as another check says
        other = first.setdefault(address.lower(), host)
        if other == host and address in names:
            other = address
        if other != host:
            yield given.finding(
                f"{other} has the address {address} already, and {host} would be that machine",
                "give each host its own ansible_host",
            )


@source_check("address-of-the-host-itself")
def address_of_the_host_itself(sources: Sources) -> Iterator[Finding]:
    """A loopback address in a cluster of several hosts: each host would reach itself."""
    several = sources.members is not None and len(sources.members.groups["all"]) > 1
    for host, address, given in _addresses(sources):
        ip = _ip(address)
        local = address.lower() == "localhost" or (ip and (ip.is_loopback or ip.is_unspecified))
        if several and local:
            yield given.finding(
                f"the other hosts can't reach {host} at {address}",
                "write its address in the network of the cluster",
            )
