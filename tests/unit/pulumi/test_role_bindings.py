"""The controller's rights against a cloud that enforces them: enough, and none to spare."""

from collections.abc import Iterator

import httpx
import pytest
from controllerkit import CLOUD_PLATFORM, COMPUTE, REGION, ZONE, Cloud, P, new_cloud

from muster.gcp import service_account_permissions
from muster_sandbox.fakecloud import identity
from muster_sandbox.fakecloud.services.compute.lifecycle import GUEST_ATTRIBUTES

NODES = f"{COMPUTE}/zones/{ZONE}/instances"
POLICIES = f"{COMPUTE}/regions/{REGION}/resourcePolicies"
COMPACT = {"groupPlacementPolicy": {"collocation": "COLLOCATED"}}


@pytest.fixture
def cloud(program_path: None) -> Iterator[Cloud]:
    with new_cloud() as made:
        yield made


def work(caller: httpx.Client) -> list[httpx.Response]:
    """All that the controller does with nodes."""
    template = {"sourceInstanceTemplate": f"{P}/global/instanceTemplates/lab-debug-1"}
    made = caller.post(NODES, json={"name": "lab-debug-0"}, params=template)
    return [
        made,
        caller.get(f"{COMPUTE}/zones/{ZONE}/operations"),
        caller.get(NODES, params={"filter": "labels.muster-cluster=lab"}),
        caller.get(f"{NODES}/lab-debug-0"),
        caller.get(f"{NODES}/lab-debug-0/getGuestAttributes", params={"queryPath": "muster/"}),
        caller.get(f"{COMPUTE}/regions/{REGION}"),
        caller.get(COMPUTE),
        caller.post(POLICIES, json={"name": "lab-job7", **COMPACT}),
        caller.get(f"{COMPUTE}/regions/{REGION}/operations"),
        caller.get(f"{COMPUTE}/aggregated/resourcePolicies"),
        caller.delete(f"{POLICIES}/lab-job7"),
        caller.delete(f"{NODES}/lab-debug-0"),
    ]


def test_they_are_enough(cloud: Cloud):
    answers = work(cloud.grant())
    # It has not reported yet.
    wanted = [404 if "getGuestAttributes" in str(answer.url) else 200 for answer in answers]
    texts = [answer.text for answer in answers]
    assert [answer.status_code for answer in answers] == wanted, texts


def test_none_is_to_spare(cloud: Cloud):
    spare = []
    for permission in (
        *service_account_permissions.NODES,
        *service_account_permissions.DISKS,
        *service_account_permissions.SOURCES,
        *service_account_permissions.LISTS,
        *service_account_permissions.PLACES,
        *service_account_permissions.USES,
    ):
        with new_cloud() as other:
            answers = work(other.grant(without=permission))
        if not any(answer.status_code == 403 for answer in answers):
            spare.append(permission)
    assert spare == []


def test_they_reach_no_further(cloud: Cloud):
    caller = cloud.grant()
    template = {"sourceInstanceTemplate": f"{P}/global/instanceTemplates/lab-debug-1"}
    other = cloud.account("web-server")
    with_other = {
        "name": "lab-debug-7",
        "serviceAccounts": [{"email": other, "scopes": [CLOUD_PLATFORM]}],
    }
    beyond = [
        caller.post(NODES, json={"name": "web-1"}, params=template),
        caller.post(NODES, json=with_other, params=template),
        caller.delete(f"{COMPUTE}/regions/{REGION}/subnetworks/lab"),
        caller.delete(f"{COMPUTE}/global/images/lab-1"),
        caller.delete(f"{COMPUTE}/zones/{ZONE}/disks/d"),
        caller.post(f"/cloudresourcemanager/v1/{P}:getIamPolicy", json={}),
        caller.post(f"/iam/v1/{P}/serviceAccounts/{cloud.node}/keys", json={}),
    ]
    assert [answer.status_code for answer in beyond] == [403] * len(beyond)


def test_who_reaches_a_vm_sees_it_and_no_other(cloud: Cloud):
    template = {"sourceInstanceTemplate": f"{P}/global/instanceTemplates/lab-debug-1"}
    enabled = {"items": [{"key": "enable-guest-attributes", "value": "TRUE"}]}
    for name in ("lab-login-0", "lab-controller"):
        body = {"name": name, "metadata": enabled}
        assert cloud.owner.post(NODES, json=body, params=template).is_success
    scope = f"demo-project/zones/{ZONE}/lab-login-0"
    cloud.server.do(
        lambda c: c.store.put(GUEST_ATTRIBUTES, scope, "hostkeys/ssh-ed25519", {"value": "AAAA"})
    )
    ada = cloud.account("ada-of-example")
    role = cloud.role("reaches", service_account_permissions.REACHES, "")
    binding = {"role": role, "members": [f"serviceAccount:{ada}"]}
    policy = {"policy": {"version": 3, "bindings": [binding]}}
    cloud.post(f"{NODES}/lab-login-0/setIamPolicy", policy)
    token = cloud.server.do(lambda c: identity.issue(c, ada, (CLOUD_PLATFORM,), 3600))
    caller = cloud.client(token)
    keys = {"queryPath": "hostkeys/"}
    assert caller.get(f"{NODES}/lab-login-0").status_code == 200
    assert "AAAA" in caller.get(f"{NODES}/lab-login-0/getGuestAttributes", params=keys).text
    beyond = [
        caller.get(NODES),
        caller.get(f"{NODES}/lab-controller"),
        caller.get(f"{NODES}/lab-controller/getGuestAttributes", params=keys),
        caller.get(f"{NODES}/lab-login-0/serialPort"),
        caller.post(f"{NODES}/lab-login-0/setMetadata", json={}),
        caller.delete(f"{NODES}/lab-login-0"),
    ]
    assert [answer.status_code for answer in beyond] == [403] * len(beyond)
