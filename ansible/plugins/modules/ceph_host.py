#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Report what a host has of a Ceph cluster, or why it can't be part of it. Changes nothing."""

import glob
import os
import re
from collections.abc import Iterator

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.muster.slurm.plugins.module_utils.ceph_device import (
    Device,
    DeviceError,
    Volume,
)
from ansible_collections.muster.slurm.plugins.module_utils.text_files import read_text

DOCUMENTATION = r"""
module: ceph_host
short_description: Refuse a host that belongs to another Ceph cluster, or a device that is not empty
description:
  - Comes before anything is changed, on all storage hosts, so that a cluster is not half made.
  - Ends with one sentence where C(/etc/ceph/ceph.conf) or an OSD's folder is another cluster's, or
    where a device holds anything but an OSD of this cluster.
options:
  fsid:
    description: The cluster.
    type: str
    required: true
  name:
    description: Name that this host's monitor would have.
    type: str
    required: true
  devices:
    description: Devices, or files that stand for them, which are to be OSDs.
    type: list
    elements: path
    required: true
  cephadm:
    description: Whether cephadm runs the cluster, and not the distribution's packages.
    type: bool
    default: false
author: [The Muster authors]
"""

EXAMPLES = r"""
- name: Look at the host
  muster.slurm.ceph_host:
    fsid: "{{ ceph_cluster_fsid }}"
    name: "{{ inventory_hostname }}"
    devices: "{{ ceph_cluster_devices }}"
"""

RETURN = r"""
monitor:
  description: Whether there is the store of a monitor.
  type: bool
  returned: always
osds:
  description: The OSDs of this cluster that are on the devices.
  type: list
  elements: int
  returned: always
"""

CONF = "/etc/ceph/ceph.conf"
STATE = "/var/lib/ceph"
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# The daemons' units see nothing of it (ProtectHome, PrivateTmp).
UNSEEN = ("/home/", "/root/", "/run/user/", "/tmp/", "/var/tmp/")  # noqa: S108


def refusal_of_conf(text: str | None, fsid: str) -> str:
    """Return why a host with this ceph.conf (or None) is not taken; empty if it is."""
    if text is None:
        return ""
    match = re.search(r"^\s*fsid\s*=\s*(\S+)", text, re.MULTILINE)
    if match and match[1].lower() == fsid:
        return ""
    whose = f"of the cluster {match[1]}" if match else "without fsid"
    return (
        f"{CONF} on this host is {whose}, and this is cluster {fsid}, so nothing is touched; take "
        "the host out of group storage, or remove that cluster from it first"
    )


def folder_of_monitor(fsid: str, name: str, cephadm: bool) -> str:
    """Return where the store of this host's monitor is, if it has one."""
    return f"{STATE}/{fsid}/mon.{name}" if cephadm else f"{STATE}/mon/ceph-{name}"


def refusals_of_state(fsid: str, cephadm: bool) -> Iterator[str]:
    """Yield each conflict in the folders of daemons."""
    for path in sorted(glob.glob(f"{STATE}/osd/*/ceph_fsid")):
        other = (read_text(path) or "").strip()
        if other != fsid:
            yield f"{os.path.dirname(path)} is an OSD of cluster {other}; remove it first"
    # cephadm has a folder per cluster.
    for path in sorted(glob.glob(f"{STATE}/*-*-*-*-*")):
        other = os.path.basename(path)
        if UUID.fullmatch(other) and other != fsid:
            yield f"{path} is of the cluster {other}, and this is cluster {fsid}; remove it first"
    kinds = ("mon", "mgr", "osd", "mds")
    packaged = [path for kind in kinds for path in glob.glob(f"{STATE}/{kind}/ceph-*")]
    if cephadm and packaged:
        yield (
            f"{sorted(packaged)[0]}: the distribution's packages run this cluster here, and nothing "
            "is touched; take `image` out of storage.ceph, or end the cluster with "
            "ansible/ceph-purge.yml before cephadm makes a new one"
        )
    if not cephadm and os.path.isdir(f"{STATE}/{fsid}"):
        yield (
            f"{STATE}/{fsid}: cephadm runs this cluster here, and nothing is touched; write its "
            "`image` into storage.ceph again, or end the cluster with ansible/ceph-purge.yml before"
        )


def refusals(fsid: str, devices: list[str], cephadm: bool = False) -> Iterator[str]:
    """Yield each reason why this host is refused."""
    conf = refusal_of_conf(read_text(CONF), fsid)
    if conf:
        yield conf
    yield from refusals_of_state(fsid, cephadm)
    kind = Volume if cephadm else Device
    real = [os.path.realpath(path) for path in devices]
    twice = sorted(path for path in devices if real.count(os.path.realpath(path)) > 1)
    if twice:
        yield f"{' and '.join(twice)} are one and the same device; name it once"
    for path in devices:
        if path.startswith(UNSEEN):
            yield f"{path}: Ceph's daemons can't see this folder; name another, as in /srv"
        try:
            kind(path, fsid).refuse()
        except DeviceError as error:
            yield str(error)


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "fsid": {"type": "str", "required": True},
            "name": {"type": "str", "required": True},
            "devices": {"type": "list", "elements": "path", "required": True},
            "cephadm": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    fsid: str = module.params["fsid"]
    devices: list[str] = module.params["devices"]
    name: str = module.params["name"]
    cephadm: bool = module.params["cephadm"]
    reasons = list(refusals(fsid, devices, cephadm))
    if reasons:
        module.fail_json(msg="; ".join(reasons))
    kind = Volume if cephadm else Device
    ids = [kind(path, fsid).osd for path in devices]
    module.exit_json(
        changed=False,
        monitor=os.path.isdir(folder_of_monitor(fsid, name, cephadm)),
        osds=[number for number in ids if number is not None],
    )


if __name__ == "__main__":
    main()
