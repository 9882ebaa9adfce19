#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Make the store of a Ceph monitor once; a service runs its daemon."""

import os
import re
import shutil
import tempfile
from typing import TypedDict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.muster.slurm.plugins.module_utils.commands import run

DOCUMENTATION = r"""
module: ceph_monitor
short_description: Make the store of a Ceph monitor
description:
  - With the map of all monitors that are wanted. Those of a new cluster elect a leader as soon as
    most of them run; one that is added later joins the others.
  - A store that is there is kept, whatever is in it.
  - Made beside its place and renamed, so that a killed run leaves no incomplete one.
options:
  name:
    description: The monitor's name.
    type: str
    required: true
  fsid:
    description: The cluster.
    type: str
    required: true
  monitors:
    description: All monitors, with C(name) and C(address).
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Its name.
        type: str
        required: true
      address:
        description: IP address of its host.
        type: str
        required: true
  keyring:
    description: Text of the keyring of a monitor of the cluster; left out for the first one.
    type: str
author: [The Muster authors]
"""

EXAMPLES = r"""
- name: Make the first monitor
  muster.slurm.ceph_monitor:
    name: storage1
    fsid: 6f9a3c1e-0000-4000-8000-000000000001
    monitors: [{name: storage1, address: 192.0.2.5}]
"""

STORES = "/var/lib/ceph/mon"
SCRATCH = "/var/lib/ceph/tmp"


def addresses(address: str) -> str:
    """Return where a monitor listens, as Ceph writes it: version 2 of its protocol first."""
    host = f"[{address}]" if ":" in address else address
    return f"[v2:{host}:3300,v1:{host}:6789]"


class Monitor(TypedDict):
    """A monitor of the cluster."""

    name: str
    address: str


class Params(TypedDict):
    """What the module is asked for."""

    name: str
    fsid: str
    monitors: list[Monitor]
    keyring: str | None


class Maker:
    """Makes one store."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.params: Params = module.params
        self.store = f"{STORES}/ceph-{self.params['name']}"

    def run(self, *command: str, data: str | None = None) -> str:
        """Run a command that must succeed; return what it prints."""
        code, out, err = run(list(command), data=data)
        if code != 0:
            self.module.fail_json(msg=f"{command[0]}: {err.strip() or out.strip()}")
        return out

    def keyring(self) -> str:
        """Return the text of the keyring that the store begins with."""
        given = self.params["keyring"]
        if given:
            match = re.search(r"^\s*key\s*=\s*(\S+)", given, re.MULTILINE)
            if not match:
                # Without the text: it may be a key all the same.
                self.module.fail_json(msg="the keyring has no line `key = ...`; give one that has")
            key = match[1]
        else:
            key = self.run("ceph-authtool", "--gen-print-key").strip()
        return f'[mon.]\n\tkey = {key}\n\tcaps mon = "allow *"\n'

    def make(self) -> None:
        """Make the store."""
        fsid, name = self.params["fsid"], self.params["name"]
        new = f"{self.store}.new"
        shutil.rmtree(new, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
            shutil.chown(folder, "ceph", "ceph")
            keyring, monmap = f"{folder}/keyring", f"{folder}/monmap"
            with open(os.open(keyring, os.O_WRONLY | os.O_CREAT, 0o600), "w") as stream:
                stream.write(self.keyring())
            every = [
                word
                for monitor in self.params["monitors"]
                for word in ("--addv", monitor["name"], addresses(monitor["address"]))
            ]
            self.run("monmaptool", "--create", "--fsid", fsid, *every, monmap)
            for path in (keyring, monmap):
                shutil.chown(path, "ceph", "ceph")
            self.run(
                *("ceph-mon", "--mkfs", "--id", name, "--fsid", fsid, "--mon-data", new),
                *("--monmap", monmap, "--keyring", keyring),
                *("--setuser", "ceph", "--setgroup", "ceph"),
            )
        os.rename(new, self.store)


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "fsid": {"type": "str", "required": True},
            "monitors": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "name": {"type": "str", "required": True},
                    "address": {"type": "str", "required": True},
                },
            },
            "keyring": {"type": "str", "no_log": True},
        },
        supports_check_mode=True,
    )
    maker = Maker(module)
    missing = not os.path.isdir(maker.store)
    if missing and not module.check_mode:
        maker.make()
    diff = {"before": "", "after": f"{maker.store}\n"} if missing else []
    module.exit_json(changed=missing, diff=diff)


if __name__ == "__main__":
    main()
