"""The stand-in sends what Google's own provider was recorded with: tests/provider_requests.py.

The programs are those of the recording: tests/engine/programs/everything, and pulumi/.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

import httpx
import pytest
from provider_requests import Recorded, sent, sequences

from muster_sandbox.engine.home import cloud_environment
from muster_sandbox.fakecloud import Cloud, Settings, handle, open_cloud
from muster_sandbox.fakecloud.http import Deferred, Request
from muster_sandbox.provider import mappings
from muster_sandbox.provider.fields import changes
from muster_sandbox.provider.resource import MAPPINGS, Resource
from muster_sandbox.provider.rest import CloudError, Rest

assert mappings
ZONE, REGION, PROJECT = "europe-west4-a", "europe-west4", "demo-project"
LABELS = {"cluster": "all"}
ACCOUNT = f"all-node@{PROJECT}.iam.gserviceaccount.com"
MEMBER = f"serviceAccount:{ACCOUNT}"
SUBNET = f"projects/{PROJECT}/regions/{REGION}/subnetworks/all-sub"
LINK = "https://www.googleapis.com/compute/v1/projects"
BUILDER = f"{LINK}/{PROJECT}/zones/{ZONE}/disks/all-builder"
IMAGE = f"{LINK}/{PROJECT}/global/images/all-image-1"
SCOPES = {"email": ACCOUNT, "scopes": ["cloud-platform"]}
DEBIAN = f"{LINK}/debian-cloud/global/images/debian-12-bookworm-v20261110"
EVERYTHING: list[tuple[str, dict[str, Any]]] = [
    ("compute/network:Network", {"name": "all-net", "autoCreateSubnetworks": False}),
    (
        "compute/subnetwork:Subnetwork",
        {
            "name": "all-sub",
            "network": f"projects/{PROJECT}/global/networks/all-net",
            "region": REGION,
            "ipCidrRange": "10.64.0.0/20",
        },
    ),
    (
        "compute/firewall:Firewall",
        {
            "name": "all-ssh",
            "network": "all-net",
            "allows": [{"protocol": "tcp", "ports": ["22"]}],
            "sourceRanges": ["35.235.240.0/20"],
            "targetServiceAccounts": [],
        },
    ),
    (
        "compute/router:Router",
        {
            "name": "all-router",
            "network": f"projects/{PROJECT}/global/networks/all-net",
            "region": REGION,
        },
    ),
    (
        "compute/routerNat:RouterNat",
        {
            "name": "all-nat",
            "router": "all-router",
            "region": REGION,
            "natIpAllocateOption": "AUTO_ONLY",
            "sourceSubnetworkIpRangesToNat": "LIST_OF_SUBNETWORKS",
            "subnetworks": [{"name": SUBNET, "sourceIpRangesToNats": ["ALL_IP_RANGES"]}],
            "logConfig": {"enable": True, "filter": "ERRORS_ONLY"},
        },
    ),
    (
        "compute/address:Address",
        {
            "name": "all-controller",
            "addressType": "INTERNAL",
            "subnetwork": SUBNET,
            "region": REGION,
            "labels": LABELS,
        },
    ),
    ("serviceaccount/account:Account", {"accountId": "all-node", "displayName": "nodes"}),
    (
        "projects/iAMCustomRole:IAMCustomRole",
        {
            "roleId": "all_controller",
            "title": "controller",
            "permissions": ["compute.instances.create", "compute.instances.delete"],
        },
    ),
    (
        "projects/iAMMember:IAMMember",
        {
            "project": PROJECT,
            "role": f"projects/{PROJECT}/roles/all_controller",
            "member": MEMBER,
            "condition": {
                "title": "own",
                "expression": "resource.name.startsWith("
                f"'projects/{PROJECT}/zones/{ZONE}/instances/all-')",
            },
        },
    ),
    (
        "serviceaccount/iAMMember:IAMMember",
        {
            "serviceAccountId": f"projects/{PROJECT}/serviceAccounts/{ACCOUNT}",
            "role": "roles/iam.serviceAccountUser",
            "member": MEMBER,
        },
    ),
    (
        "compute/subnetworkIAMMember:SubnetworkIAMMember",
        {
            "subnetwork": "all-sub",
            "region": REGION,
            "role": "roles/compute.networkUser",
            "member": MEMBER,
        },
    ),
    (
        "storage/bucket:Bucket",
        {
            "name": "all-bundle",
            "location": "EUROPE-WEST4",
            "uniformBucketLevelAccess": True,
            "publicAccessPrevention": "enforced",
            "labels": LABELS,
        },
    ),
    (
        "storage/bucketIAMMember:BucketIAMMember",
        {"bucket": "all-bundle", "role": "roles/storage.objectViewer", "member": MEMBER},
    ),
    (
        "secretmanager/secret:Secret",
        {"secretId": "all-munge", "replication": {"auto": {}}, "labels": LABELS},
    ),
    (
        "secretmanager/secretVersion:SecretVersion",
        {"secret": f"projects/{PROJECT}/secrets/all-munge", "secretData": "secret"},
    ),
    (
        "secretmanager/secretIamMember:SecretIamMember",
        {
            "secretId": "all-munge",
            "role": "roles/secretmanager.secretAccessor",
            "member": MEMBER,
        },
    ),
    (
        "compute/disk:Disk",
        {"name": "all-state", "zone": ZONE, "size": 20, "type": "pd-ssd", "labels": LABELS},
    ),
    (
        "compute/diskIamMember:DiskIamMember",
        {"name": "all-state", "zone": ZONE, "role": "roles/compute.viewer", "member": MEMBER},
    ),
    (
        "compute/resourcePolicy:ResourcePolicy",
        {
            "name": "all-snapshots",
            "region": REGION,
            "snapshotSchedulePolicy": {
                "schedule": {"dailySchedule": {"daysInCycle": 1, "startTime": "04:00"}},
                "retentionPolicy": {"maxRetentionDays": 7},
            },
        },
    ),
    (
        "compute/diskResourcePolicyAttachment:DiskResourcePolicyAttachment",
        {"name": "all-snapshots", "disk": "all-state", "zone": ZONE},
    ),
    ("compute/disk:Disk", {"name": "all-builder", "zone": ZONE, "image": DEBIAN}),
    (
        "compute/image:Image",
        {"name": "all-image-1", "family": "all-image", "sourceDisk": BUILDER, "labels": LABELS},
    ),
    (
        "compute/imageIamMember:ImageIamMember",
        {"image": "all-image-1", "role": "roles/compute.imageUser", "member": MEMBER},
    ),
    (
        "compute/instanceTemplate:InstanceTemplate",
        {
            "namePrefix": "all-cpu-",
            "machineType": "n1-standard-2",
            "disks": [{"sourceImage": IMAGE, "boot": True, "diskSizeGb": 20}],
            "networkInterfaces": [{"subnetwork": SUBNET}],
            "metadata": {"digest": "one"},
            "labels": LABELS,
            "scheduling": {
                "preemptible": True,
                "provisioningModel": "SPOT",
                "automaticRestart": False,
                "instanceTerminationAction": "DELETE",
            },
            "serviceAccount": SCOPES,
        },
    ),
    (
        "compute/instance:Instance",
        {
            "name": "all-controller",
            "zone": ZONE,
            "machineType": "n1-standard-2",
            "allowStoppingForUpdate": True,
            "bootDisk": {"initializeParams": {"image": IMAGE, "size": 20, "type": "pd-balanced"}},
            "attachedDisks": [
                {
                    "source": f"{LINK}/{PROJECT}/zones/{ZONE}/disks/all-state",
                    "deviceName": "state",
                }
            ],
            "networkInterfaces": [{"subnetwork": SUBNET, "networkIp": "10.64.0.2"}],
            "metadata": {"digest": "one", "block-project-ssh-keys": "TRUE"},
            "tags": ["all"],
            "labels": LABELS,
            "serviceAccount": SCOPES,
            "shieldedInstanceConfig": {"enableSecureBoot": True},
        },
    ),
    (
        "compute/instanceIAMMember:InstanceIAMMember",
        {
            "instanceName": "all-controller",
            "zone": ZONE,
            "role": "roles/compute.viewer",
            "member": MEMBER,
        },
    ),
    (
        "iap/tunnelInstanceIAMMember:TunnelInstanceIAMMember",
        {
            "instance": "all-controller",
            "zone": ZONE,
            "role": "roles/iap.tunnelResourceAccessor",
            "member": "user:ada@example.org",
        },
    ),
    ("compute/disk:Disk", {"name": "all-scratch", "zone": ZONE, "size": 10}),
    (
        "compute/instance:Instance",
        {
            "name": "all-login",
            "zone": ZONE,
            "machineType": "n1-standard-2",
            "bootDisk": {"initializeParams": {"image": "debian-cloud/debian-12"}},
            "networkInterfaces": [{"subnetwork": SUBNET, "accessConfigs": [{}]}],
        },
    ),
    (
        "compute/attachedDisk:AttachedDisk",
        {
            "disk": f"projects/{PROJECT}/zones/{ZONE}/disks/all-scratch",
            "instance": f"projects/{PROJECT}/zones/{ZONE}/instances/all-login",
        },
    ),
]
"""Type and inputs, in an order in which they can be made."""


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
    missing = [line for request in recorded if (line := comparable(request)) not in ours]
    assert missing == [], "sent otherwise: " + "\n".join(
        line for line in sorted(ours) if any(line[:60] == lacking[:60] for lacking in missing)
    )
