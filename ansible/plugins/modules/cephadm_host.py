#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Refuse a host whose name or clock would leave a cluster of cephadm half made. Changes nothing."""

import shutil
import socket
import time
from collections.abc import Iterator

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.muster.slurm.plugins.module_utils.commands import run

DOCUMENTATION = r"""
module: cephadm_host
short_description: Refuse a host whose name or clock cephadm and Ceph can't work with
description:
  - The host must go by the name under which cephadm is to know it; each host's name must lead from
    here to its address, and to no other; and chrony must follow a clock. Monitors whose clocks are
    apart by 0.05 s warn, and lose each other's leases when it is more.
options:
  name:
    description: Name of this host.
    type: str
    required: true
  addresses:
    description: IP address of each host of the cluster, by the host's name.
    type: dict
    required: true
  clock_seconds:
    description: How long chrony, which may just have been started, may take to find a clock.
    type: int
    default: 60
author: [The Muster authors]
"""

EXAMPLES = r"""
- name: Refuse a host that cephadm can't use
  muster.slurm.cephadm_host:
    name: storage1
    addresses: {storage1: 192.0.2.41}
"""

# What `chronyc -c tracking` says last: chronyc(1).
FOLLOWS_NONE = "Not synchronised"


def refusals_of_names(name: str, addresses: dict[str, str]) -> Iterator[str]:
    """Yield what is wrong with the names."""
    own = socket.gethostname()
    if own != name:
        yield f"this host calls itself {own}; set its name to {name}, as the inventory does"
    for host, address in addresses.items():
        try:
            resolved = {str(entry[4][0]) for entry in socket.getaddrinfo(host, None)}
        except OSError as error:
            yield f"{host} has no address here ({error}); write it into /etc/hosts"
            continue
        others = sorted(resolved - {address})
        if others:
            # For example a name on the line of 127.0.1.1, where Debian's installer puts it.
            yield (
                f"{host} leads to {', '.join(others)} here, and the inventory says {address}; "
                "fix /etc/hosts"
            )


def refusal_of_clock(module: AnsibleModule, seconds: int) -> str:
    """Return what is wrong with the clock; empty if nothing is."""
    if module.check_mode and shutil.which("chronyc") is None:
        # In check mode on a fresh host chrony is not there yet.
        return ""
    deadline = time.monotonic() + seconds
    while True:
        code, out, err = run(["chronyc", "-c", "tracking"])
        if code == 0 and not out.strip().endswith(FOLLOWS_NONE):
            return ""
        if time.monotonic() > deadline:
            said = "it follows no clock" if code == 0 else (err or out).strip()
            return (
                f"chrony is not in time after {seconds} s ({said}); name a server that it reaches "
                "in /etc/chrony/conf.d, `chronyc sources` shows those it has"
            )
        time.sleep(2)


def main() -> None:
    """Run the module."""
    text = {"type": "str", "required": True}
    module = AnsibleModule(
        argument_spec={
            "name": text,
            "addresses": {"type": "dict", "required": True},
            "clock_seconds": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    given = module.params
    refusals = [
        *refusals_of_names(given["name"], given["addresses"]),
        refusal_of_clock(module, given["clock_seconds"]),
    ]
    if any(refusals):
        module.fail_json(msg="; ".join(reason for reason in refusals if reason))
    module.exit_json(changed=False)


if __name__ == "__main__":
    main()
