"""The stand-in sends what Google's own provider was recorded with: tests/provider_requests.py."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

import httpx
import pytest
from provider_requests import Recorded, sent, sequences
from recorded_cluster import BOOT, CLUSTER
from recorded_programs import EVERYTHING, PROJECT, REGION, SUBNET, ZONE

from muster_sandbox.engine.home import cloud_environment
from muster_sandbox.fakecloud import Cloud, Settings, handle, open_cloud
from muster_sandbox.fakecloud.http import Deferred, Request
from muster_sandbox.provider import mappings
from muster_sandbox.provider.fields import changes
from muster_sandbox.provider.resource import MAPPINGS, Resource
from muster_sandbox.provider.rest import CloudError, Rest

assert mappings


class InThisThread(httpx.BaseTransport):
    """Calls a fakecloud without HTTP, and remembers the calls."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.calls: list[Recorded] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        path, _, query = request.url.raw_path.decode().partition("?")
        content = request.read()
        body = json.loads(content) if content and not path.startswith("/upload/") else None
        headers = {name.lower(): value for name, value in request.headers.items()}
        answer = handle(self.cloud, Request(request.method, path, query, headers, content))
        assert not isinstance(answer, Deferred), "it is still to come"
        self.calls.append(Recorded(request.method, path, query, body, answer.status))
        return httpx.Response(answer.status, headers=answer.headers, content=answer.content)


@dataclass
class Program:
    """Makes, changes and deletes resources through the stand-in."""

    rest: Rest
    transport: InThisThread
    made: list[tuple[Resource, str, dict[str, Any], dict[str, Any]]] = field(default_factory=list)

    def make(self, kind: str, inputs: dict[str, Any]) -> None:
        """Make one; the next `up` must find no change."""
        mapping = MAPPINGS[kind](self.rest)
        made = mapping.create(inputs)
        state = mapping.state(made.id, made.answer, inputs)
        self.made.append((mapping, made.id, inputs, state))
        found = list(changes(mapping.fields, inputs, state, inputs))
        assert mapping.refine(found, state, inputs) == [], kind

    def change(self, **news: Any) -> list[Recorded]:
        """Change the newest resource in place, and return the calls."""
        mapping, identity, inputs, state = self.made.pop()
        wanted = {**inputs, **news}
        before = len(self.transport.calls)
        answer = mapping.update(identity, state, wanted, set(news))
        after = mapping.state(identity, answer, wanted)
        self.made.append((mapping, identity, wanted, after))
        found = list(changes(mapping.fields, wanted, after, wanted))
        assert mapping.refine(found, after, wanted) == []
        return self.transport.calls[before:]

    def delete_all(self) -> None:
        """Delete all, the newest first."""
        for mapping, identity, _, state in reversed(self.made):
            mapping.delete(identity, state)
        self.made.clear()


@pytest.fixture
def program() -> Iterator[Program]:
    cloud = open_cloud(Settings())
    transport = InThisThread(cloud)
    config = {"zone": ZONE, "region": REGION, "batching": '{"sendAfter":"0s"}'}
    rest = Rest(config, cloud_environment("http://fake.test", PROJECT), transport=transport)
    yield Program(rest, transport)
    rest.close()
    cloud.close()
    assert cloud.failures == []


def comparable(request: Recorded) -> str:
    """A request without what differs from run to run, and what clients choose: alt, prettyPrint."""
    query = sorted(x for x in parse_qsl(request.query) if x[0] not in {"alt", "prettyPrint"})
    path = re.sub(r"(all-cpu-)\d+", r"\1N", request.path)
    return json.dumps([request.verb, path, query, without_marks(request.body)], sort_keys=True)


def without_marks(value: Any) -> Any:
    """A body without the values of fingerprints and etags, and the number in a template's name."""
    if isinstance(value, dict):
        marks = {"etag", "fingerprint", "labelFingerprint"}
        return {key: "" if key in marks else without_marks(v) for key, v in value.items()}
    if isinstance(value, list):
        return [without_marks(item) for item in value]
    return re.sub(r"^(all-cpu-)\d+$", r"\1N", value) if isinstance(value, str) else value


def test_one_resource_of_each_type_is_made_and_deleted_by_the_same_bodies(program: Program):
    for kind, inputs in EVERYTHING:
        program.make(kind, inputs)
    program.delete_all()
    ours = {comparable(call) for call in program.transport.calls}
    theirs = sequences()["one resource of each type is made, refreshed and destroyed"]
    recorded = [request for request in theirs if request.body is not None]
    assert len(recorded) > 30
    assert [line for request in recorded if (line := comparable(request)) not in ours] == []


@pytest.mark.parametrize(
    ("kind", "path", "name", "inputs"), CLUSTER, ids=[item[2] for item in CLUSTER]
)
def test_a_cluster_is_made_by_the_same_bodies(
    program: Program, kind: str, path: str, name: str, inputs: dict[str, Any]
):
    """Labels, metadata and images are those of the recording."""
    recorded = sent("POST", path, name=name)
    given = dict(inputs)
    inner = recorded.get("properties", recorded)
    if "disks" in inner:
        labels = {key: value for key, value in inner["labels"].items() if "provisioned" not in key}
        metadata = {item["key"]: item["value"] for item in inner["metadata"]["items"]}
        given |= {"labels": labels, "metadata": metadata}
    if "disks" in inputs:
        first = inner["disks"][0]["initializeParams"]
        boot = {**BOOT, "labels": first["labels"], "sourceImage": first["sourceImage"]}
        given["disks"] = [boot, *inputs["disks"][1:]]
    assert MAPPINGS[kind](program.rest).body({**given, "name": recorded["name"]}) == recorded


def test_googles_defaults_change_nothing_in_a_cluster(program: Program):
    """The second `up` finds what the first one made; a machine's disks name an image of ours."""
    for role in ("controller", "login", "node"):
        program.make("serviceaccount/account:Account", {"accountId": f"slurm10-{role}"})
    program.make("compute/disk:Disk", {"name": "source", "zone": ZONE, "size": 10})
    source = f"projects/{PROJECT}/zones/{ZONE}/disks/source"
    image = {"name": "slurm10-1", "family": "slurm10", "sourceDisk": source}
    program.make("compute/image:Image", image)
    for kind, _, name, inputs in CLUSTER:
        given = {"name": name, **inputs}
        if "machineType" in inputs:
            given["metadata"] = {"digest": "one"}
        if "disks" in inputs:
            boot = {**BOOT, "sourceImage": f"projects/{PROJECT}/global/images/slurm10-1"}
            given["disks"] = [boot, *inputs["disks"][1:]]
        program.make(kind, given)
    program.delete_all()


@pytest.fixture
def machine(program: Program) -> Program:
    """A program whose newest resource is a VM."""
    for kind, inputs in EVERYTHING:
        if kind in {"compute/network:Network", "compute/subnetwork:Subnetwork"}:
            program.make(kind, inputs)
    initial = {"image": "debian-cloud/debian-12", "size": 20, "labels": {"a": "b"}}
    inputs = {
        "name": "vm",
        "zone": ZONE,
        "machineType": "n1-standard-2",
        "bootDisk": {"initializeParams": initial},
        "networkInterfaces": [{"subnetwork": SUBNET}],
    }
    program.make("compute/instance:Instance", inputs)
    return program


VM, VMS_DISK = f"zones/{ZONE}/instances/vm", f"zones/{ZONE}/disks/vm"


def lines(calls: list[Recorded]) -> list[tuple[str, Any]]:
    """Verb and path of each call, and its body."""
    return [
        (
            f"{call.verb} {call.path.removeprefix(f'/compute/beta/projects/{PROJECT}/')}",
            without_marks(call.body),
        )
        for call in calls
    ]


def test_a_larger_boot_disk_is_resized_in_place(machine: Program):
    initial = {"image": "debian-cloud/debian-12", "size": 40, "labels": {"a": "c"}}
    size, labels = {"sizeGb": 40}, {"labels": {"a": "c"}, "labelFingerprint": ""}
    assert lines(machine.change(bootDisk={"initializeParams": initial})) == [
        (f"GET {VM}", None),
        (f"GET {VMS_DISK}", None),
        (f"POST {VMS_DISK}/resize", size),
        (f"POST {VMS_DISK}/setLabels", labels),
        (f"GET {VM}", None),
        (f"GET {VMS_DISK}", None),
    ]
    assert sent("POST", f"zones/{ZONE}/disks/slurm10-controller/resize") == size


def test_a_smaller_boot_disk_is_refused_by_the_cloud(machine: Program):
    initial = {"image": "debian-cloud/debian-12", "size": 10, "labels": {"a": "b"}}
    with pytest.raises(CloudError, match="New disk size must be larger than existing disk size"):
        machine.change(bootDisk={"initializeParams": initial})


def test_a_public_address_comes_and_goes_with_the_security_policy(machine: Program):
    nowhere = {"networkInterfaces": ["nic0"]}
    end = [
        (f"GET {VM}", None),
        (f"POST {VM}/setSecurityPolicy", nowhere),
        (f"GET {VM}", None),
        (f"GET {VMS_DISK}", None),
    ]
    public = [{"subnetwork": SUBNET, "accessConfigs": [{}]}]
    access = {"type": "ONE_TO_ONE_NAT"}
    assert lines(machine.change(networkInterfaces=public)) == [
        (f"GET {VM}", None),
        (f"POST {VM}/addAccessConfig", access),
        *end,
    ]
    assert lines(machine.change(networkInterfaces=[{"subnetwork": SUBNET}])) == [
        (f"GET {VM}", None),
        (f"POST {VM}/deleteAccessConfig", None),
        *end,
    ]
    login = f"zones/{ZONE}/instances/slurm10-login-1"
    assert sent("POST", f"{login}/addAccessConfig") == access
    assert sent("POST", f"{login}/setSecurityPolicy") == nowhere


def test_a_networks_mtu_and_routing_are_changed_in_place(program: Program):
    kind, inputs = EVERYTHING[0]
    program.make(kind, inputs)
    net = "global/networks/all-net"
    assert lines(program.change(mtu=8896)) == [
        (f"GET {net}", None),
        (f"PATCH {net}", {"fingerprint": "", "mtu": 8896}),
        (f"GET {net}", None),
    ]
    routing = {"routingMode": "GLOBAL", "deleteBgpAlwaysCompareMed": False}
    order = "AFTER_CLASSIC_FIREWALL"
    assert lines(program.change(routingMode="GLOBAL")) == [
        (
            f"PATCH {net}",
            {"networkFirewallPolicyEnforcementOrder": order, "routingConfig": routing},
        ),
        (f"GET {net}", None),
    ]


def test_a_changed_nat_keeps_what_it_is(program: Program):
    for kind, inputs in EVERYTHING[:5]:
        if "irewall" not in kind:
            program.make(kind, inputs)
    calls = lines(program.change(minPortsPerVm=128))
    ((_, body),) = [line for line in calls if line[0].startswith("PATCH")]
    (nat,) = body["nats"]
    assert (nat["minPortsPerVm"], nat["type"]) == (128, "PUBLIC")
    assert (nat["endpointTypes"], nat["initialNatIps"]) == (["ENDPOINT_TYPE_VM"], None)
