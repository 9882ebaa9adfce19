#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Keep the NFS mounts of a host as systemd units, mounted with the wanted options."""

import re

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.muster.slurm.plugins.module_utils.mount_keeper import keep
from ansible_collections.muster.slurm.plugins.module_utils.mount_units import Mount, Protocol

DOCUMENTATION = r"""
module: nfs_mounts
short_description: All NFS mounts of a host, as systemd units
description:
  - Writes a mount unit per folder, so that a daemon with C(RequiresMountsFor=) waits for it, enables
    it and mounts it.
  - Learns what is mounted from the kernel's table alone. No path on a server is looked at, since
    that waits for as long as the server is away.
  - NFS takes most options at the mount only. A folder whose options have changed is unmounted and
    mounted again if nobody uses it. If somebody does it stays as it is and the task says so; a
    later run does it, or the next boot.
  - A unit of this module that is no longer wanted is removed, in the same way.
options:
  mounts:
    description: The mounts.
    type: list
    elements: dict
    required: true
    suboptions:
      source: {type: str, required: true, description: "Server and folder, C(server:/folder)."}
      path: {type: path, required: true, description: Where it is mounted.}
      type: {type: str, choices: [nfs4], default: nfs4, description: Type of the file system.}
      options: {type: str, required: true, description: Options of mount(8).}
  automount:
    description: Whether folders are mounted when somebody enters them, so that no boot waits for them.
    type: bool
    default: false
  wait_seconds:
    description: How long to wait for a server that does not answer yet.
    type: int
    default: 10
author: [The Muster authors]
"""

EXAMPLES = r"""
- name: Mount the folders
  muster.slurm.nfs_mounts:
    mounts:
      - {source: "storage1:/home", path: /home, options: "rw,hard,vers=4.2"}
"""

RETURN = r"""
in_use:
  description: Folders that stay mounted as they are until nobody uses them.
  type: list
  elements: str
  returned: always
"""


def servers(mount: Mount) -> list[str]:
    """Return the host that serves `mount`."""
    return [mount["source"].rpartition(":/")[0].strip("[]")]


PROTOCOL = Protocol(
    mark="# Written by Muster's nfs_mounts: changes here are lost\n",
    kinds=("nfs", "nfs4"),
    shown=re.compile(r"rw|ro|hard|soft|noatime|nosuid|nodev|noexec|nocto|fsc|vers=.*|proto=.*"),
    # In minutes, 0 for one try; mount.nfs gives up in time for systemd to log its last message.
    waits=lambda seconds: f"retry={max(seconds // 60 - 1, 0)}",
    words=re.compile(r"^mount.*"),
    servers=servers,
    port=2049,
    away="start its NFS server",
    refused="does the server serve it to this host's address?",
)


def main() -> None:
    """Run the module."""
    options = {
        "source": {"type": "str", "required": True},
        "path": {"type": "path", "required": True},
        "type": {"type": "str", "choices": ["nfs4"], "default": "nfs4"},
        "options": {"type": "str", "required": True},
    }
    module = AnsibleModule(
        argument_spec={
            "mounts": {"type": "list", "elements": "dict", "required": True, "options": options},
            "automount": {"type": "bool", "default": False},
            "wait_seconds": {"type": "int", "default": 10},
        },
        supports_check_mode=True,
    )
    keep(module, PROTOCOL, module.params["mounts"])


if __name__ == "__main__":
    main()
