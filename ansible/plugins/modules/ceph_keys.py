#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Give users of a Ceph cluster exactly their rights; Ceph makes their keys."""

from typing import TypedDict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.muster.slurm.plugins.module_utils.ceph_command import Ceph, CephError

DOCUMENTATION = r"""
module: ceph_keys
short_description: Give users of a Ceph cluster exactly their rights
description:
  - Makes users that are missing, and revokes all other rights.
    Keys stay as they are. Users who are not named are left alone.
  - Without O(read) nothing that it returns is secret; with it the task needs C(no_log).
options:
  monitor:
    description:
      - Name of a monitor on this host, as whom to ask; before there is C(client.admin) only
        monitors have a key. Left out it is C(client.admin).
    type: str
  users:
    description: The users.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name, of a daemon with its kind, such as C(mgr.storage1).
        type: str
        required: true
      caps:
        description: Rights by kind of daemon.
        type: dict
      folders:
        description: In place of O(users[].caps) the folders of O(filesystem) that it may mount.
        type: list
        elements: dict
        suboptions:
          path:
            description: Path inside the file system.
            type: str
            required: true
          access:
            description: Whether it may write.
            type: str
            choices: [r, rw]
            required: true
  filesystem:
    description: The file system of O(users[].folders).
    type: str
  read:
    description: Whether to return the keys.
    type: bool
    default: false
author: [The Muster authors]
"""

EXAMPLES = r"""
- name: Let compute nodes mount homes and read the software
  muster.slurm.ceph_keys:
    filesystem: cephfs
    users:
      - name: compute
        folders: [{path: /home, access: rw}, {path: /apps, access: r}]
"""

RETURN = r"""
keyrings:
  description: Text of a keyring by user; empty for one that check mode did not make.
  type: dict
  returned: with read
"""


KINDS = ("client", "mds", "mgr", "mon", "osd")


Caps = dict[str, str]
"""Kind of daemon -> rights."""


class Folder(TypedDict):
    """A folder that a user mounts."""

    path: str
    access: str


class User(TypedDict):
    """A wanted user, with rights or with folders that they follow from."""

    name: str
    caps: Caps | None
    folders: list[Folder] | None


def entity(name: str) -> str:
    """Return a user's name with its kind."""
    return name if name.partition(".")[0] in KINDS else f"client.{name}"


def folder_caps(filesystem: str | None, folders: list[Folder]) -> Caps:
    """Return the least rights with which a client can mount these folders of a file system.

    What `ceph fs authorize` gives; doc/cephfs/client-auth.rst. Without `p` it can set no quota.
    """
    caps = ", ".join(
        f"allow {folder['access']} fsname={filesystem}"
        + ("" if folder["path"] == "/" else f" path={folder['path']}")
        for folder in folders
    )
    # By pool, so the same for all its folders: only the MDS knows paths.
    data = "rw" if any(folder["access"] == "rw" for folder in folders) else "r"
    return {
        "mds": caps,
        "mon": f"allow r fsname={filesystem}",
        "osd": f"allow {data} tag cephfs data={filesystem}",
    }


def words_of(caps: Caps) -> list[str]:
    """Return rights as arguments of `ceph auth`, and as they are shown."""
    return [word for kind in sorted(caps) for word in (kind, caps[kind])]


def shown(name: str, caps: Caps) -> str:
    """Return a user's rights as lines of a diff."""
    return "".join(f"{name} {kind} '{caps[kind]}'\n" for kind in sorted(caps))


def keyring(name: str, key: str) -> str:
    """Return the text of the keyring of one user."""
    return f"[{name}]\n\tkey = {key}\n"


def wanted(user: User, filesystem: str | None) -> Caps:
    """Return the rights that a user is to have."""
    if user["folders"] is not None:
        return folder_caps(filesystem, user["folders"])
    return user["caps"] or {}


def users_of(ceph: Ceph) -> dict[str, tuple[str, Caps]]:
    """Return user -> (key, caps) of all that there are."""
    entries = ceph.ask("auth", "ls")["auth_dump"]
    return {entry["entity"]: (entry["key"], entry["caps"]) for entry in entries}


def provide(
    ceph: Ceph, users: dict[str, Caps], there: dict[str, tuple[str, Caps]], act: bool
) -> tuple[str, str]:
    """Give each user (name -> rights) its rights; return (before, after) of the diff."""
    before = after = ""
    for name, caps in users.items():
        existing = there.get(name)
        if existing and existing[1] == caps:
            continue
        before += shown(name, existing[1]) if existing else ""
        after += shown(name, caps)
        if act:
            ceph.run("auth", "caps" if existing else "add", name, *words_of(caps))
    return before, after


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "monitor": {"type": "str"},
            "users": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "required_one_of": [("caps", "folders")],
                "mutually_exclusive": [("caps", "folders")],
                "options": {
                    "name": {"type": "str", "required": True},
                    "caps": {"type": "dict"},
                    "folders": {
                        "type": "list",
                        "elements": "dict",
                        "options": {
                            "path": {"type": "str", "required": True},
                            "access": {"type": "str", "choices": ["r", "rw"], "required": True},
                        },
                    },
                },
            },
            "filesystem": {"type": "str"},
            "read": {"type": "bool", "default": False, "no_log": False},
        },
        supports_check_mode=True,
    )
    ceph = Ceph.for_monitor(module.params["monitor"])
    asked: list[User] = module.params["users"]
    users = {entity(user["name"]): wanted(user, module.params["filesystem"]) for user in asked}
    try:
        try:
            there = users_of(ceph)
        except CephError:
            # In check mode on a fresh host there is no cluster yet: all users will be made.
            if not module.check_mode:
                raise
            there = {}
        before, after = provide(ceph, users, there, not module.check_mode)
        result = {}
        if module.params["read"]:
            if after and not module.check_mode:
                there = users_of(ceph)
            result["keyrings"] = {
                name: keyring(name, there[name][0]) if name in there else "" for name in users
            }
    except CephError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=bool(after), diff={"before": before, "after": after}, **result)


if __name__ == "__main__":
    main()
