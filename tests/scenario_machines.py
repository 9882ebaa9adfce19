"""Bring a set of machines up or down from a playbook: what molecule's create and destroy call.

`up` reads from stdin, as JSON: network, folder, machines (a list of name, release and, if it has
some, gpus) and, if wanted, shares (folder below `folder` -> mount point). It prints, as JSON, the
address of each machine. `down` takes the name of the network and the folder, which it removes.
"""

import argparse
import ipaddress
import json
import sys
from pathlib import Path
from typing import Any

from muster.containers import machines, podman

FIRST_ADDRESS = 10
"""Offset of the first machine's address in its subnet: the gateway has 1."""


def fleet_of(request: dict[str, Any]) -> machines.Fleet:
    """Return the machines of a request, with addresses of a subnet that podman found free."""
    network = request["network"]
    if not podman.exists("network", network):
        podman.podman("network", "create", network)
    subnet = podman.podman(
        "network", "inspect", "--format", "{{(index .Subnets 0).Subnet}}", network
    )
    hosts = ipaddress.ip_network(subnet)
    return machines.Fleet(
        network=network,
        subnet=subnet,
        folder=Path(request["folder"]),
        machines=tuple(
            machines.Machine(
                name=machine["name"],
                address=str(hosts[FIRST_ADDRESS + number]),
                release=machine["release"],
                gpus=machine.get("gpus", 0),
            )
            for number, machine in enumerate(request["machines"])
        ),
        shares=request.get("shares", {}),
    )


def main() -> None:
    """Run one command; exit with 1 and one sentence if this machine is in the way."""
    parser = argparse.ArgumentParser(prog="python -m muster.containers", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("up")
    down = commands.add_parser("down")
    down.add_argument("network")
    down.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    try:
        if arguments.command == "up":
            fleet = fleet_of(json.load(sys.stdin))
            machines.up(fleet)
            json.dump({machine.name: machine.address for machine in fleet.machines}, sys.stdout)
        else:
            machines.down(arguments.network)
            machines.remove_folder(arguments.folder)
    except podman.MachineError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
