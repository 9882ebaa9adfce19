# SPDX-License-Identifier: Apache-2.0
"""Addresses of nodes, the interface that holds this node's, and ports."""

import array
import errno
import fcntl
import ipaddress
import os
import socket
import struct
from collections.abc import Mapping

from muster_launch.errors import LaunchError

_SIOCGIFCONF = 0x8912
_ENTRY_BYTES = 40 if struct.calcsize("P") == 8 else 32
"""Of `struct ifreq`, of which the kernel writes one for each IPv4 address (netdevice(7))."""
_MOST_ENTRIES = 1024
_INET6 = "/proc/net/if_inet6"
_NCCL_CONF = "/etc/nccl.conf"
_DISCARD = 9
"""A port to which nothing is sent: only the way to an address is asked for."""


def address_of(node: str) -> str:
    """Return the first address of a node.

    Raises:
        LaunchError: its name is not known here.

    """
    try:
        return str(socket.getaddrinfo(node, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise LaunchError(
            f"the name of node {node} can't be resolved here ({error.strerror or error}): tell an "
            "administrator, who adds it to /etc/hosts or DNS, or leave the node out (--exclude)"
        ) from error


def interface(node: str, other: str | None) -> str | None:
    """Return the interface that holds this node's address; None if no interface does.

    Where the own name is the loopback's (127.0.1.1), it is that on the way to another node.

    Args:
        node: SLURM's name of this node.
        other: That of another node of the step, if there is one.

    Raises:
        LaunchError: the name of a node is not known here.

    """
    holders = {**_ipv4_holders(), **_ipv6_holders()}
    own = address_of(node)
    if ipaddress.ip_address(own).is_loopback and other is not None:
        own = _source(address_of(other))
    return holders.get(ipaddress.ip_address(own))


def set_for_nccl(environment: Mapping[str, str]) -> set[str]:
    """Return the variables that NCCL's own files set; what is in the environment is before them."""
    own = environment.get("NCCL_CONF_FILE") or os.path.expanduser("~/.nccl.conf")
    names: set[str] = set()
    for path in (own, _NCCL_CONF):
        try:
            with open(path, encoding="utf-8", errors="replace") as stream:
                names |= {line.partition("=")[0].strip() for line in stream if "=" in line}
        except OSError:
            continue  # NCCL goes on without it too
    return names


def is_taken(port: int) -> bool:
    """Whether something listens on a port of this node; other refusals are not known here."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
        # A connection that was closed a moment ago is no hindrance.
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("", port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def free_port(first: int, last: int) -> int:
    """Return the first port from `first` on that is not taken; `first` where all are."""
    return next((port for port in range(first, last + 1) if not is_taken(port)), first)


def _source(address: str) -> str:
    """Return the address from which packets to an address go."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as trial:
        try:
            trial.connect((address, _DISCARD))
        except OSError as error:
            raise LaunchError(
                f"there is no way to {address}, another node of the job ({error.strerror}): tell "
                "an administrator"
            ) from error
        return str(trial.getsockname()[0])


def _ipv4_holders() -> dict[ipaddress.IPv4Address | ipaddress.IPv6Address, str]:
    """Return the interface of each IPv4 address."""
    entries = array.array("B", bytes(_ENTRY_BYTES * _MOST_ENTRIES))
    place, size = entries.buffer_info()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        answer = fcntl.ioctl(asked, _SIOCGIFCONF, struct.pack("iP", size, place))
    used = struct.unpack("iP", answer)[0]
    raw = entries.tobytes()[:used]
    found: dict[ipaddress.IPv4Address | ipaddress.IPv6Address, str] = {}
    for start in range(0, used, _ENTRY_BYTES):
        name = raw[start : start + 16].split(b"\0")[0].decode()
        # An alias (eth0:1) is the interface eth0.
        found[ipaddress.IPv4Address(raw[start + 20 : start + 24])] = name.partition(":")[0]
    return found


def _ipv6_holders() -> dict[ipaddress.IPv4Address | ipaddress.IPv6Address, str]:
    """Return the interface of each IPv6 address; none where the kernel has no IPv6."""
    try:
        with open(_INET6, encoding="ascii") as stream:
            lines = [line.split() for line in stream]
    except FileNotFoundError:
        return {}
    return {ipaddress.IPv6Address(bytes.fromhex(words[0])): words[5] for words in lines}
