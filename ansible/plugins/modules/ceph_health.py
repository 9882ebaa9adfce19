#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Wait until a Ceph cluster is healthy, or say what it lacks."""

import time

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.ceph_command import Ceph, CephError

DOCUMENTATION = r"""
module: ceph_health
short_description: Wait until a Ceph cluster is healthy
description:
  - Ends when the cluster says HEALTH_OK and the named OSDs are up. A warning that was muted
    (C(ceph health mute)) doesn't count.
options:
  osds:
    description: OSDs that must be up; one that never was is missed by nobody else.
    type: list
    elements: int
    required: true
  timeout_seconds:
    description: How long to wait.
    type: int
    default: 300
author: [The Muster authors]
"""

EXAMPLES = r"""
- name: Wait for health
  ceph_health:
    osds: [0, 1, 2]
"""

RETURN = r"""
seconds:
  description: How long it took.
  type: int
  returned: always
"""


def complaints(health, dump, osds):
    """Return what is wrong with the cluster, each in a few words.

    `health` and `dump` are what `ceph health detail` and `ceph osd dump` answer.
    """
    found = []
    for code, check in sorted(health["checks"].items()):
        if not check.get("muted"):
            detail = [entry["message"] for entry in check["detail"]][:3]
            found.append(f"{code} ({'; '.join([check['summary']['message'], *detail])})")
    up = {osd["osd"] for osd in dump["osds"] if osd["up"]}
    found += [f"osd.{number} is not up" for number in sorted({*osds} - up)]
    if health["status"] != "HEALTH_OK" and not found:
        found.append(health["status"])
    return found


def remedy(found, seconds):
    """Return the sentence with which the task ends."""
    return (
        f"the Ceph cluster is not healthy after {seconds} s: {', '.join(found)}; mend that and run "
        "again, or say that a warning may stay: ceph health mute CODE 1w"
    )


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "osds": {"type": "list", "elements": "int", "required": True},
            "timeout_seconds": {"type": "int", "default": 300},
        },
        supports_check_mode=True,
    )
    if module.check_mode:
        module.exit_json(changed=False, seconds=0)
    ceph, begin = Ceph(module), time.monotonic()
    seconds = module.params["timeout_seconds"]
    try:
        while True:
            health, dump = ceph.ask("health", "detail"), ceph.ask("osd", "dump")
            found = complaints(health, dump, module.params["osds"])
            if not found:
                break
            if time.monotonic() - begin > seconds:
                module.fail_json(msg=remedy(found, seconds))
            time.sleep(1)
    except CephError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, seconds=int(time.monotonic() - begin))


if __name__ == "__main__":
    main()
