#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Keep the CephFS mounts of a host as systemd units, by the kernel's client or by ceph-fuse."""

import re
from typing import TypedDict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.muster.slurm.plugins.module_utils.mount_keeper import keep
from ansible_collections.muster.slurm.plugins.module_utils.mount_units import Mount, Protocol

DOCUMENTATION = r"""
module: ceph_mounts
short_description: All CephFS mounts of a host, as systemd units
description:
  - Does for CephFS what M(muster.slurm.nfs_mounts) does for NFS, on the same terms.
options:
  monitors:
    description: Addresses of the monitors, of which one has to answer.
    type: list
    elements: str
    required: true
  filesystem: {type: str, required: true, description: Name of the file system.}
  user: {type: str, required: true, description: "The client, without C(client.)."}
  driver:
    description: What mounts.
    type: str
    choices: [kernel, fuse]
    required: true
  key_file: {type: path, required: true, description: File with the key alone, for the kernel.}
  config: {type: path, required: true, description: A ceph.conf; it names the keyring for ceph-fuse.}
  mounts:
    description: The mounts.
    type: list
    elements: dict
    required: true
    suboptions:
      export: {type: str, required: true, description: Folder in the file system.}
      path: {type: path, required: true, description: Where it is mounted.}
      options: {type: str, required: true, description: Options of mount(8).}
  automount:
    description: Whether folders are mounted when somebody enters them, so that no boot waits for them.
    type: bool
    default: false
  wait_seconds:
    description: How long to wait for monitors that do not answer yet.
    type: int
    default: 10
author: [The Muster authors]
"""

EXAMPLES = r"""
- name: Mount the folders
  muster.slurm.ceph_mounts:
    monitors: [192.0.2.41]
    filesystem: cephfs
    user: muster-compute
    driver: kernel
    key_file: /etc/ceph/muster.secret
    config: /etc/ceph/muster.conf
    mounts:
      - {export: /home, path: /home, options: "rw,noatime,nosuid,nodev"}
"""

RETURN = r"""
in_use:
  description: Folders that stay mounted as they are until nobody uses them.
  type: list
  elements: str
  returned: always
"""

# Of the protocol's second version, msgr2. Helper and kernel take 6789, of the first, where none is
# said, whatever ms_mode is: mount.ceph(8).
PORT = 3300

# What both drivers have; the kernel's other options are its own.
FLAGS = r"rw|ro|nosuid|nodev|noexec|noatime"


class Wanted(TypedDict):
    """A wanted mount."""

    export: str
    path: str
    options: str


class Params(TypedDict):
    """What the module is asked for."""

    monitors: list[str]
    filesystem: str
    user: str
    driver: str
    key_file: str
    config: str
    mounts: list[Wanted]


def by_kernel(given: Params, mount: Wanted) -> Mount:
    """Return the mount as mount.ceph(8) takes it.

    By the monitors' addresses, as all releases of it do; the way with `name@fsid.fs=/path` came
    with 17, and Debian 12 has 16.
    """
    addresses = (f"[{host}]" if ":" in host else host for host in given["monitors"])
    words = [
        mount["options"],
        f"name={given['user']}",
        f"fs={given['filesystem']}",
        f"secretfile={given['key_file']}",
        # Otherwise a file in /etc/ceph may give the fsid of another cluster.
        f"conf={given['config']}",
        # Checksums without encryption where the monitors allow it.
        "ms_mode=prefer-crc",
        # An evicted client reconnects by itself. Without this the folder is unusable until
        # somebody unmounts it.
        "recover_session=clean",
        "_netdev",
    ]
    return {
        "source": ",".join(f"{address}:{PORT}" for address in addresses) + f":{mount['export']}",
        "path": mount["path"],
        "type": "ceph",
        "options": ",".join(words),
    }


def by_fuse(given: Params, mount: Wanted) -> Mount:
    """Return the mount as mount.fuse.ceph(8) takes it; the rest is in the configuration."""
    words = [
        mount["options"],
        f"ceph.conf={given['config']}",
        f"ceph.id={given['user']}",
        f"ceph.client_mountpoint={mount['export']}",
        "_netdev",
    ]
    return {
        # The kernel's table calls all of them so.
        "source": "ceph-fuse",
        "path": mount["path"],
        "type": "fuse.ceph",
        "options": ",".join(words),
    }


def protocol(given: Params) -> Protocol:
    """Return how the host's driver mounts, waits and fails."""
    kernel = given["driver"] == "kernel"
    return Protocol(
        mark="# Written by Muster's ceph_mounts: changes here are lost\n",
        kinds=("ceph",) if kernel else ("fuse.ceph-fuse",),
        shown=re.compile(
            rf"{FLAGS}|fsc|name=.*|ms_mode=.*|recover_session=.*" if kernel else FLAGS
        ),
        # It bounds unmounting too, so a host that goes down while Ceph is away waits for it once
        # more: half of what NFS has. ceph-fuse has 300 s by default.
        waits=lambda seconds: f"{'' if kernel else 'ceph.client_'}mount_timeout={seconds // 2}",
        # The last two: ceph-fuse with a key that is not the client's.
        words=re.compile(
            r"mount (error|failed)\b.*|handle_auth_bad_method|failed to fetch mon config"
        ),
        servers=lambda _mount: given["monitors"],
        port=PORT,
        away="start the monitors (ceph-mon.target there)",
        refused=f"is the key that of client.{given['user']}, and may it use this folder? "
        f"`ceph auth get client.{given['user']}` on a storage host says so",
    )


def main() -> None:
    """Run the module."""
    text = {"type": "str", "required": True}
    path = {"type": "path", "required": True}
    mount = {"export": text, "path": path, "options": text}
    module = AnsibleModule(
        argument_spec={
            "monitors": {"type": "list", "elements": "str", "required": True},
            "filesystem": text,
            "user": text,
            "driver": {"type": "str", "choices": ["kernel", "fuse"], "required": True},
            "key_file": path,
            "config": path,
            "mounts": {"type": "list", "elements": "dict", "required": True, "options": mount},
            "automount": {"type": "bool", "default": False},
            "wait_seconds": {"type": "int", "default": 10},
        },
        supports_check_mode=True,
    )
    given: Params = module.params
    way = by_kernel if given["driver"] == "kernel" else by_fuse
    keep(module, protocol(given), [way(given, entry) for entry in given["mounts"]])


if __name__ == "__main__":
    main()
