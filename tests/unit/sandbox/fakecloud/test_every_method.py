"""Every method of Compute Engine's description, with any body: never an error in fakecloud."""

import json
import re
from typing import Any
from urllib.parse import urlencode

import pytest
from fakecloud_calls import REGION, ZONE, Caller, instance

from muster_sandbox.fakecloud import Cloud, descriptions, handle
from muster_sandbox.fakecloud.call import HANDLERS
from muster_sandbox.fakecloud.http import Deferred, Request

V1 = descriptions.load("compute.v1")
OURS = sorted(name for name in HANDLERS if name.startswith("compute."))
PLACES = {"project": "demo-project", "zone": "europe-west4-a", "region": "europe-west4"}
DECENT = {"string": "x", "integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}}


def send(cloud: Cloud, method: str, body: Any = None, **query: str) -> int:
    """Call a method on resources named x; the status."""
    template = V1.methods[method].path
    path = re.sub(r"\{\+?(\w+)\}", lambda match: PLACES.get(match[1], "x"), template)
    reply = handle(
        cloud,
        Request(
            V1.methods[method].verb,
            f"/{path}",
            urlencode(query),
            {"authorization": "Bearer owner"},
            b"" if body is None else json.dumps(body).encode(),
        ),
    )
    assert not isinstance(reply, Deferred)
    return reply.status


def test_methods_without_handler_say_that_they_have_none(fake: Cloud):
    statuses = {name: send(fake, name) for name in V1.methods if name not in HANDLERS}
    assert len(statuses) > 800
    assert {name: status for name, status in statuses.items() if status != 501} == {}


@pytest.fixture
def furnished(lab: Caller) -> Cloud:
    """A cloud with one resource x of each kind."""
    subnet = {"name": "x", "network": "global/networks/lab", "ipCidrRange": "10.9.0.0/24"}
    lab.post("global/networks", {"name": "x", "autoCreateSubnetworks": False})
    lab.post(f"{REGION}/subnetworks", subnet)
    network = {"name": "x", "network": "global/networks/x"}
    lab.post("global/firewalls", {**network, "allowed": [{"IPProtocol": "all"}]})
    lab.post(f"{REGION}/routers", network)
    lab.post(f"{REGION}/addresses", {"name": "x"})
    lab.post(f"{REGION}/resourcePolicies", {"name": "x", "groupPlacementPolicy": {}})
    lab.post(f"{ZONE}/instances", instance("x"))
    lab.post("global/images", {"name": "x", "sourceDisk": f"{ZONE}/disks/x"}, forceCreate="true")
    lab.post("global/snapshots", {"name": "x", "sourceDisk": f"{ZONE}/disks/x"})
    properties = {**instance("x"), "machineType": "n1-standard-2"}
    del properties["name"]
    lab.post("global/instanceTemplates", {"name": "x", "properties": properties})
    return lab.cloud


@pytest.mark.parametrize("method", OURS)
def test_any_body_gets_an_answer(furnished: Cloud, method: str):
    described = V1.methods[method]
    bodies: list[Any] = [None, {}]
    if described.request:
        properties = V1.schemas[described.request["$ref"]]["properties"]
        for name, schema in properties.items():
            kind = "object" if "$ref" in schema else schema["type"]
            bodies += [{name: DECENT[kind]}, {name: None}, {"name": "y", name: DECENT[kind]}]
        bodies.append(
            {name: DECENT.get(schema.get("type"), {}) for name, schema in properties.items()}
        )
    own = [
        name for name, parameter in described.parameters.items() if parameter["location"] == "query"
    ]
    queries = [{}, *({name: "x"} for name in own), *({name: "1"} for name in own)]
    statuses = {send(furnished, method, body) for body in bodies}
    statuses |= {send(furnished, method, {}, **query) for query in queries}
    assert furnished.failures == []
    assert statuses <= {200, 400, 403, 404, 409, 412, 501}
