#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Wait until a Ceph cluster is healthy, or say what it lacks."""

import time
from typing import Any, TypedDict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.muster.slurm.plugins.module_utils.ceph_command import Ceph, CephError

DOCUMENTATION = r"""
module: ceph_health
short_description: Wait until a Ceph cluster is healthy
description:
  - Ends when the cluster says HEALTH_OK and the wanted OSDs are up. A warning that was muted
    (C(ceph health mute)) doesn't count.
options:
  osds:
    description: OSDs that must be up. Ceph does not report one that never was.
    type: list
    elements: int
    default: []
  osds_of:
    description: How many OSDs must be up on which host, where their ids are not known yet.
    type: dict
    default: {}
  orchestrated:
    description: Whether all daemons of the cluster's orchestrator must run.
    type: bool
    default: false
  timeout_seconds:
    description: How long to wait.
    type: int
    default: 300
author: [The Muster authors]
"""

EXAMPLES = r"""
- name: Wait for health
  muster.slurm.ceph_health:
    osds: [0, 1, 2]
"""

RETURN = r"""
seconds:
  description: How long it took.
  type: int
  returned: always
"""


class Params(TypedDict):
    """What the module is asked for."""

    osds: list[int]
    osds_of: dict[str, int]
    orchestrated: bool
    timeout_seconds: int


def complaints(health: dict[str, Any], dump: dict[str, Any], osds: list[int]) -> list[str]:
    """Return what is wrong with the cluster, each in a few words.

    `health` and `dump` are what `ceph health detail` and `ceph osd dump` answer.
    """
    problems = []
    for code, check in sorted(health["checks"].items()):
        if not check.get("muted"):
            detail = [entry["message"] for entry in check["detail"]][:3]
            problems.append(f"{code} ({'; '.join([check['summary']['message'], *detail])})")
    up = {osd["osd"] for osd in dump["osds"] if osd["up"]}
    problems += [f"osd.{number} is not up" for number in sorted({*osds} - up)]
    if health["status"] != "HEALTH_OK" and not problems:
        problems.append(health["status"])
    return problems


def missing_osds(tree: dict[str, Any], wanted: dict[str, int]) -> list[str]:
    """Return which hosts have fewer OSDs that are up than wanted; `tree` is of `ceph osd tree`."""
    up = {node["id"] for node in tree["nodes"] if node.get("status") == "up"}
    # The tree has host names without a domain.
    there = {
        node["name"]: len(up & {*node["children"]})
        for node in tree["nodes"]
        if node["type"] == "host"
    }
    return [
        f"{there.get(host.split('.')[0], 0)} of {count} OSDs of {host} are up"
        for host, count in wanted.items()
        if there.get(host.split(".")[0], 0) < count
    ]


def missing_daemons(services: list[dict[str, Any]]) -> list[str]:
    """Return which services lack daemons, with their last error; of `ceph orch ls`."""
    problems = []
    for service in services:
        running, size = service["status"]["running"], service["status"]["size"]
        if running < size:
            errors = [event for event in service.get("events", []) if "[ERROR]" in event][-1:]
            problems.append(
                ": ".join([f"{running} of {size} {service['service_name']} run", *errors])
            )
    return problems


def remedy(problems: list[str], seconds: int) -> str:
    """Return the sentence with which the task ends."""
    return (
        f"the Ceph cluster is not healthy after {seconds} s: {', '.join(problems)}; fix that and run "
        "again, or say that a warning may stay: ceph health mute CODE 1w"
    )


def missing(ceph: Ceph, params: Params) -> list[str]:
    """Return all that the cluster lacks."""
    health, dump = ceph.ask("health", "detail"), ceph.ask("osd", "dump")
    problems = complaints(health, dump, params["osds"])
    if params["osds_of"]:
        problems += missing_osds(ceph.ask("osd", "tree"), params["osds_of"])
    if params["orchestrated"]:
        problems += missing_daemons(ceph.ask("orch", "ls"))
    return problems


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "osds": {"type": "list", "elements": "int", "default": []},
            "osds_of": {"type": "dict", "default": {}},
            "orchestrated": {"type": "bool", "default": False},
            "timeout_seconds": {"type": "int", "default": 300},
        },
        supports_check_mode=True,
    )
    if module.check_mode:
        module.exit_json(changed=False, seconds=0)
    ceph, begin = Ceph(), time.monotonic()
    params: Params = module.params
    seconds = params["timeout_seconds"]
    try:
        while True:
            problems = missing(ceph, params)
            if not problems:
                break
            if time.monotonic() - begin > seconds:
                module.fail_json(msg=remedy(problems, seconds))
            time.sleep(1)
    except CephError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, seconds=int(time.monotonic() - begin))


if __name__ == "__main__":
    main()
