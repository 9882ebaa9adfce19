#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Remove what a host has of one Ceph cluster, its data first of all."""

import glob
import os
import shutil

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.muster.slurm.plugins.module_utils.ceph_device import (
    LOOKED_AT,
    Device,
    Volume,
    note_path,
)
from ansible_collections.muster.slurm.plugins.module_utils.commands import output, run
from ansible_collections.muster.slurm.plugins.module_utils.refused_error import RefusedError

DOCUMENTATION = r"""
module: ceph_purge
short_description: Remove what a host has of one Ceph cluster
description:
  - Ends its daemons, empties those of the devices that are OSDs of the cluster, and removes its
    folders, its keys and its configuration. Packages stay.
  - Where cephadm runs the cluster, that is C(cephadm rm-cluster)'s work. Call it with O(stop) on
    all hosts before, or managers that still run bring daemons back.
  - For a playbook that has made sure that it is wanted.
options:
  fsid:
    description: The cluster.
    type: str
    required: true
  devices:
    description: The devices. Those that are not the cluster's are left alone.
    type: list
    elements: path
    required: true
  image:
    description: Image of a cluster that cephadm runs; left out the packages run it.
    type: str
    default: ""
  stop:
    description: Whether to end the daemons and do nothing else.
    type: bool
    default: false
author: [The Muster authors]
"""

EXAMPLES = r"""
- name: End the cluster
  muster.slurm.ceph_purge:
    fsid: 6f9a3c1e-0000-4000-8000-000000000001
    devices: [/dev/disk/by-id/nvme-A]
"""

CEPHADM_SECONDS = 600
UNITS = ("ceph-mds@*", "ceph-osd@*", "ceph-mgr@*", "ceph-mon@*")
STATE = (
    "/var/lib/ceph/m??/ceph-*",
    "/var/lib/ceph/osd/ceph-*",
    "/var/lib/ceph/bootstrap-osd/ceph.keyring",
    "/etc/systemd/system/ceph-m??@?*.service.d",
    "/etc/systemd/system/ceph-osd@?*.service.d",
    "/var/lib/muster/cephadm-bootstrap",
    # Who has the manager's key is root.
    "/var/lib/cephadm/.ssh/authorized_keys",
    "/etc/sudoers.d/50-cephadm",
    "/etc/ssh/sshd_config.d/50-cephadm.conf",
    "/etc/ceph/ceph.pub",
    "/etc/ceph/ceph.client.admin.keyring",
    # Last: an interrupted run identifies the rest by it.
    "/etc/ceph/ceph.conf",
)


class Purge:
    """Finds what has to be removed, and removes it."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.act = not module.check_mode
        self.lines: list[str] = []

    def units(self) -> None:
        """End the daemons."""
        # Those that are enabled and don't run are not listed unless they are loaded. No answer is no
        # empty list: what a daemon uses that may run is not removed.
        listed = output(["systemctl", "list-units", "--all", "--plain", "--no-legend", *UNITS])
        names = [line.split()[0] for line in listed.splitlines()]
        self.lines += [f"{name}: end it" for name in names]
        if names and self.act:
            output(["systemctl", "disable", "--now", *names])
            run(["systemctl", "reset-failed", *UNITS])

    def target(self) -> None:
        """End the daemons that cephadm runs."""
        target = f"ceph-{self.module.params['fsid']}.target"
        # `is-active` has no exit code of its own for a systemd that does not answer.
        state = output(["systemctl", "show", "--property=ActiveState", "--value", target])
        if state.strip() == "active":
            self.lines.append(f"{target}: end it")
            if self.act:
                output(["systemctl", "stop", target])

    def cluster(self) -> None:
        """Remove what cephadm has made."""
        params = self.module.params
        folder = f"/var/lib/ceph/{params['fsid']}"
        if os.path.isdir(folder):
            self.lines.append(f"{folder}: remove it, and the OSDs of its cluster")
            if self.act:
                words = ("rm-cluster", "--fsid", params["fsid"], "--force", "--zap-osds")
                limit = ["timeout", str(CEPHADM_SECONDS)]
                command = [*limit, "cephadm", "--image", params["image"], *words]
                output(command)
        left = [
            path for path in params["devices"] if self.act and Volume(path, params["fsid"]).is_ours
        ]
        if left:
            self.module.fail_json(
                msg=f"{left[0]} still holds an OSD of this cluster, which cephadm left: "
                f"`cephadm ceph-volume lvm zap --destroy {left[0]}`, then run again"
            )

    def device(self, path: str) -> None:
        """Empty one device if it is the cluster's."""
        device = Device(path, self.module.params["fsid"])
        if device.is_ours:
            self.lines.append(f"{path}: remove the OSD on it")
            if self.act and device.is_file:
                os.unlink(path)
            elif self.act:
                with open(path, "r+b") as stream:
                    stream.write(bytes(LOOKED_AT))
                    os.fsync(stream.fileno())
        self.remove(note_path(path))

    def all(self) -> None:
        """Remove everything."""
        self.units()
        if self.module.params["image"]:
            self.cluster()
        else:
            for path in self.module.params["devices"]:
                self.device(path)
        for pattern in STATE:
            self.remove(pattern)

    def remove(self, pattern: str) -> None:
        """Remove files and folders."""
        for path in sorted(glob.glob(pattern)):
            self.lines.append(f"{path}: remove it")
            if self.act and os.path.isdir(path):
                shutil.rmtree(path)
            elif self.act:
                os.unlink(path)


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "fsid": {"type": "str", "required": True},
            "devices": {"type": "list", "elements": "path", "required": True},
            "image": {"type": "str", "default": ""},
            "stop": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    purge = Purge(module)
    try:
        if module.params["stop"]:
            purge.target()
        else:
            purge.all()
        if purge.lines and purge.act:
            output(["systemctl", "daemon-reload"])
    except RefusedError as error:
        module.fail_json(msg=str(error))
    diff = {"before": "".join(f"{line}\n" for line in purge.lines), "after": ""}
    module.exit_json(changed=bool(purge.lines), diff=diff)


if __name__ == "__main__":
    main()
