#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Keep folders in which the members of a group can change each other's files."""

import grp
import os
import stat
from typing import TypedDict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.muster.slurm.plugins.module_utils.commands import run
from ansible_collections.muster.slurm.plugins.module_utils.new_home import mounts_of_people
from ansible_collections.muster.slurm.plugins.module_utils.refused_error import RefusedError
from ansible_collections.muster.slurm.plugins.module_utils.shared_folders import refuse_unavailable

DOCUMENTATION = r"""
module: group_folders
short_description: Folders that a group shares, regardless of its members' umask
description:
  - Makes folders that belong to a group, with the setgid bit, by which what is made in them belongs
    to the group too, and with a default access list, which takes the place of the umask (acl(5)).
  - What is in a folder already stays as it is, and so do other entries of its access lists.
  - Needs the package C(acl), and a file system with POSIX access lists. A mount of NFS 4.2 shows
    none, so this is for the server's own host; there they hold for all clients.
  - A folder that root can't look at stays as it is, and the module warns of it.
  - Fails after a time limit where the server of a folder does not answer.
  - Fails too where the file system of a folder should be mounted and is not, by C(/etc/fstab), an enabled unit of systemd or
    C(muster-file-systems); in check mode it warns.
options:
  folders:
    description: The folders.
    type: list
    elements: dict
    required: true
    suboptions:
      path: {type: path, required: true, description: Absolute path; its parent must exist.}
      group: {type: str, required: true, description: Group whose members write there.}
      readable: {type: bool, default: false, description: Whether all others may read.}
author: [The Muster authors]
"""

EXAMPLES = r"""
- name: Make the folders of projects
  muster.slurm.group_folders:
    folders:
      - {path: /data/photos, group: vision}
"""

RETURN = ""

WRITES = "root of this host must be able to write there, and nobody else may change what is there"


class Folder(TypedDict):
    """A wanted folder."""

    path: str
    group: str
    readable: bool


def wanted(folder: Folder, gid: int) -> list[str]:
    """Return the lines of getfacl(1) that a folder must have, the setgid bit among them."""
    others = "r-x" if folder["readable"] else "---"
    return [
        f"# group: {gid}",
        "# flags: -s-",
        "group::rwx",
        f"other::{others}",
        "default:user::rwx",
        "default:group::rwx",
        # Where a program made a folder without the setgid bit, files there are of another group.
        f"default:group:{gid}:rwx",
        "default:mask::rwx",
        f"default:other::{others}",
    ]


def access_list(module: AnsibleModule, path: str) -> list[str] | None:
    """Return the lines of getfacl(1) of a folder, None where there is none.

    Raises:
        PermissionError: root can't look at it.

    """
    try:
        state = os.lstat(path)
    except FileNotFoundError:
        return None
    if not stat.S_ISDIR(state.st_mode):
        raise RefusedError(f"{path} is there and is no folder; move it away")
    program = module.get_bin_path("getfacl")
    if program is None and module.check_mode:
        return []  # On a fresh host the package is still to come.
    code, out, err = run([program or "getfacl", "--numeric", "--absolute-names", path])
    if code != 0:
        raise RefusedError(f"{path}: getfacl said: {err.strip()}; install the package acl")
    # Of an entry that the mask cuts down, getfacl adds what is left of it.
    return [line.partition("\t")[0] for line in out.splitlines()]


def number_of(module: AnsibleModule, folder: Folder) -> int:
    """Return the number of a folder's group."""
    try:
        return grp.getgrnam(folder["group"]).gr_gid
    except KeyError as error:
        if module.check_mode:
            return -1  # On a fresh host the group is still to come.
        raise RefusedError(
            f"{folder['path']}: this host has no group {folder['group']}; make it first"
        ) from error


def apply(folder: Folder, gid: int) -> None:
    """Make a folder, and give it its group, mode and access lists.

    By a descriptor: where root of nodes is root in the folder above, as on CephFS, the path may be a
    link to anywhere on this host the next moment.
    """
    path = folder["path"]
    try:
        if not os.path.lexists(path):
            os.mkdir(path, 0o700)
        opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise RefusedError(f"{path}: {error.strerror}; {WRITES}") from error
    try:
        os.fchown(opened, -1, gid)
        os.fchmod(opened, 0o2775 if folder["readable"] else 0o2770)
        entries = [line for line in wanted(folder, gid) if line.startswith("default:")]
        entries += [line for line in wanted(folder, gid) if line.startswith(("group::", "other::"))]
        here = f"/proc/{os.getpid()}/fd/{opened}"
        code, out, err = run(["setfacl", "--modify", ",".join(entries), here])
    except OSError as error:
        raise RefusedError(f"{path}: {error.strerror}; {WRITES}") from error
    finally:
        os.close(opened)
    if code != 0:
        said = (err.strip() or out.strip()).replace(here, path)
        raise RefusedError(
            f"{path}: setfacl said: {said}; where this is a mount without "
            "POSIX access lists, make the folder on its server"
        )


def bring(module: AnsibleModule, folder: Folder, theirs: set[str]) -> dict[str, str] | None:
    """Make a folder as wanted; return what changed as a diff, or None.

    Not one of `theirs`, where programs of people have mounted something: each member can do so, and
    the others get their folders.
    """
    gid, path = number_of(module, folder), folder["path"]
    try:
        if path in theirs:
            raise PermissionError
        before = access_list(module, path)
    except PermissionError:
        module.warn(
            f"{os.uname().nodename}: {path} is left alone, since root can't look at it, as where a "
            f"program of somebody has mounted something (FUSE): findmnt {path} shows that, and "
            f"umount --lazy {path} ends it; then run again"
        )
        return None
    missing = [line for line in wanted(folder, gid) if line not in (before or [])]
    if not missing:
        return None
    if not module.check_mode:
        apply(folder, gid)
    after = [*(line for line in before or [] if line in wanted(folder, gid)), *missing]
    return {
        "before_header": path,
        "after_header": path,
        "before": "absent\n" if before is None else "".join(f"{line}\n" for line in before),
        "after": "".join(f"{line}\n" for line in after),
    }


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "folders": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "path": {"type": "path", "required": True},
                    "group": {"type": "str", "required": True},
                    "readable": {"type": "bool", "default": False},
                },
            },
        },
        supports_check_mode=True,
    )
    folders: list[Folder] = module.params["folders"]
    theirs = mounts_of_people()
    refuse_unavailable(
        module, [folder["path"] for folder in folders if folder["path"] not in theirs]
    )
    try:
        changes = [bring(module, folder, theirs) for folder in folders]
    except RefusedError as error:
        module.fail_json(msg=str(error))
    diffs = [diff for diff in changes if diff is not None]
    module.exit_json(changed=bool(diffs), diff=diffs)


if __name__ == "__main__":
    main()
