"""The calls of Google's Pulumi provider, in its order, to all services but Compute Engine.

One sequence for each resource: create, refresh, change, delete, with the query parameters that it
sends. `$name` means a value of an earlier answer (`*name`: its elements). Recorded with pulumi_gcp
9.35 and a logging server; the fields that it needs in an answer are those in `has`.
"""

import base64
import hashlib
import re
from dataclasses import dataclass, field
from typing import Any

import google_crc32c
import pytest
from fakecloud_api import NUMBER, PROJECT, Api

OLD = {"alt": "json", "prettyPrint": "false"}
NEW = {"alt": "json"}


@dataclass
class Step:
    """A call and the required members of its answer; `keep`: variable -> member of the answer."""

    verb: str
    path: str
    body: Any = None
    query: dict[str, str] = field(default_factory=dict)
    status: int = 200
    has: dict[str, Any] = field(default_factory=dict)
    lacks: tuple[str, ...] = ()
    keep: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)


IAM, CRM, SM = "/iam/v1", "/cloudresourcemanager/v1", "/secretmanager/v1"
EMAIL = "lab-node@demo-project.iam.gserviceaccount.com"
ACCOUNT = f"{IAM}/{PROJECT}/serviceAccounts/{EMAIL}"
NEW_ACCOUNT = Step(
    "POST",
    f"{IAM}/{PROJECT}/serviceAccounts",
    {"accountId": "lab-node", "serviceAccount": {"displayName": "node", "description": ""}},
    OLD,
    has={"name": ACCOUNT[8:], "email": EMAIL, "projectId": "demo-project"},
)
ROLE = f"{IAM}/{PROJECT}/roles/lab_controller"
BUCKET = "/storage/v1/b/lab-bundle"
NEW_BUCKET = Step(
    "POST",
    "/storage/v1/b",
    {
        "name": "lab-bundle",
        "location": "EUROPE-WEST4",
        "storageClass": "STANDARD",
        "iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}},
        "labels": {"goog-pulumi-provisioned": "true", "muster": "lab"},
    },
    {**OLD, "project": "demo-project"},
    has={"location": "EUROPE-WEST4", "storageClass": "STANDARD"},
)
SECRET = f"{SM}/{PROJECT}/secrets/lab-munge"
NEW_SECRET = Step(
    "POST",
    f"{SM}/{PROJECT}/secrets",
    {
        "labels": {"goog-pulumi-provisioned": "true"},
        "replication": {"automatic": {}},
    },
    {**NEW, "secretId": "lab-munge"},
    has={"name": f"{NUMBER}/secrets/lab-munge", "replication": {"automatic": {}}},
)
CONTENT = b"bundle\r\n--not-the-boundary\0\xff"
MD5 = base64.b64encode(hashlib.md5(CONTENT, usedforsecurity=False).digest()).decode()


def upload(content: bytes, md5: str) -> Step:
    """The provider sends multipart/related without Content-Length."""
    metadata = b'{"bucket":"lab-bundle","name":"bundle/v1.tar","contentType":"application/x-tar"}'
    body = (
        b"--xyz\r\nContent-Type: application/json\r\n\r\n" + metadata + b"\r\n"
        b"--xyz\r\nContent-Type: application/x-tar\r\n\r\n" + content + b"\r\n--xyz--\r\n"
    )
    return Step(
        "POST",
        "/upload/storage/v1/b/lab-bundle/o",
        body,
        {**OLD, "name": "bundle/v1.tar", "uploadType": "multipart"},
        headers={"content-type": "multipart/related; boundary=xyz"},
        has={"md5Hash": md5, "name": "bundle/v1.tar", "contentType": "application/x-tar"},
    )


def member(read: Step, write: Step, role: str, who: str, **condition: Any) -> list[Step]:
    """Read, modify, set with the etag, three verifying reads and one for the resource."""
    binding = {"role": role, "members": [who], **condition}
    write.body["policy"]["bindings"] += [binding]
    reread = Step(read.verb, read.path, read.body, read.query, has={"bindings": [binding]})
    return [read, write, reread, reread, reread, reread]


def secret_members() -> list[Step]:
    read = Step(
        "GET",
        f"{SECRET}:getIamPolicy",
        None,
        {**NEW, "options.requestedPolicyVersion": "3"},
        keep={"etag": "etag"},
    )
    body = {"policy": {"etag": "$etag", "version": 3, "bindings": []}}
    return member(
        read,
        Step("POST", f"{SECRET}:setIamPolicy", body, NEW),
        "roles/secretmanager.secretAccessor",
        f"serviceAccount:{EMAIL}",
    )


def account_members() -> list[Step]:
    read = Step(
        "POST",
        f"{ACCOUNT}:getIamPolicy",
        None,
        {**OLD, "options.requestedPolicyVersion": "3"},
        keep={"etag": "etag"},
    )
    body = {"policy": {"etag": "$etag", "version": 3, "bindings": []}}
    return member(
        read,
        Step("POST", f"{ACCOUNT}:setIamPolicy", body, OLD),
        "roles/iam.serviceAccountUser",
        f"serviceAccount:{EMAIL}",
    )


def project_members() -> list[Step]:
    read = Step(
        "POST",
        f"{CRM}/{PROJECT}:getIamPolicy",
        {"options": {"requestedPolicyVersion": 3}},
        OLD,
        keep={"etag": "etag"},
    )
    body = {
        "policy": {
            "etag": "$etag",
            "version": 3,
            "bindings": [{"role": "roles/owner", "members": ["user:owner@example.com"]}],
        },
        "updateMask": "bindings,etag,auditConfigs",
    }
    condition = {
        "title": "lab nodes",
        "expression": 'resource.name.startsWith("projects/demo-project/zones/z/instances/lab-")',
    }
    return member(
        read,
        Step("POST", f"{CRM}/{PROJECT}:setIamPolicy", body, OLD),
        "roles/compute.instanceAdmin.v1",
        f"serviceAccount:{EMAIL}",
        condition=condition,
    )


def bucket_members() -> list[Step]:
    read = Step(
        "GET",
        f"{BUCKET}/iam",
        None,
        {**OLD, "optionsRequestedPolicyVersion": "3"},
        keep={"etag": "etag", "bindings": "bindings"},
    )
    binding = {"role": "roles/storage.objectViewer", "members": [f"serviceAccount:{EMAIL}"]}
    body = {"etag": "$etag", "version": 3, "bindings": ["*bindings", binding]}
    reread = Step("GET", f"{BUCKET}/iam", None, read.query, has={"bindings": [binding]})
    return [read, Step("PUT", f"{BUCKET}/iam", body, OLD), reread, reread, reread, reread]


SUBNET = f"/compute/beta/{PROJECT}/regions/europe-west4/subnetworks/lab"
NEW_SUBNET = [
    Step(
        "POST",
        f"/compute/beta/{PROJECT}/global/networks",
        {"name": "lab", "autoCreateSubnetworks": False},
        NEW,
    ),
    Step(
        "POST",
        SUBNET.removesuffix("/lab"),
        {"name": "lab", "network": "global/networks/lab", "ipCidrRange": "10.0.0.0/20"},
        NEW,
    ),
]


def subnet_members() -> list[Step]:
    query = {**NEW, "optionsRequestedPolicyVersion": "3"}
    read = Step("GET", f"{SUBNET}/getIamPolicy", None, query, keep={"etag": "etag"})
    body = {"policy": {"etag": "$etag", "version": 3, "bindings": []}}
    return member(
        read,
        Step("POST", f"{SUBNET}/setIamPolicy", body, NEW),
        "roles/compute.networkUser",
        f"serviceAccount:{EMAIL}",
    )


def tunnel_members() -> list[Step]:
    """From the provider's source, not recorded."""
    tunnel = f"/iap/v1/{PROJECT}/iap_tunnel/zones/europe-west4-a/instances/lab-login-0"
    body = {"options": {"requestedPolicyVersion": 3}}
    read = Step("POST", f"{tunnel}:getIamPolicy", body, NEW, keep={"etag": "etag"})
    body = {"policy": {"etag": "$etag", "version": 3, "bindings": []}}
    return member(
        read,
        Step("POST", f"{tunnel}:setIamPolicy", body, NEW),
        "roles/iap.tunnelResourceAccessor",
        "group:ml@example.org",
    )


SEQUENCES: dict[str, list[Step]] = {
    "serviceaccount.Account": [
        NEW_ACCOUNT,
        Step("GET", ACCOUNT, None, OLD, has={"email": EMAIL, "displayName": "node"}),
        Step("GET", ACCOUNT, None, OLD, has={"projectId": "demo-project"}),
        Step(
            "PATCH",
            ACCOUNT,
            {"serviceAccount": {"displayName": "compute"}, "updateMask": "display_name"},
            OLD,
        ),
        Step("GET", ACCOUNT, None, OLD, has={"displayName": "compute"}),
        Step(
            "GET",
            f"{IAM}/projects/-/serviceAccounts/{EMAIL}",
            None,
            OLD,
            has={"email": EMAIL},
        ),
        Step("DELETE", ACCOUNT, None, OLD),
        Step("GET", ACCOUNT, None, OLD, status=404),
    ],
    "projects.IAMCustomRole": [
        Step("GET", ROLE, None, OLD, status=404),
        Step(
            "POST",
            f"{IAM}/{PROJECT}/roles",
            {
                "role": {
                    "title": "controller",
                    "description": "",
                    "stage": "GA",
                    "includedPermissions": ["compute.instances.create"],
                },
                "roleId": "lab_controller",
            },
            OLD,
            has={"name": ROLE[8:]},
        ),
        Step("GET", ROLE, None, OLD, has={"name": ROLE[8:], "stage": "GA"}, lacks=("deleted",)),
        Step(
            "PATCH",
            ROLE,
            {
                "title": "controller",
                "description": "of the lab",
                "stage": "GA",
                "includedPermissions": ["compute.instances.create", "compute.instances.delete"],
            },
            OLD,
        ),
        Step("GET", ROLE, None, OLD, has={"description": "of the lab"}),
        Step("DELETE", ROLE, None, OLD, has={"deleted": True}),
        Step("GET", ROLE, None, OLD, has={"deleted": True}),
        Step("POST", f"{ROLE}:undelete", {}, OLD, lacks=("deleted",)),
        Step("PATCH", ROLE, {"title": "again"}, OLD, has={"description": "of the lab"}),
    ],
    "storage.Bucket": [
        NEW_BUCKET,
        Step("GET", BUCKET, None, OLD, has={"projectNumber": "123456789012"}),
        Step("GET", f"/compute/beta/{NUMBER}", None, NEW, has={"name": "demo-project"}),
        Step(
            "PATCH",
            BUCKET,
            {"labels": {"goog-pulumi-provisioned": "true", "muster": None, "new": "x"}},
            OLD,
            has={"labels": {"goog-pulumi-provisioned": "true", "new": "x"}},
        ),
        Step("GET", f"{BUCKET}/anywhereCaches/", None, OLD, status=404),
        Step("GET", f"{BUCKET}/o", None, {**OLD, "versions": "true"}, lacks=("items",)),
        Step("DELETE", BUCKET, None, OLD, status=204),
        Step("GET", BUCKET, None, OLD, status=404),
    ],
    "storage.BucketObject": [
        NEW_BUCKET,
        upload(CONTENT, MD5),
        Step("GET", f"{BUCKET}/o/bundle%2Fv1.tar", None, OLD, has={"md5Hash": MD5}),
        upload(b"", "1B2M2Y8AsgTpgAmY7PhCfg=="),
        Step("GET", f"{BUCKET}/o/bundle%2Fv1.tar", None, OLD, has={"size": "0"}),
        Step("DELETE", BUCKET, None, OLD, status=409),
        Step("DELETE", f"{BUCKET}/o/bundle%2Fv1.tar", None, OLD, status=204),
        Step("GET", f"{BUCKET}/o/bundle%2Fv1.tar", None, OLD, status=404),
    ],
    "secretmanager.Secret": [
        NEW_SECRET,
        Step("GET", SECRET, None, NEW, has={"labels": {"goog-pulumi-provisioned": "true"}}),
        Step(
            "PATCH",
            SECRET,
            {"labels": {"a": "b"}},
            {**NEW, "updateMask": "labels"},
            has={"labels": {"a": "b"}, "replication": {"automatic": {}}},
        ),
        Step("GET", SECRET, None, NEW, has={"labels": {"a": "b"}}),
        Step("DELETE", SECRET, None, NEW),
        Step("GET", SECRET, None, NEW, status=404),
    ],
    "secretmanager.SecretVersion": [
        NEW_SECRET,
        Step(
            "POST",
            f"{SECRET}:addVersion",
            {"payload": {"data": "c2VjcmV0"}},
            NEW,
            has={"name": f"{NUMBER}/secrets/lab-munge/versions/1", "state": "ENABLED"},
            lacks=("data", "payload"),
            keep={"version": "name"},
        ),
        Step("POST", f"{SM}/$version:enable", None, NEW, has={"state": "ENABLED"}),
        Step("GET", f"{SM}/$version", None, NEW, has={"state": "ENABLED"}),
        Step(
            "GET",
            f"{SM}/$version:access",
            None,
            NEW,
            has={
                "payload": {"data": "c2VjcmV0", "dataCrc32c": str(google_crc32c.value(b"secret"))}
            },
        ),
        Step("POST", f"{SM}/$version:destroy", None, NEW, has={"state": "DESTROYED"}),
        Step("GET", f"{SM}/$version", None, NEW, has={"state": "DESTROYED"}),
    ],
    "secretmanager.SecretIamMember": [NEW_ACCOUNT, NEW_SECRET, *secret_members()],
    "serviceaccount.IAMMember": [NEW_ACCOUNT, *account_members()],
    "projects.IAMMember": [NEW_ACCOUNT, *project_members()],
    "storage.BucketIAMMember": [NEW_ACCOUNT, NEW_BUCKET, *bucket_members()],
    "compute.SubnetworkIAMMember": [NEW_ACCOUNT, *NEW_SUBNET, *subnet_members()],
    "iap.TunnelInstanceIAMMember": tunnel_members(),
    "organizations.get_project": [
        Step(
            "GET",
            f"{CRM}/{PROJECT}",
            None,
            OLD,
            has={"projectId": "demo-project", "projectNumber": "123456789012"},
        ),
        Step(
            "GET",
            f"/cloudbilling/v1/{PROJECT}/billingInfo",
            None,
            OLD,
            has={"billingEnabled": True},
        ),
    ],
    "compute.get_default_service_account": [
        Step(
            "GET",
            f"/compute/beta/{PROJECT}",
            None,
            NEW,
            has={"name": "demo-project"},
            keep={"email": "defaultServiceAccount"},
        ),
        Step(
            "GET",
            f"{IAM}/projects/-/serviceAccounts/$email",
            None,
            OLD,
            has={"projectId": "demo-project"},
        ),
    ],
}


def filled(value: Any, variables: dict[str, Any]) -> Any:
    if isinstance(value, str):
        return re.sub(r"\$(\w+)", lambda match: variables[match[1]], value)
    if isinstance(value, dict):
        return {key: filled(inner, variables) for key, inner in value.items()}
    if isinstance(value, list):
        lists = [
            variables[item[1:]] if str(item).startswith("*") else [filled(item, variables)]
            for item in value
        ]
        return [element for one in lists for element in one]
    return value


@pytest.mark.parametrize("resource", SEQUENCES)
def test_the_provider_finds_what_it_needs(api: Api, resource: str):
    variables: dict[str, Any] = {}
    for step in SEQUENCES[resource]:
        status, answer = api(
            step.verb,
            filled(step.path, variables),
            filled(step.body, variables),
            **step.query,
            headers=step.headers,
        )
        assert status == step.status, (step, answer)
        for name, value in step.has.items():
            assert holds(answer[name], value), (step, answer)
        assert not set(step.lacks) & set(answer), (step, answer)
        variables |= {name: answer[key] for name, key in step.keep.items()}


def holds(actual: Any, wanted: Any) -> bool:
    """Whether the values are equal; a list of bindings may have more than the expected ones."""
    if isinstance(wanted, list):
        return all(item in actual for item in wanted)
    return bool(actual == wanted)
