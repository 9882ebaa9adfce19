"""The controller's rights against a cloud that enforces them: enough, and none to spare."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest

from muster.cloud import rights
from muster.cloud.names import Names
from muster.fakecloud import Settings, identity
from muster.fakecloud.server import Server

CLOUD_PLATFORM = "https://www.googleapis.com/auth/cloud-platform"
P = "projects/demo-project"
COMPUTE = f"/compute/v1/{P}"
REGION, ZONE = "europe-west4", "europe-west4-a"
NODES = f"{COMPUTE}/zones/{ZONE}/instances"
LABELS = {"muster-cluster": "lab", "muster-role": "node"}
NAMES = Names("lab", "demo-project")


class Cloud:
    """A cloud with all that nodes of the cluster `lab` are made of."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.clients = ExitStack()
        self.owner = self.client("owner")
        self.network()
        self.node = self.account("lab-node")
        self.controller = self.account("lab-controller")
        self.template()

    def client(self, token: str) -> httpx.Client:
        headers = {"Authorization": f"Bearer {token}"}
        client = httpx.Client(base_url=self.server.url, headers=headers, trust_env=False)
        return self.clients.enter_context(client)

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = self.owner.post(path, json=body)
        assert answer.is_success, answer.text
        return dict(answer.json())

    def account(self, name: str) -> str:
        body = {"accountId": name, "serviceAccount": {}}
        return str(self.post(f"/iam/v1/{P}/serviceAccounts", body)["email"])

    def network(self) -> None:
        self.post(f"{COMPUTE}/global/networks", {"name": "lab", "autoCreateSubnetworks": False})
        subnet = {"name": "lab", "network": "global/networks/lab", "ipCidrRange": "10.0.0.0/20"}
        self.post(f"{COMPUTE}/regions/{REGION}/subnetworks", subnet)
        self.post(f"{COMPUTE}/zones/{ZONE}/disks", {"name": "d", "sizeGb": "10"})
        image = {"name": "lab-1", "sourceDisk": f"zones/{ZONE}/disks/d"}
        self.post(f"{COMPUTE}/global/images", image)
        policy = {"name": "lab-debug", "groupPlacementPolicy": {"collocation": "COLLOCATED"}}
        self.post(f"{COMPUTE}/regions/{REGION}/resourcePolicies", policy)

    def template(self) -> None:
        """As components/nodeset.py makes it, with a placement policy."""
        disk = {
            "boot": True,
            "autoDelete": True,
            "initializeParams": {"sourceImage": f"{P}/global/images/lab-1", "labels": LABELS},
        }
        properties = {
            "machineType": "c2-standard-4",
            "disks": [disk],
            "networkInterfaces": [{"subnetwork": f"{P}/regions/{REGION}/subnetworks/lab"}],
            "serviceAccounts": [{"email": self.node, "scopes": [CLOUD_PLATFORM]}],
            "labels": LABELS,
            "metadata": {"items": [{"key": "muster-role", "value": "node"}]},
            "resourcePolicies": [f"{P}/regions/{REGION}/resourcePolicies/lab-debug"],
            "scheduling": {"onHostMaintenance": "TERMINATE", "automaticRestart": False},
        }
        body = {"name": "lab-debug-1", "properties": properties}
        self.post(f"{COMPUTE}/global/instanceTemplates", body)

    def grant(self, without: str = "") -> httpx.Client:
        """Give the controller its rights but one, and return it as a caller."""
        member = [f"serviceAccount:{self.controller}"]
        condition = {
            "title": "own",
            "expression": rights.own_names(NAMES, [ZONE]),
        }
        anywhere_too = (*rights.ANYWHERE, *rights.PLACES)
        own = {"role": self.role("own", rights.OWN, without), "members": member}
        anywhere = {"role": self.role("lists", anywhere_too, without), "members": member}
        uses = {"role": self.role("uses", rights.USES, without), "members": member}
        project = f"/cloudresourcemanager/v1/{P}"
        policy = self.post(f"{project}:getIamPolicy", {"options": {"requestedPolicyVersion": 3}})
        bindings = [*policy["bindings"], {**own, "condition": condition}, anywhere]
        whole = {"policy": {**policy, "version": 3, "bindings": bindings}}
        self.post(f"{project}:setIamPolicy", whole)
        subnet = f"{COMPUTE}/regions/{REGION}/subnetworks/lab"
        self.post(f"{subnet}/setIamPolicy", {"policy": {"version": 3, "bindings": [uses]}})
        account = f"/iam/v1/{P}/serviceAccounts/{self.node}"
        self.post(f"{account}:setIamPolicy", {"policy": {"version": 3, "bindings": [uses]}})
        token = self.server.do(
            lambda cloud: identity.issue(cloud, self.controller, (CLOUD_PLATFORM,), 3600)
        )
        return self.client(token)

    def role(self, purpose: str, permissions: tuple[str, ...], without: str) -> str:
        included = [each for each in permissions if each != without]
        body = {
            "roleId": NAMES.custom_role(purpose, "abc123"),
            "role": {"title": purpose, "includedPermissions": included},
        }
        return str(self.post(f"/iam/v1/{P}/roles", body)["name"])


@contextmanager
def new_cloud() -> Iterator[Cloud]:
    server = Server(Settings()).start()
    made = Cloud(server)
    with made.clients:
        yield made
    server.stop()
    assert server.cloud.failures == []


@pytest.fixture
def cloud(program_path: None) -> Iterator[Cloud]:
    with new_cloud() as made:
        yield made


def work(caller: httpx.Client) -> list[httpx.Response]:
    """All that the controller does with nodes."""
    template = {"sourceInstanceTemplate": f"{P}/global/instanceTemplates/lab-debug-1"}
    made = caller.post(NODES, json={"name": "lab-debug-0"}, params=template)
    operation = made.json().get("name", "none")
    return [
        made,
        caller.get(f"{COMPUTE}/zones/{ZONE}/operations/{operation}"),
        caller.get(NODES, params={"filter": "labels.muster-cluster=lab"}),
        caller.get(f"{NODES}/lab-debug-0"),
        caller.delete(f"{NODES}/lab-debug-0"),
    ]


def test_they_are_enough(cloud: Cloud):
    answers = work(cloud.grant())
    assert [each.status_code for each in answers] == [200] * 5, [each.text for each in answers]


def test_none_is_to_spare(cloud: Cloud):
    spare = []
    for permission in (*rights.OWN, *rights.ANYWHERE, *rights.PLACES, *rights.USES):
        with new_cloud() as other:
            answers = work(other.grant(without=permission))
        if not any(each.status_code == 403 for each in answers):
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
    assert [each.status_code for each in beyond] == [403] * len(beyond)
