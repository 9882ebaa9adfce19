#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Bring settings, pools and the one file system of a Ceph cluster to a wanted state."""

from typing import Any, TypedDict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.muster.slurm.plugins.module_utils.ceph_command import Ceph, CephError

DOCUMENTATION = r"""
module: ceph_filesystem
short_description: Provide a CephFS with its pools, and the settings of its cluster
description:
  - Reads what is there and changes only what differs. Settings are kept by the monitors and reach
    running daemons, so nothing is restarted. Nothing is ever removed.
options:
  monitor:
    description:
      - Name of a monitor on this host, as whom to ask; before there is C(client.admin) only
        monitors have a key. Left out it is C(client.admin).
    type: str
  name:
    description: The file system.
    type: str
    required: true
  copies:
    description: How many copies of everything are kept.
    type: int
    required: true
  failure_domain:
    description: What no two copies share.
    type: str
    choices: [host, osd]
    required: true
  standbys:
    description: How many metadata servers stand by for a failure of the active one.
    type: int
    required: true
author: [The Muster authors]
"""

EXAMPLES = r"""
- name: Provide the file system
  muster.slurm.ceph_filesystem:
    monitor: storage1
    name: cephfs
    copies: 3
    failure_domain: host
    standbys: 1
"""

# Pools that the manager makes by itself: up to Ceph 16, and from 17 on.
MANAGERS_POOLS = ("device_health_metrics", ".mgr")
METADATA_PGS = "16"
BULK_SINCE = 17
"""Major release from which pools have the flag `bulk` (most of the data)."""


Settings = dict[str, dict[str, object]]
"""Section -> name -> value."""
Properties = dict[str, tuple[object, object]]
"""Property of a pool -> its value, and the word that sets it."""


class Params(TypedDict):
    """What the module is asked for."""

    monitor: str | None
    name: str
    copies: int
    failure_domain: str
    standbys: int


def settings(copies: int) -> Settings:
    """Return the settings of a cluster, by section."""
    return {
        "global": {"osd_pool_default_size": copies},
        "mon": {
            # Clients that could be made to reuse another's ticket: CVE-2021-20288. Today's
            # clients don't do this.
            "auth_allow_insecure_global_id_reclaim": "false",
            # `muster check` warns of one copy.
            "mon_allow_pool_size_one": "true" if copies == 1 else "false",
            "mon_warn_on_pool_no_redundancy": "false" if copies == 1 else "true",
        },
    }


def min_size(copies: int) -> int:
    """Return with how many copies a pool still takes writes, as Ceph's own default is."""
    return copies - copies // 2


class Cluster:
    """The cluster's state, and the changes made to it."""

    def __init__(self, ceph: Ceph, params: Params, act: bool) -> None:
        self.ceph = ceph
        self.params = params
        self.act = act
        self.lines: list[str] = []
        self.release = self._release()

    def _release(self) -> int:
        """Return the monitors' oldest major release; in check mode of a fresh host the newest."""
        # {"ceph version 16.2.15 (...) pacific (stable)": 3}; the command here may be another one.
        said = (self.ask("versions") or {}).get("mon", {})
        return min((int(text.split()[2].split(".")[0]) for text in said), default=BULK_SINCE)

    def ask(self, *words: str) -> Any:
        """Return what the cluster answers; in check mode nothing where there is none yet."""
        try:
            return self.ceph.ask(*words)
        except CephError:
            if self.act:
                raise
            return None

    def tell(self, *words: object) -> None:
        """Note a change and, unless only checking, make it."""
        texts = [str(word) for word in words]
        self.lines.append(f"ceph {' '.join(texts)}")
        if self.act:
            self.ceph.run(*texts)

    def set_all(self, settings: Settings) -> None:
        """Bring settings, by section, to the wanted values."""
        there = {
            (entry["section"], entry["name"]): entry["value"]
            for entry in self.ask("config", "dump") or []
        }
        for section, values in settings.items():
            for name, value in values.items():
                if there.get((section, name)) != str(value):
                    self.tell("config", "set", section, name, value)

    def rules(self) -> dict[str, int]:
        """Return the rules by which copies are placed: name -> id."""
        rules = self.ask("osd", "crush", "rule", "dump") or []
        return {rule["rule_name"]: rule["rule_id"] for rule in rules}

    def rule(self) -> tuple[str, int | None]:
        """Provide the wanted rule; return its name and id."""
        domain = self.params["failure_domain"]
        name = f"muster_{domain}"
        if name not in self.rules():
            self.tell("osd", "crush", "rule", "create-replicated", name, "default", domain)
        return name, self.rules().get(name)

    def pools(self) -> dict[str, dict[str, Any]]:
        """Return the pools by name."""
        pools = self.ask("osd", "pool", "ls", "detail") or []
        return {pool["pool_name"]: pool for pool in pools}

    def bring(self, pool: dict[str, Any], wanted: Properties) -> None:
        """Bring the properties of a pool to the wanted values."""
        name = pool["pool_name"]
        there = {**pool, "bulk": "bulk" in pool["flags_names"].split(",")}
        for key, (value, word) in wanted.items():
            if there[key] != value:
                # For one copy Ceph needs a second confirmation.
                sure = ["--yes-i-really-mean-it"] if (key, value) == ("size", 1) else []
                self.tell("osd", "pool", "set", name, key, word, *sure)

    def provide_pools(self, metadata: str, data: str) -> None:
        """Provide the pools of the file system, and place the manager's own as them."""
        copies = self.params["copies"]
        rule, number = self.rule()
        # Those that the manager makes later are placed as the others.
        self.set_all({"global": {"osd_pool_default_crush_rule": number}})
        pools = self.pools()
        for name, pgs in ((metadata, [METADATA_PGS, METADATA_PGS]), (data, [])):
            if name not in pools:
                self.tell("osd", "pool", "create", name, *pgs, "replicated", rule)
        placed: Properties = {
            "crush_rule": (number, rule),
            "size": (copies, copies),
            "min_size": (min_size(copies), min_size(copies)),
        }
        scaled: Properties = {"pg_autoscale_mode": ("on", "on")}
        bulk: Properties = {"bulk": (True, "true")} if self.release >= BULK_SINCE else {}
        wanted = dict.fromkeys(MANAGERS_POOLS, placed)
        wanted |= {metadata: placed | scaled, data: placed | scaled | bulk}
        pools = self.pools()
        for name in wanted:
            if name in pools:
                self.bring(pools[name], wanted[name])

    def filesystem(self) -> dict[str, Any] | None:
        """Return the file system's map; None if there is none."""
        filesystems = (self.ask("fs", "dump") or {"filesystems": []})["filesystems"]
        maps = [entry["mdsmap"] for entry in filesystems]
        return next((mdsmap for mdsmap in maps if mdsmap["fs_name"] == self.params["name"]), None)

    def provide(self) -> None:
        """Bring everything to what is wanted."""
        name, standbys = self.params["name"], self.params["standbys"]
        metadata, data = f"cephfs.{name}.meta", f"cephfs.{name}.data"
        self.set_all(settings(self.params["copies"]))
        self.provide_pools(metadata, data)
        if self.filesystem() is None:
            self.tell("fs", "new", name, metadata, data)
        if (self.filesystem() or {}).get("standby_count_wanted") != standbys:
            self.tell("fs", "set", name, "standby_count_wanted", standbys)


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "monitor": {"type": "str"},
            "name": {"type": "str", "required": True},
            "copies": {"type": "int", "required": True},
            "failure_domain": {"type": "str", "choices": ["host", "osd"], "required": True},
            "standbys": {"type": "int", "required": True},
        },
        supports_check_mode=True,
    )
    params: Params = module.params
    ceph = Ceph.for_monitor(params["monitor"])
    try:
        cluster = Cluster(ceph, params, act=not module.check_mode)
        cluster.provide()
    except CephError as error:
        module.fail_json(msg=str(error))
    after = "".join(f"{line}\n" for line in cluster.lines)
    module.exit_json(changed=bool(cluster.lines), diff={"before": "", "after": after})


if __name__ == "__main__":
    main()
