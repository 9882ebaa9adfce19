#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Say what a host holds of a Ceph cluster, or why it can't be a part of it. Changes nothing."""

import glob
import os
import re

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.ceph_device import Device, DeviceError

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
    description: Name by which this host's monitor would go.
    type: str
    required: true
  devices:
    description: Devices, or files that stand for them, which are to be OSDs.
    type: list
    elements: path
    required: true
author: [The Muster authors]
"""

EXAMPLES = r"""
- name: Look at the host
  ceph_host:
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
STORES = "/var/lib/ceph/mon"
OSD_FOLDERS = "/var/lib/ceph/osd"
# The daemons' units see nothing of it (ProtectHome, PrivateTmp).
UNSEEN = ("/home/", "/root/", "/run/user/", "/tmp/", "/var/tmp/")  # noqa: S108


def text_of(path):
    """Return the text of a file, or None."""
    try:
        with open(path, encoding="utf-8") as stream:
            return stream.read()
    except FileNotFoundError:
        return None


def refusal_of_conf(text, fsid):
    """Return why a host with this ceph.conf (or None) is not taken; empty if it is."""
    if text is None:
        return ""
    found = re.search(r"^\s*fsid\s*=\s*(\S+)", text, re.MULTILINE)
    if found and found[1].lower() == fsid:
        return ""
    whose = f"of the cluster {found[1]}" if found else "without fsid"
    return (
        f"{CONF} on this host is {whose}, and this is cluster {fsid}, so nothing is touched; take "
        "the host out of group storage, or remove that cluster from it first"
    )


def refusals(module, fsid, devices):
    """Yield each reason why this host is not taken."""
    conf = refusal_of_conf(text_of(CONF), fsid)
    if conf:
        yield conf
    for path in sorted(glob.glob(f"{OSD_FOLDERS}/*/ceph_fsid")):
        other = (text_of(path) or "").strip()
        if other != fsid:
            yield f"{os.path.dirname(path)} is an OSD of cluster {other}; remove it first"
    real = [os.path.realpath(path) for path in devices]
    twice = sorted(path for path in devices if real.count(os.path.realpath(path)) > 1)
    if twice:
        yield f"{' and '.join(twice)} are one and the same device; name it once"
    for path in devices:
        if path.startswith(UNSEEN):
            yield f"{path}: Ceph's daemons can't see this folder; name another, as in /srv"
        try:
            Device(module, path, fsid).refuse()
        except DeviceError as error:
            yield str(error)


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "fsid": {"type": "str", "required": True},
            "name": {"type": "str", "required": True},
            "devices": {"type": "list", "elements": "path", "required": True},
        },
        supports_check_mode=True,
    )
    fsid, devices = module.params["fsid"], module.params["devices"]
    found = list(refusals(module, fsid, devices))
    if found:
        module.fail_json(msg="; ".join(found))
    ids = [Device(module, path, fsid).osd for path in devices]
    module.exit_json(
        changed=False,
        monitor=os.path.isdir(f"{STORES}/ceph-{module.params['name']}"),
        osds=[number for number in ids if number is not None],
    )


if __name__ == "__main__":
    main()
