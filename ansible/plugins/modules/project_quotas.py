#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Limit how much single folders of a file system may hold, by project quotas of ext4 or XFS."""

import os
from collections.abc import Iterator
from typing import TypedDict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.muster.slurm.plugins.module_utils.mount_table import (
    mounted,
    read_table,
)
from ansible_collections.muster.slurm.plugins.module_utils.new_home import mounts_of_people
from ansible_collections.muster.slurm.plugins.module_utils.project_quota import (
    FileSystem,
    Folder,
    Limits,
    limit,
    limits_of,
    line,
)
from ansible_collections.muster.slurm.plugins.module_utils.refused_error import RefusedError

DOCUMENTATION = r"""
module: project_quotas
short_description: Quotas of folders, by project quotas of ext4 or XFS
description:
  - Gives a folder, and all that is in it, to a project of the file system, and limits the project.
    What is made in the folder later belongs to the project too.
  - Limits of other projects of the same file systems are taken away, but for those of O(file_systems[].others).
  - Needs a file system that is mounted with C(prjquota), and Linux 5.14.
  - The quota of a folder that root can't look at stays as it is, and the module warns of it.
options:
  file_systems:
    description: The file systems.
    type: list
    elements: dict
    required: true
    suboptions:
      path: {type: path, required: true, description: Where it is mounted.}
      folders:
        description: Folders with a quota.
        type: list
        elements: dict
        default: []
        suboptions:
          path: {type: path, required: true, description: The folder.}
          project: {type: int, required: true, description: Number of its project, in no other use.}
          gib: {type: int, default: 0, description: How much it may hold in GiB; 0 for no limit.}
          files: {type: int, default: 0, description: How many files it may have; 0 for no limit.}
      others:
        description: First and last number of projects that another program limits; empty where there are none.
        type: list
        elements: int
        default: []
author: [The Muster authors]
"""

EXAMPLES = r"""
- name: Limit homes
  muster.slurm.project_quotas:
    file_systems:
      - path: /home
        folders:
          - {path: /home/ada, project: 20001, gib: 50, files: 500000}
"""

RETURN = ""


class FileSystemOptions(TypedDict):
    """A file system with its folders."""

    path: str
    folders: list[Folder]
    others: list[int]


def bring(wanted: FileSystemOptions, unseen: list[str], *, act: bool) -> Iterator[str]:
    """Yield a line for each change, before it is made; add folders to `unseen` that have to wait.

    Each person can make a home such that root can't look at it: the others get their quotas.
    """
    path = wanted["path"]
    _, _, options = mounted(read_table()).get(path, ("", "", set()))
    if "prjquota" not in options:
        if not wanted["folders"] and not wanted["others"]:
            return
        if act:
            raise RefusedError(
                f"{path} is not mounted with project quotas. If it is in file_systems_mounts, "
                "reboot this host, which mounts it so, and run again. If it is a disk of yours, "
                "unmount it, on ext4 run tune2fs -O quota,project -Q prjquota on it, and mount it "
                "with the option prjquota; for XFS the option is enough"
            )
        for folder in wanted["folders"]:
            yield line(folder["path"], Limits(), limits_of(folder))
        return
    file_system, theirs = FileSystem(path), mounts_of_people()
    try:
        for folder in wanted["folders"]:
            if folder["path"] in theirs:
                unseen.append(folder["path"])
                continue
            try:
                yield from limit(file_system, folder, act=act)
            except PermissionError as error:
                # Where the kernel refuses quotas there is no file name.
                if error.filename != folder["path"]:
                    raise
                unseen.append(folder["path"])
        kept = {folder["project"] for folder in wanted["folders"]}
        first, last = wanted["others"] or (0, -1)
        for project in list(file_system.limited()):
            if project not in kept and not first <= project <= last:
                yield line(f"{path}, project {project}", file_system.limits(project), Limits())
                if act:
                    file_system.limit(project, Limits())
    finally:
        os.close(file_system.fd)


def main() -> None:
    """Run the module."""
    folder = {
        "path": {"type": "path", "required": True},
        "project": {"type": "int", "required": True},
        "gib": {"type": "int", "default": 0},
        "files": {"type": "int", "default": 0},
    }
    module = AnsibleModule(
        argument_spec={
            "file_systems": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "path": {"type": "path", "required": True},
                    "folders": {
                        "type": "list",
                        "elements": "dict",
                        "default": [],
                        "options": folder,
                    },
                    "others": {"type": "list", "elements": "int", "default": []},
                },
            },
        },
        supports_check_mode=True,
    )
    file_systems: list[FileSystemOptions] = module.params["file_systems"]
    lines: list[str] = []
    unseen: list[str] = []
    try:
        for wanted in file_systems:
            lines.extend(bring(wanted, unseen, act=not module.check_mode))
    except RefusedError as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        name = error.filename or "project quotas"
        module.fail_json(
            msg=f"{name}: {error.strerror}; homes and projects are made by the roles users and "
            "projects, and the quotas need Linux 5.14; fix that and run again"
        )
    for path in unseen:
        module.warn(
            f"{os.uname().nodename}: the quota of {path} stays as it is, since root can't look at "
            "it, as where a program of somebody has mounted something (FUSE): "
            f"findmnt {path} shows that, and umount --lazy {path} ends it; then run again"
        )
    after = "".join(f"{text}\n" for text in lines)
    module.exit_json(changed=bool(lines), diff={"before": "", "after": after})


if __name__ == "__main__":
    main()
