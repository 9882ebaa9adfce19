#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Check that a host has room to work in, then set its name and its lines of /etc/hosts."""

import ipaddress
import os
import socket
import tempfile
from typing import TypedDict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.muster.slurm.plugins.module_utils.text_files import read_text

DOCUMENTATION = r"""
module: host_basics
short_description: Free space, host name and /etc/hosts in one run
description:
  - Refuses a host whose file systems are nearly full, before any of its files is touched.
  - Sets the host name, of the running kernel and in /etc/hostname.
  - Keeps a block in /etc/hosts with the hosts of the cluster. Lines that others wrote stay, but for
    names of the cluster that they map to another address. The worst is the own name on a loopback
    address, which Debian's installer writes; slurmctld then announces itself as 127.0.1.1.
options:
  hostname:
    description: Name of this host.
    type: str
    required: true
  hosts:
    description: Hosts of the cluster, C(name) and C(address) each. Without any, the block is removed.
    type: list
    elements: dict
    required: true
    suboptions:
      name: {type: str, required: true, description: Name of the host.}
      address: {type: str, required: true, description: IPv4 or IPv6 address.}
  minimum_free_mib:
    description: What must be free in each of / and /var and /tmp, in MiB.
    type: int
    required: true
author: [The Muster authors]
"""

EXAMPLES = r"""
- name: Set host name and /etc/hosts
  muster.slurm.host_basics:
    hostname: lab-access
    hosts: [{name: lab-access, address: 192.0.2.10}, {name: lab-gpu-01, address: 192.0.2.21}]
    minimum_free_mib: 512
"""

HOSTS = "/etc/hosts"
HOSTNAME = "/etc/hostname"
BEGIN = "# BEGIN Muster: the hosts of the cluster"
END = "# END Muster"
# What a machine without any /etc/hosts gets besides the block.
LOCALHOST = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"


class Host(TypedDict):
    """A host of the cluster."""

    name: str
    address: str


def without_block(text: str) -> list[str]:
    """Return the lines of `text` outside the block that this module wrote."""
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        if line == BEGIN:
            inside = True
        elif line == END:
            inside = False
        elif not inside:
            lines.append(line)
    return lines


def without_wrong_names(line: str, own_name: str, addresses: dict[str, str]) -> str | None:
    """Return `line` without names that would send the cluster elsewhere; None if no name is left.

    Args:
        line: A line of /etc/hosts.
        own_name: Name of this host; it must be no name of a loopback address, nor with a domain.
        addresses: Name -> address of the cluster's hosts.

    """
    content, hash_sign, comment = line.partition("#")
    words = content.split()
    if len(words) < 2:
        return line
    try:
        address = ipaddress.ip_address(words[0].partition("%")[0])
    except ValueError:
        return line

    def is_wrong(name: str) -> bool:
        if address.is_loopback and (name == own_name or name.startswith(own_name + ".")):
            return True
        return name in addresses and ipaddress.ip_address(addresses[name]) != address

    names = [name for name in words[1:] if not is_wrong(name)]
    if names == words[1:]:
        return line
    if not names:
        return None
    return f"{words[0]}\t{' '.join(names)}{' ' + hash_sign + comment if hash_sign else ''}"


def wanted_hosts(text: str, own_name: str, hosts: list[tuple[str, str]]) -> str:
    """Return the text that /etc/hosts should have, given the one it has.

    Args:
        text: What is there; empty if there is no file.
        own_name: Name of this host. `localhost` names are never taken from a line.
        hosts: (name, address) of each host of the cluster.

    """
    addresses = dict(hosts)
    kept = (
        without_wrong_names(line, own_name, addresses) for line in without_block(text or LOCALHOST)
    )
    lines = [line for line in kept if line is not None]
    if hosts:
        lines += [BEGIN, *(f"{address}\t{name}" for name, address in hosts), END]
    return "\n".join(lines) + "\n"


def crowded(free_mib: dict[str, int], minimum_mib: int) -> str | None:
    """Return the sentence about the file systems with less than `minimum_mib` free, or None.

    Args:
        free_mib: Path -> MiB free in its file system.
        minimum_mib: MiB wanted in each.

    """
    short = [f"{path} has {free} MiB" for path, free in free_mib.items() if free < minimum_mib]
    if not short:
        return None
    return (
        f"disk nearly full: {', '.join(short)} free, wanted are {minimum_mib} MiB; make room "
        "(du -xh / | sort -h | tail; apt-get clean; journalctl --vacuum-size=200M) and run again"
    )


def free_mib(path: str) -> int:
    """Return what is free for root in the file system of `path`, in MiB."""
    state = os.statvfs(path)
    return state.f_bfree * state.f_frsize // 2**20


def write(module: AnsibleModule, path: str, text: str) -> None:
    """Replace the file at `path`, keeping its owner and mode."""
    handle, temporary = tempfile.mkstemp(prefix=".muster-", dir=os.path.dirname(path))
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write(text)
    os.chmod(temporary, 0o644)
    # A file that is a mount point can't be replaced: it is then written in place.
    module.atomic_move(temporary, path, unsafe_writes=True)


def main() -> None:
    """Run the module."""
    text = {"type": "str", "required": True}
    module = AnsibleModule(
        argument_spec={
            "hostname": text,
            "hosts": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {"name": text, "address": text},
            },
            "minimum_free_mib": {"type": "int", "required": True},
        },
        supports_check_mode=True,
    )
    problem = crowded(
        {path: free_mib(path) for path in ("/", "/var", "/tmp")},  # noqa: S108
        module.params["minimum_free_mib"],
    )
    if problem:
        module.fail_json(msg=problem)

    own_name: str = module.params["hostname"]
    asked: list[Host] = module.params["hosts"]
    hosts = [(host["name"], host["address"]) for host in asked]
    for name, address in hosts:
        try:
            ipaddress.ip_address(address)
        except ValueError:
            module.fail_json(
                msg=f"{name}: {address} is no IP address, so it can't be in {HOSTS}; "
                "give the number, or leave the host out if DNS knows it"
            )

    texts = {
        HOSTNAME: own_name + "\n",
        HOSTS: wanted_hosts(read_text(HOSTS) or "", own_name, hosts),
    }
    diffs = []
    for path, after in texts.items():
        before = read_text(path) or ""
        # Some installers leave /etc/hostname without a newline at its end.
        if before == after or (path == HOSTNAME and before.strip() == own_name):
            continue
        headers = {"before_header": path, "after_header": path}
        diffs.append({**headers, "before": before, "after": after})
        if not module.check_mode:
            write(module, path, after)
    running = socket.gethostname()
    if running != own_name:
        header = "host name of the running kernel"
        diffs.append(
            {
                "before_header": header,
                "after_header": header,
                "before": running + "\n",
                "after": own_name + "\n",
            }
        )
        if not module.check_mode:
            socket.sethostname(own_name)
    module.exit_json(changed=bool(diffs), diff=diffs)


if __name__ == "__main__":
    main()
