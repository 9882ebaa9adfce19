"""The bridge between this machine and its containers."""

import json
from pathlib import Path

from muster_sandbox.containers.podman import run


def hold_address(container_address: str) -> None:
    """Let the bridge to a running container keep one MAC address from now on.

    The kernel gives a bridge the lowest address of its ports unless it was told one: it changes as
    containers come and go, and the others send to the old one until they have asked anew, which
    takes them up to a minute. https://wiki.linuxfoundation.org/networking/bridge

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
