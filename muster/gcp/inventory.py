"""The inventory with which a VM of a cluster in the cloud runs site.yml on itself.

    python -m muster.gcp.inventory inventory slurm10-login-0 '{"slurm10-controller": "10.0.0.2"}'

prints it as JSON, which Ansible's YAML inventory plugin reads. Put it into the inventory's folder,
where group_vars are, but not as hosts.yml: a cluster in the cloud has no such file. The hosts
come from the definition, the fixed addresses from the VM's metadata.
"""

import json
import sys
from pathlib import Path
from typing import Any

from muster.definition import DefinitionError, cloud_hosts, load
from muster.definition.definition import Hosts

# It smears leap seconds, so no other server may be used beside it:
# https://cloud.google.com/compute/docs/instances/time-synchronization/configure-ntp
TIME_SERVERS = ["metadata.google.internal"]
"""The role base's base_ntp_servers."""


def inventory(hosts: Hosts, own: str, addresses: dict[str, str]) -> dict[str, Any]:
    """The five groups, as the VM `own` sees them; `addresses`: host -> fixed address.

    Raises:
        ValueError: no host of the cluster is called `own`.

    """
    if own not in hosts.groups["all"]:
        known = ", ".join(hosts.groups["all"])
        raise ValueError(f"{own} is no host of this cluster, which has {known}")
    variables = {
        host: {"ansible_host": addresses[host]} if host in addresses else {}
        for host in hosts.groups["all"]
    }
    variables[own]["ansible_connection"] = "local"
    if own not in hosts.groups["controller"]:
        # It has no key to log in to the controller with.
        variables[own]["verify_controller"] = ""
    groups: dict[str, Any] = {
        group: {"hosts": {host: variables[host] if group == "all" else {} for host in members}}
        for group, members in hosts.groups.items()
    }
    groups["all"]["vars"] = {"base_ntp_servers": TIME_SERVERS}
    return groups


def main(arguments: list[str]) -> int:
    """Print the inventory; 2 and what is wrong on stderr if there is none."""
    folder, own, addresses = arguments
    try:
        definition = load(Path(folder))
        groups = inventory(cloud_hosts(definition.cluster), own, json.loads(addresses))
    except (DefinitionError, ValueError) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2
    print(json.dumps(groups, indent=1))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
