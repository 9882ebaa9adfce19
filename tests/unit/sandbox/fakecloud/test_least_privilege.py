"""The controller's permissions: enough for its work, and no others.

It creates nodes from a template, one by one and in bulk, reads them and its operations, and deletes
them. It must not change another machine, read another secret or act as another account.
"""

from typing import Any

import pytest
from fakecloud_api import CLOUD_PLATFORM, PROJECT, Api, role
from fakecloud_calls import REGION, ZONE, Caller, instance

CRM = f"/cloudresourcemanager/v1/{PROJECT}"
COMPUTE = f"/compute/v1/{PROJECT}"
NODES = f"{COMPUTE}/{ZONE}/instances"
TEMPLATE = f"{PROJECT}/global/instanceTemplates/lab-debug"
NAMED = "resource.name.startsWith"
MINE = " || ".join(
    f'{NAMED}("{PROJECT}/{collection}/lab-")'
    for collection in (
        f"{ZONE}/instances",
        f"{ZONE}/disks",
        "global/images",
        "global/instanceTemplates",
    )
)
BY_NAME = (
    "compute.disks.create",
    "compute.images.useReadOnly",
    "compute.instanceTemplates.useReadOnly",
    "compute.instances.create",
    "compute.instances.delete",
    "compute.instances.get",
    "compute.instances.setLabels",
    "compute.instances.setMetadata",
    "compute.instances.setServiceAccount",
    "compute.instances.setTags",
)
EVERYWHERE = ("compute.instances.list", "compute.zoneOperations.get")
IMAGE = f"{PROJECT}/global/images/lab-1"


@pytest.fixture
def node(lab: Caller, api: Api) -> Api:
    """The compute nodes' account; their image and template exist."""
    account = api.account("lab-compute")
    api.ok("POST", f"{COMPUTE}/{ZONE}/disks", {"name": "d", "sizeGb": "10"})
    api.ok("POST", f"{COMPUTE}/global/images", {"name": "lab-1", "sourceDisk": f"{ZONE}/disks/d"})
    properties = instance("")
    del properties["name"]
    properties["machineType"] = "n1-standard-2"
    properties["networkInterfaces"][0]["subnetwork"] = f"{PROJECT}/{REGION}/subnetworks/lab"
    properties["disks"][0]["initializeParams"]["sourceImage"] = IMAGE
    properties |= {
        "serviceAccounts": [{"email": account.email, "scopes": [CLOUD_PLATFORM]}],
        "labels": {"muster": "lab"},
        "metadata": {"items": [{"key": "enable-oslogin", "value": "FALSE"}]},
        "tags": {"items": ["lab"]},
    }
    template = {"name": "lab-debug", "properties": properties}
    api.ok("POST", f"{COMPUTE}/global/instanceTemplates", template)
    return account


def controller(api: Api, node: Api, without: str = "") -> Api:
    """The controller's account with all its permissions but one."""
    made = api.account("lab-controller")

    def some(permissions: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(permission for permission in permissions if permission != without)

    api.grant(CRM, role(api, "lab_nodes", *some(BY_NAME)), made.member, condition=MINE)
    api.grant(CRM, role(api, "lab_lists", *some(EVERYWHERE)), made.member)
    subnet = f"{COMPUTE}/{REGION}/subnetworks/lab"
    api.grant(subnet, role(api, "lab_net", *some(("compute.subnetworks.use",))), made.member)
    account = f"/iam/v1/{PROJECT}/serviceAccounts/{node.email}"
    api.grant(account, role(api, "lab_acts", *some(("iam.serviceAccounts.actAs",))), made.member)
    return made


def work(caller: Api) -> list[tuple[int, dict[str, Any]]]:
    """All calls of the controller, with the answers."""
    one = caller("POST", NODES, {"name": "lab-0"}, sourceInstanceTemplate=TEMPLATE)
    many = {
        "count": 2,
        "sourceInstanceTemplate": TEMPLATE,
        "perInstanceProperties": {"lab-1": {}, "lab-2": {}},
    }
    bulk = caller("POST", f"{NODES}/bulkInsert", many)
    operation = one[1].get("name", "none")
    return [
        one,
        bulk,
        caller("GET", f"{COMPUTE}/{ZONE}/operations/{operation}"),
        caller("GET", NODES, filter="labels.muster=lab"),
        caller("GET", f"{NODES}/lab-0"),
        caller("DELETE", f"{NODES}/lab-0"),
    ]


def test_it_is_enough(api: Api, node: Api):
    answers = work(controller(api, node))
    assert [status for status, _ in answers] == [200] * len(answers), answers


@pytest.mark.parametrize(
    "permission",
    [*BY_NAME, *EVERYWHERE, "compute.subnetworks.use", "iam.serviceAccounts.actAs"],
)
def test_none_is_to_spare(api: Api, node: Api, permission: str):
    answers = work(controller(api, node, without=permission))
    messages = [
        body["error"]["message"] for status, body in answers if status == 403 and "error" in body
    ]
    wanted = node.email if permission.endswith("actAs") else f"'{permission}'"
    assert any(wanted in message for message in messages), answers


def test_it_reaches_no_further(api: Api, node: Api):
    assert api("POST", NODES, instance("web-0"))[0] == 200
    body = {"replication": {"automatic": {}}}
    api.ok("POST", f"/secretmanager/v1/{PROJECT}/secrets", body, secretId="web")
    other = api.account("web-server")
    caller = controller(api, node)
    with_other = {
        "name": "lab-7",
        "serviceAccounts": [{"email": other.email, "scopes": [CLOUD_PLATFORM]}],
    }
    beyond = [
        caller("DELETE", f"{NODES}/web-0"),
        caller("GET", f"{NODES}/web-0"),
        caller("POST", NODES, {"name": "web-1"}, sourceInstanceTemplate=TEMPLATE),
        caller("POST", NODES, with_other, sourceInstanceTemplate=TEMPLATE),
        caller("DELETE", f"{COMPUTE}/{REGION}/subnetworks/lab"),
        caller("DELETE", f"{COMPUTE}/global/images/lab-1"),
        caller("GET", f"/secretmanager/v1/{PROJECT}/secrets/web"),
        caller("POST", f"{CRM}:getIamPolicy", {}),
        caller("POST", f"/iam/v1/{PROJECT}/serviceAccounts/{node.email}/keys", {}),
    ]
    assert [status for status, _ in beyond] == [403] * len(beyond), beyond
