#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Make one OSD of each device, and keep existing ones."""

import contextlib
import json
import os
import pwd
import shutil
import uuid

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.muster.slurm.plugins.module_utils.ceph_command import Ceph, CephError
from ansible_collections.muster.slurm.plugins.module_utils.ceph_device import (
    Device,
    DeviceError,
    begun,
    note_path,
)
from ansible_collections.muster.slurm.plugins.module_utils.commands import run

DOCUMENTATION = r"""
module: ceph_osd
short_description: Make one OSD of each device
description:
  - A device with an OSD of this cluster is kept, and its folder below C(/var/lib/ceph/osd) restored
    from the device's label where it is missing, as after a reinstallation of the host.
  - A blank one becomes an OSD. One that holds anything else is refused, and never wiped.
  - An OSD whose making was interrupted is completed under its own id.
  - Needs the keyring of C(client.bootstrap-osd) at its usual place.
options:
  fsid:
    description: The cluster.
    type: str
    required: true
  devices:
    description: Devices. A path outside C(/dev) is a sparse file, which is made.
    type: list
    elements: path
    required: true
  file_gib:
    description: Size of such a file.
    type: int
    required: true
author: [The Muster authors]
"""

EXAMPLES = r"""
- name: Make the OSDs
  muster.slurm.ceph_osd:
    fsid: 6f9a3c1e-0000-4000-8000-000000000001
    devices: [/dev/disk/by-id/nvme-A]
    file_gib: 20
"""

RETURN = r"""
ids:
  description: The OSDs on the devices, in their order; in check mode those that are there.
  type: list
  elements: int
  returned: always
"""

FOLDERS = "/var/lib/ceph/osd"
BOOTSTRAP = "/var/lib/ceph/bootstrap-osd/ceph.keyring"
GIB = 2**30


def write_secret(path: str, text: str) -> None:
    """Write a file for root alone, whole or not at all."""
    with open(os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    os.rename(f"{path}.new", path)


def own(path: str) -> None:
    """Give a file, or a link and not what it leads to, to the user of the daemons."""
    ceph = pwd.getpwnam("ceph")
    os.chown(path, ceph.pw_uid, ceph.pw_gid, follow_symlinks=False)


class Osds:
    """The OSDs of this host."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.fsid: str = module.params["fsid"]
        self.file_bytes: int = module.params["file_gib"] * GIB
        self.ceph = Ceph("client.bootstrap-osd", BOOTSTRAP)
        self.lines: list[str] = []

    def run(self, *command: str, data: str | None = None) -> str:
        """Run a command that must succeed; return what it prints."""
        code, out, err = run(list(command), data=data)
        if code != 0:
            raise DeviceError(f"{command[0]}: {err.strip()[-2000:]}")
        return out

    def provide(self, path: str) -> int | None:
        """Return the id of the OSD on the device `path`, None where check mode made none."""
        device = Device(path, self.fsid)
        device.refuse()
        if device.osd is None:
            self.lines.append(f"{path}: make an OSD")
            if self.module.check_mode:
                return None
            self.make(device)
            device = Device(path, self.fsid)
        self.prime(device)
        # Last, so that an interrupted run repeats this.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(note_path(path))
        return device.osd

    def make(self, device: Device) -> None:
        """Make an OSD of a blank device."""
        note = begun(device.path)
        if not note:
            key = self.run("ceph-authtool", "--gen-print-key").strip()
            note = {"uuid": str(uuid.uuid4()), "key": key}
            write_secret(note_path(device.path), json.dumps(note))
        secrets = json.dumps({"cephx_secret": note["key"]})
        # Asked again with the same UUID and key it answers with the same id.
        number = int(self.ceph.run("osd", "new", note["uuid"], "-i", "-", data=secrets))
        if device.is_file and not os.path.exists(device.path):
            os.makedirs(os.path.dirname(device.path), exist_ok=True)
            with open(os.open(device.path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as stream:
                stream.truncate(self.file_bytes)
        shutil.chown(device.path, "ceph", "ceph")
        folder = f"{FOLDERS}/ceph-{number}"
        # What an interrupted run left: an OSD of this id is on no other device, or it was in use.
        shutil.rmtree(folder, ignore_errors=True)
        self.link(folder, device.path)
        self.run(
            *("ceph-osd", "--mkfs", "--id", str(number), "--osd-uuid", note["uuid"]),
            # It writes the key into the label, from which the folder can be restored.
            *("--keyfile", "-", "--setuser", "ceph", "--setgroup", "ceph"),
            data=note["key"],
        )

    def link(self, folder: str, path: str) -> None:
        """Make an OSD's folder with the link to its device."""
        os.makedirs(folder, mode=0o750, exist_ok=True)
        shutil.chown(folder, "ceph", "ceph")
        os.symlink(path, f"{folder}/block.new")
        os.rename(f"{folder}/block.new", f"{folder}/block")
        own(f"{folder}/block")

    def prime(self, device: Device) -> None:
        """Make sure that the OSD's folder is complete and links to the device."""
        folder = f"{FOLDERS}/ceph-{device.osd}"
        right = os.path.islink(f"{folder}/block") and os.readlink(f"{folder}/block") == device.path
        whole = all(os.path.exists(f"{folder}/{name}") for name in ("keyring", "whoami", "fsid"))
        if right and whole:
            return
        if f"{device.path}: make an OSD" not in self.lines:
            self.lines.append(f"{folder}: fill it from the label of {device.path}")
        if self.module.check_mode:
            return
        if not right:
            self.link(folder, device.path)
        shutil.chown(device.path, "ceph", "ceph")
        self.run(
            *("ceph-bluestore-tool", "prime-osd-dir", "--dev", device.path, "--path", folder),
            *("--no-mon-config",),
        )
        for name in os.listdir(folder):
            own(f"{folder}/{name}")


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "fsid": {"type": "str", "required": True},
            "devices": {"type": "list", "elements": "path", "required": True},
            "file_gib": {"type": "int", "required": True},
        },
        supports_check_mode=True,
    )
    osds = Osds(module)
    try:
        ids = [osds.provide(path) for path in module.params["devices"]]
    except (CephError, DeviceError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(
        changed=bool(osds.lines),
        ids=[number for number in ids if number is not None],
        diff={"before": "", "after": "".join(f"{line}\n" for line in osds.lines)},
    )


if __name__ == "__main__":
    main()
