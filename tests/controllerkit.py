"""A fakecloud with the cluster `lab`, and callers with exactly its controller's permissions."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx

from muster.gcp import service_account_permissions
from muster.gcp.names import Names
from muster_sandbox.fakecloud import Settings, identity
from muster_sandbox.fakecloud.clock import Clock, LoopClock
from muster_sandbox.fakecloud.server import Server

CLOUD_PLATFORM = "https://www.googleapis.com/auth/cloud-platform"
P = "projects/demo-project"
COMPUTE = f"/compute/v1/{P}"
REGION = "europe-west4"
ZONE, OTHER_ZONE = ("europe-west4-a", "europe-west4-b")
LABELS = {"muster-cluster": "lab", "muster-role": "node"}
NAMES = Names("lab", "demo-project")
SETS = ("debug", "calm", "gone", "other")
"""The node sets of the cluster; some tests name nodes of sets that have no template."""


class Cloud:
    """A cloud with everything that nodes of the cluster `lab` are made from."""

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
        # The server closes connections after 5 s without a call, and a call at that moment fails.
        none_kept = httpx.Limits(max_keepalive_connections=0)
        client = httpx.Client(
            base_url=self.server.url, headers=headers, trust_env=False, limits=none_kept
        )
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
        subnet = {"name": "lab", "network": "global/networks/lab", "ipCidrRange": "10.0.0.0/16"}
        self.post(f"{COMPUTE}/regions/{REGION}/subnetworks", subnet)
        self.post(f"{COMPUTE}/zones/{ZONE}/disks", {"name": "d", "sizeGb": "10"})
        image = {"name": "lab-1", "sourceDisk": f"zones/{ZONE}/disks/d"}
        self.post(f"{COMPUTE}/global/images", image)
        policy = {"name": "lab-debug", "groupPlacementPolicy": {"collocation": "COLLOCATED"}}
        self.post(f"{COMPUTE}/regions/{REGION}/resourcePolicies", policy)

    def template(self) -> None:
        """The template of components/nodeset.py, with a placement policy."""
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
            "metadata": {
                "items": [
                    {"key": "muster-role", "value": "node"},
                    {"key": "enable-guest-attributes", "value": "TRUE"},
                ]
            },
            "resourcePolicies": [f"{P}/regions/{REGION}/resourcePolicies/lab-debug"],
            "scheduling": {"onHostMaintenance": "TERMINATE", "automaticRestart": False},
        }
        body = {"name": "lab-debug-1", "properties": properties}
        self.post(f"{COMPUTE}/global/instanceTemplates", body)

    def grant(self, without: str = "", node_sets: Sequence[str] = SETS) -> httpx.Client:
        """Grant the controller all its permissions but one, and return it as a caller."""
        self.allow(without, node_sets)
        return self.client(self.token())

    def token(self) -> str:
        """An access token of the controller."""
        return self.server.do(
            lambda cloud: identity.issue(cloud, self.controller, (CLOUD_PLATFORM,), 3600)
        )

    def allow(self, without: str = "", node_sets: Sequence[str] = SETS) -> None:
        """Grant the controller all its permissions but one."""
        member = [f"serviceAccount:{self.controller}"]
        granted: list[dict[str, Any]] = []
        for role in service_account_permissions.in_project(NAMES, node_sets, places=True):
            binding = {
                "role": self.role(role.purpose, role.permissions, without),
                "members": member,
            }
            granted += [
                {**binding, "condition": {"title": role.purpose, "expression": expression}}
                if expression
                else binding
                for expression in role.conditions
            ]
        uses = {
            "role": self.role("uses", service_account_permissions.USES, without),
            "members": member,
        }
        project = f"/cloudresourcemanager/v1/{P}"
        policy = self.post(f"{project}:getIamPolicy", {"options": {"requestedPolicyVersion": 3}})
        bindings = [*policy["bindings"], *granted]
        whole = {"policy": {**policy, "version": 3, "bindings": bindings}}
        self.post(f"{project}:setIamPolicy", whole)
        subnet = f"{COMPUTE}/regions/{REGION}/subnetworks/lab"
        self.post(f"{subnet}/setIamPolicy", {"policy": {"version": 3, "bindings": [uses]}})
        account = f"/iam/v1/{P}/serviceAccounts/{self.node}"
        self.post(f"{account}:setIamPolicy", {"policy": {"version": 3, "bindings": [uses]}})

    def role(self, purpose: str, permissions: Sequence[str], without: str) -> str:
        included = [permission for permission in permissions if permission != without]
        body = {
            "roleId": NAMES.custom_role(purpose, "abc123"),
            "role": {"title": purpose, "includedPermissions": included},
        }
        return str(self.post(f"/iam/v1/{P}/roles", body)["name"])


@contextmanager
def new_cloud(clock: Callable[[asyncio.AbstractEventLoop], Clock] = LoopClock) -> Iterator[Cloud]:
    server = Server(Settings(), clock=clock).start()
    cloud = Cloud(server)
    with cloud.clients:
        yield cloud
    server.stop()
    assert server.cloud.failures == []
