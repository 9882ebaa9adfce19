"""What Google fills into an answer, and what it leaves out of one."""

from typing import Any

import pytest
from fakecloud_calls import REGION, ZONE, Caller, instance

TEMPLATE = "global/instanceTemplates/one"
NAMELESS_DISK = {"initializeParams": {"sourceImage": "global/images/x"}, "boot": True}
SPOT = {
    "automaticRestart": False,
    "onHostMaintenance": "TERMINATE",
    "preemptible": True,
    "provisioningModel": "SPOT",
}
STANDARD = {
    "automaticRestart": True,
    "onHostMaintenance": "MIGRATE",
    "preemptible": False,
    "provisioningModel": "STANDARD",
}
SCHEDULING: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, STANDARD),
    ({"provisioningModel": "", "instanceTerminationAction": ""}, STANDARD),
    ({"automaticRestart": False}, {**STANDARD, "automaticRestart": False}),
    ({"provisioningModel": "SPOT"}, SPOT),
    ({"preemptible": True}, SPOT),
]


def template(**members: Any) -> dict[str, Any]:
    properties = {
        "machineType": "n1-standard-2",
        "disks": [NAMELESS_DISK],
        "networkInterfaces": [{"subnetwork": f"{REGION}/subnetworks/lab"}],
        **members,
    }
    return {"name": "one", "properties": properties}


@pytest.mark.parametrize(("given", "expected"), SCHEDULING)
def test_scheduling(lab: Caller, given: dict[str, Any], expected: dict[str, Any]):
    """Of instances and templates alike; an enum that is "" is not set."""
    lab.post("global/instanceTemplates", template(scheduling=given))
    assert lab.get(TEMPLATE)["properties"]["scheduling"] == expected
    lab.post(f"{ZONE}/instances", instance("one", scheduling=given))
    assert lab.get(f"{ZONE}/instances/one")["scheduling"] == expected


def test_a_templates_disks_and_interfaces(lab: Caller):
    interface = {"subnetwork": f"{REGION}/subnetworks/lab", "accessConfigs": [{}]}
    scratch = {
        "type": "SCRATCH",
        "initializeParams": {"diskType": "local-ssd"},
        "interface": "NVME",
    }
    body = template(disks=[NAMELESS_DISK, scratch], networkInterfaces=[interface])
    lab.post("global/instanceTemplates", body)
    made = lab.get(TEMPLATE)
    assert made["description"] == ""
    boot, second = made["properties"]["disks"]
    assert (boot["type"], boot["mode"]) == ("PERSISTENT", "READ_WRITE")
    assert (second["type"], second["mode"]) == ("SCRATCH", "READ_WRITE")
    assert not {"deviceName", "diskSizeGb", "interface"} & boot.keys()
    (nic,) = made["properties"]["networkInterfaces"]
    assert nic["name"] == "nic0"
    assert nic["accessConfigs"] == [
        {"kind": "compute#accessConfig", "type": "ONE_TO_ONE_NAT", "networkTier": "PREMIUM"}
    ]


@pytest.mark.parametrize("kind", ["pd-balanced", "hyperdisk-balanced"])
def test_a_disk(ask: Caller, kind: str):
    """A disk's access mode is only told of Hyperdisk."""
    ask.post(f"{ZONE}/disks", {"name": "one", "sizeGb": "10", "type": f"{ZONE}/diskTypes/{kind}"})
    made = ask.get(f"{ZONE}/disks/one")
    assert (made["enableConfidentialCompute"], made["physicalBlockSizeBytes"]) == (False, "4096")
    mode = "READ_WRITE_SINGLE" if kind.startswith("hyperdisk") else None
    assert made.get("accessMode") == mode


def test_what_a_disk_is_given_is_no_default(ask: Caller):
    given = {"physicalBlockSizeBytes": "16384", "accessMode": "READ_ONLY_MANY"}
    kind = f"{ZONE}/diskTypes/hyperdisk-balanced"
    ask.post(f"{ZONE}/disks", {"name": "one", "sizeGb": "10", "type": kind, **given})
    assert given.items() <= ask.get(f"{ZONE}/disks/one").items()


def test_the_boot_disk_of_an_instance(lab: Caller):
    lab.post(f"{ZONE}/instances", instance("one"))
    assert lab.get(f"{ZONE}/disks/one")["enableConfidentialCompute"] is False


def test_a_network(ask: Caller):
    routing = {"routingMode": "GLOBAL", "deleteBgpAlwaysCompareMed": False}
    body = {"name": "net", "autoCreateSubnetworks": False, "routingConfig": routing}
    ask.post("global/networks", body)
    network = ask.get("global/networks/net")
    assert network["mtu"] == 1460
    assert network["networkFirewallPolicyEnforcementOrder"] == "AFTER_CLASSIC_FIREWALL"
    assert network["routingConfig"] == {
        "routingMode": "GLOBAL",
        "bgpBestPathSelectionMode": "LEGACY",
    }


def test_a_networks_mtu_is_changed_in_place(lab: Caller):
    lab.ok("PATCH", "global/networks/lab", {"fingerprint": None, "mtu": 8896})
    assert lab.get("global/networks/lab")["mtu"] == 8896
    assert lab.get("global/networks/lab")["routingConfig"]["routingMode"] == "REGIONAL"


def test_a_subnet(lab: Caller):
    subnet = lab.get(f"{REGION}/subnetworks/lab")
    assert subnet["privateIpv6GoogleAccess"] == "DISABLE_GOOGLE_ACCESS"
    assert (subnet["purpose"], subnet["stackType"]) == ("PRIVATE", "IPV4_ONLY")


def test_a_nat(lab: Caller):
    lab.post(f"{REGION}/routers", {"name": "out", "network": "global/networks/lab"})
    nats = [
        {"name": "auto", "natIpAllocateOption": "AUTO_ONLY", "natIps": [], "initialNatIps": []},
        {"name": "own", "natIpAllocateOption": "MANUAL_ONLY", "rules": [], "type": "PUBLIC"},
    ]
    lab.ok("PATCH", f"{REGION}/routers/out", {"nats": nats})
    router = lab.get(f"{REGION}/routers/out")
    assert router["encryptedInterconnectRouter"] is False
    filled = {"endpointTypes": ["ENDPOINT_TYPE_VM"], "enableEndpointIndependentMapping": False}
    assert router["nats"] == [
        {
            "name": "auto",
            "natIpAllocateOption": "AUTO_ONLY",
            "autoNetworkTier": "PREMIUM",
            **filled,
        },
        {"name": "own", "natIpAllocateOption": "MANUAL_ONLY", "type": "PUBLIC", **filled},
    ]
