"""What Google fills into a body that leaves it out.

Pulumi's provider compares what it wants with the answers. So it sees each of these defaults, and
one that it doesn't expect is a change at every `pulumi up`. Each has its source: "described" means
the API's own description (see descriptions.py), "shown" means an answer of Google's servers that
somebody published, such as the output of `gcloud compute networks describe`.
"""

from collections.abc import Mapping
from typing import Any

from muster_sandbox.fakecloud.http import Resource

NETWORK = {
    # Described.
    "mtu": 1460,
    "networkFirewallPolicyEnforcementOrder": "AFTER_CLASSIC_FIREWALL",
    "routingConfig": {"routingMode": "REGIONAL", "bgpBestPathSelectionMode": "LEGACY"},
}
SUBNETWORK = {
    "privateIpGoogleAccess": False,
    "privateIpv6GoogleAccess": "DISABLE_GOOGLE_ACCESS",  # shown
    "purpose": "PRIVATE",
    "stackType": "IPV4_ONLY",
}
ROUTER = {"encryptedInterconnectRouter": False}  # shown
NAT = {
    # Described as "equivalent to", and shown; time-outs and ports that are left out are not shown.
    "endpointTypes": ["ENDPOINT_TYPE_VM"],
    "enableEndpointIndependentMapping": False,  # shown
}
TIER_OF_AUTOMATIC_ADDRESSES = {"autoNetworkTier": "PREMIUM"}  # described: the project's tier; shown
DISK = {
    # Shown: https://github.com/flyingobsidian/gcloud-go/issues/1727. Answers of 2023 and before
    # lack the first.
    "enableConfidentialCompute": False,
    "physicalBlockSizeBytes": "4096",
}
HYPERDISK = {"accessMode": "READ_WRITE_SINGLE"}
"""Described. Google fills in IOPS and throughput by the size, too; they are not here."""

ATTACHED_DISK = {
    # Described; kind is shown.
    "kind": "compute#attachedDisk",
    "mode": "READ_WRITE",
    "type": "PERSISTENT",
}
ACCESS_CONFIG = {  # described; kind is shown
    "kind": "compute#accessConfig",
    "type": "ONE_TO_ONE_NAT",
    "networkTier": "PREMIUM",
}
STANDARD = {
    # Described, but for the model: Google fills it into templates, too, since 2022,
    # https://github.com/GoogleCloudPlatform/magic-modules/pull/5705.
    "automaticRestart": True,
    "onHostMaintenance": "MIGRATE",
    "preemptible": False,
    "provisioningModel": "STANDARD",
}
SPOT = {
    # https://cloud.google.com/compute/docs/instances/create-use-spot
    "automaticRestart": False,
    "onHostMaintenance": "TERMINATE",
    "preemptible": True,
    "provisioningModel": "SPOT",
}


def filled(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> Resource:
    """Return what is given, with the defaults of what is not, also in nested objects."""
    inner = {
        name: filled(defaults[name], value)
        for name, value in given.items()
        if isinstance(value, dict) and isinstance(defaults.get(name), dict)
    }
    return {**defaults, **given, **inner}


def disk(given: Resource, kind: str) -> Resource:
    """Return a disk of a type, such as pd-balanced, as it is answered."""
    return {**DISK, **(HYPERDISK if kind.startswith("hyperdisk-") else {}), **given}


def nat(given: Resource) -> Resource:
    """Return a NAT of a router as it is answered; a list without elements is none."""
    automatic = given.get("natIpAllocateOption") == "AUTO_ONLY"
    set_ = {name: value for name, value in given.items() if value != []}
    return {**NAT, **(TIER_OF_AUTOMATIC_ADDRESSES if automatic else {}), **set_}


def is_spot(scheduling: Mapping[str, Any]) -> bool:
    """Say whether instances with this scheduling can be taken away at any time."""
    spot = scheduling.get("provisioningModel") == "SPOT" or scheduling.get("preemptible", False)
    return bool(spot)


def scheduling(given: Resource) -> Resource:
    """Return the scheduling of an instance or a template."""
    spot = is_spot(given)
    return {**(SPOT if spot else STANDARD), **given, "preemptible": spot}


def template(properties: Resource) -> Resource:
    """Return a template's properties as they are answered.

    Shown for kinds and names. Sizes, and names of devices, are only filled into instances.
    """
    return {
        "canIpForward": False,
        **properties,
        "disks": [{**ATTACHED_DISK, **disk} for disk in properties.get("disks", [])],
        "networkInterfaces": [
            _interface(interface, number)
            for number, interface in enumerate(properties.get("networkInterfaces", []))
        ],
        "scheduling": scheduling(properties.get("scheduling", {})),
    }


def _interface(given: Resource, number: int) -> Resource:
    interface = {"kind": "compute#networkInterface", **given, "name": f"nic{number}"}
    if given.get("accessConfigs"):
        accesses = given["accessConfigs"]
        interface["accessConfigs"] = [{**ACCESS_CONFIG, **access} for access in accesses]
    return interface
