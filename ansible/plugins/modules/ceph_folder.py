#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Make folders of a CephFS with their quotas, without mounting it."""

import os
import time
from typing import TypedDict

from ansible.module_utils.basic import AnsibleModule

try:
    import cephfs
except ImportError:
    cephfs = None  # type: ignore[assignment]

DOCUMENTATION = r"""
module: ceph_folder
short_description: Make folders of a CephFS with their quotas
description:
  - Accesses the file system as C(client.admin) by libcephfs (C(python3-cephfs)), with no mount.
  - The mode is set when a folder is made; that of an existing folder is left to its users. The
    quota is always set.
options:
  filesystem:
    description: The file system.
    type: str
    required: true
  folders:
    description: The folders.
    type: list
    elements: dict
    required: true
    suboptions:
      path:
        description: Path inside the file system.
        type: str
        required: true
      mode:
        description: Octal mode as text.
        type: str
        default: "0755"
      quota_gib:
        description: How much it may hold; left out as much as there is.
        type: int
      quota_files:
        description: How many files and folders it may have; left out as many as there is room for.
        type: int
author: [The Muster authors]
"""

EXAMPLES = r"""
- name: Make the folders
  muster.slurm.ceph_folder:
    filesystem: cephfs
    folders: [{path: /data, mode: "0755", quota_gib: 500}]
"""

QUOTA = "ceph.quota.max_bytes"
QUOTA_FILES = "ceph.quota.max_files"
GIB = 2**30
MOUNT_SECONDS = 60
"""How long a metadata server may take to answer."""


class Folder(TypedDict):
    """A wanted folder."""

    path: str
    mode: str
    quota_gib: int | None
    quota_files: int | None


class Tree:
    """The folders of a mounted file system; `files` is a LibCephFS, or what answers like it."""

    def __init__(self, files: "cephfs.LibCephFS", act: bool) -> None:
        self.files = files
        self.act = act
        self.before = self.after = ""

    def change(self, path: str, before: str, after: str) -> bool:
        """Note a change; return whether to make it."""
        self.before += f"{path}: {before}\n"
        self.after += f"{path}: {after}\n"
        return self.act

    def is_there(self, path: str) -> bool:
        """Whether there is a folder."""
        try:
            self.files.stat(path)
        except cephfs.ObjectNotFound:
            return False
        return True

    def quota(self, path: str, name: str) -> int:
        """Return the quota of a folder by its attribute; 0 is none."""
        try:
            return int(self.files.getxattr(path, name))
        # No attribute is no quota: doc/cephfs/quota.rst.
        except cephfs.NoData:
            return 0

    def provide(
        self, path: str, mode: str, quota_gib: int | None, quota_files: int | None = None
    ) -> None:
        """Make a folder where it is missing, and set its quotas."""
        there = self.is_there(path)
        if not there and self.change(path, "absent", f"folder, mode {mode}"):
            parent = os.path.dirname(path)
            if not self.is_there(parent):
                self.files.mkdirs(parent, 0o755)
            self.files.mkdir(path, int(mode, 8))
            # mkdir takes the umask into account.
            self.files.chmod(path, int(mode, 8))
        quotas = ((QUOTA, (quota_gib or 0) * GIB, ""), (QUOTA_FILES, quota_files or 0, " files"))
        for name, wanted, unit in quotas:
            quota = self.quota(path, name) if there else 0
            before, after = (f"quota {number}{unit}" for number in (quota, wanted))
            if quota != wanted and self.change(path, before, after):
                self.files.setxattr(path, name, str(wanted).encode(), 0)


def mounted(filesystem: str) -> "cephfs.LibCephFS":
    """Return the file system, mounted in this process."""
    files = cephfs.LibCephFS(conffile="/etc/ceph/ceph.conf", auth_id="admin")
    files.conf_set("client_mount_timeout", str(MOUNT_SECONDS))
    files.init()
    deadline = time.monotonic() + MOUNT_SECONDS
    while True:
        try:
            files.mount(filesystem_name=filesystem.encode())
        except cephfs.Error:
            # Right after it is made the monitors may know of no active metadata server.
            if time.monotonic() > deadline:
                raise
            time.sleep(1)
        else:
            return files


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "filesystem": {"type": "str", "required": True},
            "folders": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "path": {"type": "str", "required": True},
                    "mode": {"type": "str", "default": "0755"},
                    "quota_gib": {"type": "int"},
                    "quota_files": {"type": "int"},
                },
            },
        },
        supports_check_mode=True,
    )
    folders: list[Folder] = module.params["folders"]
    name: str = module.params["filesystem"]
    fresh = cephfs is None or not os.path.exists("/etc/ceph/ceph.conf")
    if fresh and module.check_mode:
        # In check mode on a fresh host there is no cluster yet: everything will be made.
        after = "".join(f"{folder['path']}: folder, mode {folder['mode']}\n" for folder in folders)
        module.exit_json(changed=bool(folders), diff={"before": "", "after": after})
    if cephfs is None:
        module.fail_json(msg="this needs the package python3-cephfs; install it and run again")
    try:
        files = mounted(name)
    except cephfs.Error as error:
        module.fail_json(
            msg=f"file system {name} can't be reached: {error}; see `ceph fs status {name}`"
        )
    tree = Tree(files, act=not module.check_mode)
    try:
        for folder in folders:
            tree.provide(folder["path"], folder["mode"], folder["quota_gib"], folder["quota_files"])
    except cephfs.Error as error:
        module.fail_json(msg=f"file system {name}: {error}; see `ceph fs status {name}`")
    finally:
        files.unmount()
        files.shutdown()
    module.exit_json(changed=bool(tree.after), diff={"before": tree.before, "after": tree.after})


if __name__ == "__main__":
    main()
