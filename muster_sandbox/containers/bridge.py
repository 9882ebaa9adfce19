"""The bridge between this machine and its containers."""

import json
from pathlib import Path

from muster_sandbox.containers.podman import run


def hold_address(container_address: str) -> None:
    """Give the bridge to a running container a fixed MAC address.

    Without one the kernel gives a bridge the lowest address of its ports. That address changes as
    containers come and go, and the others use the old one until they send an ARP request again, up
    to a minute later. https://wiki.linuxfoundation.org/networking/bridge

    Raises:
        MachineError: there is no route to that address, or the bridge takes no address.

    """
    route = json.loads(run(["ip", "-json", "route", "get", container_address]).stdout)[0]
    wanted = mac_address(route["prefsrc"])
    if Path(f"/sys/class/net/{route['dev']}/address").read_text(encoding="ascii").strip() != wanted:
        run(["ip", "link", "set", "dev", route["dev"], "address", wanted])


def mac_address(address: str) -> str:
    """Return a locally administered MAC address made of an IPv4 address."""
    return ":".join(["02", "4d", *(f"{int(part):02x}" for part in address.split("."))])
