#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Apply one specification of hosts and services to a cephadm cluster."""

import json
from typing import Any, TypedDict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.muster.slurm.plugins.module_utils.ceph_command import Ceph, CephError

DOCUMENTATION = r"""
module: ceph_orchestrator
short_description: Apply a specification of hosts and services to a Ceph cluster
description:
  - Compares with what the orchestrator has, and applies the whole specification where something
    differs. It then does the work by itself, and M(muster.slurm.ceph_health) waits for it.
  - Hosts and services that are not named stay as they are.
options:
  hosts:
    description: The hosts.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Its name, as C(hostname) says it there.
        type: str
        required: true
      address:
        description: IP address at which the manager reaches it.
        type: str
        required: true
      devices:
        description: Its disks, one OSD each. By their paths and no filter, so no other is taken.
        type: list
        elements: path
        required: true
  admin:
    description: Name of the one that has the configuration and the administrator's key.
    type: str
    required: true
  services:
    description:
      - Specifications of the others than OSDs, as C(ceph orch apply) takes them
        (https://docs.ceph.com/en/latest/cephadm/services/).
    type: list
    elements: dict
    required: true
author: [The Muster authors]
"""

EXAMPLES = r"""
- name: Place the daemons
  muster.slurm.ceph_orchestrator:
    hosts: [{name: s1, address: 192.0.2.41, devices: [/dev/disk/by-id/nvme-A]}]
    admin: s1
    services:
      - {service_type: mon, placement: {hosts: [s1]}}
"""

ADMIN = "_admin"
"""Label of the hosts on which the orchestrator keeps /etc/ceph: doc/cephadm/operations.rst."""


Spec = dict[str, Any]
"""A specification of the orchestrator, whose keys depend on its service_type."""


class Host(TypedDict):
    """A host of the cluster."""

    name: str
    address: str
    devices: list[str]


def specification(hosts: list[Host], admin: str, services: list[Spec]) -> list[Spec]:
    """Return all that is wanted, hosts first: services are placed on hosts that are known."""
    return [
        *(
            {
                "service_type": "host",
                "hostname": host["name"],
                "addr": host["address"],
                "labels": [ADMIN] if host["name"] == admin else [],
            }
            for host in hosts
        ),
        *services,
        *(
            {
                "service_type": "osd",
                "service_id": host["name"],
                "placement": {"hosts": [host["name"]]},
                "spec": {"data_devices": {"paths": host["devices"]}},
            }
            for host in hosts
        ),
    ]


def covers(there: object, wanted: object) -> bool:
    """Whether `there` says all that `wanted` does; the orchestrator adds its defaults."""
    if isinstance(wanted, dict):
        return isinstance(there, dict) and all(
            key in there and covers(there[key], value) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(there, list) and sorted(map(str, there)) == sorted(map(str, wanted))
    return there == wanted


def name_of(spec: Spec) -> str:
    """Return the name by which the orchestrator lists what a specification is of."""
    if spec["service_type"] == "host":
        return f"host {spec['hostname']}"
    return ".".join(part for part in (spec["service_type"], spec.get("service_id")) if part)


def is_there(spec: Spec, hosts: dict[str, Spec], services: dict[str, Spec]) -> bool:
    """Whether the orchestrator has that already."""
    entry = (hosts if spec["service_type"] == "host" else services).get(name_of(spec))
    # Left alone by the orchestrator, as bootstrap leaves monitors and managers.
    if entry is None or entry.get("unmanaged"):
        return False
    if spec["service_type"] == "host":
        return entry["addr"] == spec["addr"] and {*spec["labels"]} <= {*entry["labels"]}
    return covers(entry, spec)


def differing(ceph: Ceph, wanted: list[Spec]) -> list[str]:
    """Return names of what the orchestrator does not have as it is wanted."""
    hosts = {f"host {host['hostname']}": host for host in ceph.ask("orch", "host", "ls")}
    exported = ceph.ask("orch", "ls", "--export")
    services = {service["service_name"]: service for service in exported}
    return [name_of(spec) for spec in wanted if not is_there(spec, hosts, services)]


def main() -> None:
    """Run the module."""
    text = {"type": "str", "required": True}
    module = AnsibleModule(
        argument_spec={
            "hosts": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "name": text,
                    "address": text,
                    "devices": {"type": "list", "elements": "path", "required": True},
                },
            },
            "admin": text,
            "services": {"type": "list", "elements": "dict", "required": True},
        },
        supports_check_mode=True,
    )
    given, ceph = module.params, Ceph()
    spec = specification(given["hosts"], given["admin"], given["services"])
    try:
        try:
            names = differing(ceph, spec)
        except CephError:
            # In check mode on a fresh host there is no cluster yet: everything will be placed.
            if not module.check_mode:
                raise
            names = [name_of(entry) for entry in spec]
        if names and not module.check_mode:
            # JSON is YAML, and documents are what the command takes.
            ceph.run("orch", "apply", "-i", "-", data="\n---\n".join(map(json.dumps, spec)))
    except CephError as error:
        module.fail_json(msg=str(error))
    after = "".join(f"ceph orch apply: {name}\n" for name in names)
    module.exit_json(changed=bool(names), diff={"before": "", "after": after})


if __name__ == "__main__":
    main()
