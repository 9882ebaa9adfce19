"""Bring the machines of a scenario up or down: what molecule's create and destroy call.

`up` reads from stdin, as JSON: network, folder, machines (a list of name and release). They have
the roles' packages, without them with MUSTER_BARE=1. It prints the address of each, as JSON.
`down` gets the name of the network and the folder, and removes both.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import installed

from muster.gcp.archive import BundleError
from muster_sandbox.containers import base_image, machines, podman


def up(request: dict[str, Any]) -> dict[str, str]:
    """Start the machines of a request; return the address of each."""
    made_by = base_image if os.environ.get("MUSTER_BARE") else installed
    fleet = machines.on_free_subnet(
        request["network"],
        Path(request["folder"]),
        [
            machines.Machine(
                name=machine["name"],
                address="",
                release=machine["release"],
                image=made_by.ensure(machine["release"]),
            )
            for machine in request["machines"]
        ],
    )
    machines.up(fleet)
    return {machine.name: machine.address for machine in fleet.machines}


def main() -> None:
    """Run one command; exit with 1 and one sentence if this machine can't do it."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("up")
    down = commands.add_parser("down")
    down.add_argument("network")
    down.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    try:
        if arguments.command == "up":
            json.dump(up(json.load(sys.stdin)), sys.stdout)
        else:
            machines.down(arguments.network)
            machines.remove_folder(arguments.folder)
    except (podman.MachineError, BundleError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
