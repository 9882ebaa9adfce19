"""The effect of a changed input: the stand-in's comparison of program and state."""

import pytest

from muster_sandbox.provider.compute.disk import Disk
from muster_sandbox.provider.compute.images import same_image
from muster_sandbox.provider.compute.instance import Instance
from muster_sandbox.provider.compute.network import Firewall, Network, grows
from muster_sandbox.provider.fields import (
    changes,
    inputs_after_read,
    is_ignored,
    overlaid,
    planned,
    to_body,
    to_state,
)
from muster_sandbox.provider.values import UNKNOWN

LINK = "https://www.googleapis.com/compute/v1/projects"
NETWORK = {
    "name": "n",
    "autoCreateSubnetworks": False,
    "networkFirewallPolicyEnforcementOrder": "AFTER_CLASSIC_FIREWALL",
}


def changed(mapping, news: dict, state: dict, olds: dict | None = None) -> dict[str, bool]:
    """Path -> whether it replaces."""
    differences = changes(mapping.fields, news, state, news if olds is None else olds)
    return {change.path: change.replace for change in differences}


def test_what_the_cloud_fills_in_is_no_change():
    state = {**NETWORK, "mtu": 1460, "routingMode": "REGIONAL"}
    assert changed(Network, {"name": "n", "autoCreateSubnetworks": False}, state) == {}


def test_a_default_that_the_cloud_does_not_own_is_a_change_at_every_up():
    """It reveals what Google fills in otherwise than the provider expects."""
    news = {"name": "n", "autoCreateSubnetworks": False}
    assert changed(Network, news, NETWORK | {"description": "made"}) == {"description": True}
    other = {"networkFirewallPolicyEnforcementOrder": "BEFORE_CLASSIC_FIREWALL"}
    assert changed(Network, news, NETWORK | other) == dict.fromkeys(other, False)


def test_a_change_replaces_where_the_table_says_so():
    state = {**NETWORK, "mtu": 1460, "description": "one"}
    news = {"name": "n", "autoCreateSubnetworks": False, "mtu": 8896, "description": "two"}
    assert changed(Network, news, state) == {"mtu": False, "description": True}


def test_what_the_cloud_leaves_out_is_a_change_at_every_up():
    """It reveals a fake that answers less than Google."""
    news = {"name": "d", "zone": "z", "size": 20}
    complete = {"name": "d", "zone": "z", "size": 20, "type": "pd-standard"}
    assert changed(Disk, news, complete) == {}
    assert changed(Disk, news, {**complete, "zone": None}) == {"zone": True}
    assert changed(Disk, news, {**complete, "type": None}) == {"type": True}


def test_an_input_taken_out_of_the_program_is_a_change():
    state = {"name": "d", "zone": "z", "type": "pd-standard", "labels": {"a": "b"}}
    olds = {"name": "d", "zone": "z", "labels": {"a": "b"}}
    assert changed(Disk, {"name": "d", "zone": "z"}, state, olds) == {"labels": False}


def test_what_another_resource_does_not_know_yet_replaces_if_a_change_would():
    state = {"name": "f", "network": "n", "priority": 1000, "disabled": False}
    news = {"name": "f", "network": UNKNOWN, "disabled": UNKNOWN}
    assert changed(Firewall, news, state) == {"network": True, "disabled": False}


def test_links_are_compared_by_what_they_name():
    state = {"name": "f", "network": f"{LINK}/p/global/networks/n", "priority": 1000}
    for same in ("n", "projects/p/global/networks/n", state["network"]):
        assert changed(Firewall, {"name": "f", "network": same}, state) == {}
    other = {"name": "f", "network": "projects/q/global/networks/n"}
    assert changed(Firewall, other, state) == {"network": True}


def test_a_disk_attached_by_somebody_else_is_a_change_of_the_instance():
    """After a refresh AttachedDisk and the instance conflict: the provider's documentation."""
    attached = {"source": "d", "deviceName": "state", "mode": "READ_WRITE"}
    nic = {"network": "n", "accessConfigs": []}
    news = {"name": "i", "zone": "z", "machineType": "m", "networkInterfaces": [{"network": "n"}]}
    state = {**news, "networkInterfaces": [nic], "attachedDisks": [attached]}
    assert changed(Instance, news, state) == {"attachedDisks": False}
    assert changed(Instance, {**news, "attachedDisks": [attached]}, state) == {}


@pytest.mark.parametrize(
    ("new", "old", "same"),
    [
        ("debian-cloud/debian-12", "debian-cloud/global/images/debian-12-bookworm-v1", True),
        ("projects/debian-cloud/global/images/family/debian-12", "debian-12-bookworm-v1", True),
        ("slurm-123", "demo/global/images/slurm-123", True),
        ("projects/demo/global/images/family/slurm", "demo/global/images/slurm-123", True),
        ("projects/demo/global/images/family/slurm", "demo/global/images/img-123", False),
        ("projects/other/global/images/family/slurm", "demo/global/images/slurm-123", False),
        ("debian-cloud/debian-13", "debian-cloud/global/images/debian-12-bookworm-v1", False),
        ("debian-cloud/debian-12", None, False),
    ],
)
def test_a_family_is_its_image_only_if_the_image_name_holds_it(new, old, same):
    link = f"{LINK}/{old}" if old and "/" in old else old
    assert same_image(new, link) is same


@pytest.mark.parametrize(
    ("path", "pattern", "ignored"),
    [
        ("bootDisk.initializeParams.image", "bootDisk", True),
        ("bootDisk.initializeParams.image", "bootDisk.initializeParams.image", True),
        ("bootDisk.autoDelete", "bootDisk.initializeParams.image", False),
        ("metadataStartupScript", "metadata", False),
        ("networkInterfaces[1].networkIp", "networkInterfaces[*].networkIp", True),
        ("networkInterfaces[1].networkIp", "networkInterfaces[0]", False),
    ],
)
def test_changes_that_the_program_ignores(path, pattern, ignored):
    assert is_ignored(path, ["other", pattern]) is ignored


def test_a_range_can_grow_only():
    assert grows("10.0.0.0/20", "10.0.0.0/19")
    assert not grows("10.0.0.0/20", "10.0.0.0/21")
    assert not grows("10.0.0.0/20", UNKNOWN)


def test_a_preview_does_not_know_what_the_cloud_will_fill_in():
    plan = planned(Instance.fields, {"networkInterfaces": [{"network": "n"}], "name": "i"})
    assert plan["networkInterfaces"][0]["networkIp"] == UNKNOWN
    assert plan["zone"] == UNKNOWN
    assert plan["canIpForward"] is False
    known = {"networkInterfaces": [{"networkIp": "10.0.0.2", "network": "link"}], "zone": "z"}
    shown = overlaid(plan, known)
    assert shown["networkInterfaces"][0]["networkIp"] == "10.0.0.2"
    assert shown["networkInterfaces"][0]["network"] == "n"
    assert shown["zone"] == "z"


def test_bodies_and_states_are_each_others_mirror():
    inputs = {"name": "n", "autoCreateSubnetworks": False, "routingMode": "GLOBAL"}
    body = to_body(Network.fields, inputs)
    assert body["routingConfig"] == {"routingMode": "GLOBAL"}
    assert to_state(Network.fields, body, inputs) == NETWORK | inputs


def test_a_refresh_corrects_only_the_inputs_that_no_longer_hold():
    inputs = {"name": "f", "network": "n", "priority": 900, "allows": [{"protocol": "tcp"}]}
    state = {
        "name": "f",
        "network": f"{LINK}/p/global/networks/n",
        "priority": 1000,
        "allows": [{"protocol": "udp", "ports": []}],
    }
    corrected = inputs_after_read(Firewall.fields, inputs, state)
    assert corrected == {**inputs, "priority": 1000, "allows": [{"protocol": "udp"}]}
