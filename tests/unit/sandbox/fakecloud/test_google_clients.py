"""Google's own clients over HTTP: google-cloud-storage, -secret-manager, googleapiclient.

What each needs to use fakecloud:

* google-cloud-storage: STORAGE_EMULATOR_HOST=http://HOST:PORT, or client_options.api_endpoint; and
  credentials, which it asks for with an emulator too unless they are given.
* google-cloud-secret-manager: transport="rest" and api_endpoint=http://HOST:PORT/secretmanager. A
  plain http address is taken as it is; only an address without a scheme becomes https.
* googleapiclient: api_endpoint=http://HOST:PORT/iam/ and static_discovery=True.
"""

import base64
import io
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from google.api_core import exceptions
from google.auth.transport.requests import Request
from google.cloud import secretmanager, storage
from google.oauth2 import service_account
from google.oauth2.credentials import Credentials
from googleapiclient.discovery import Resource, build
from googleapiclient.errors import HttpError

from muster_sandbox.fakecloud.server import Server

OWNER = Credentials("owner")
PROJECT = "projects/demo-project"
MUNGE = "lab-munge"
SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]


@pytest.fixture
def buckets(cloud: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[storage.Client]:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", cloud.url)
    client = storage.Client(project="demo-project", credentials=OWNER)
    yield client
    client.close()


def secrets(cloud: Server, credentials: Any = OWNER) -> secretmanager.SecretManagerServiceClient:
    return secretmanager.SecretManagerServiceClient(
        credentials=credentials,
        transport="rest",
        client_options={"api_endpoint": f"{cloud.url}/secretmanager"},
    )


def service(cloud: Server, name: str, version: str = "v1", credentials: Any = OWNER) -> Resource:
    return build(
        name,
        version,
        credentials=credentials,
        static_discovery=True,
        client_options={"api_endpoint": f"{cloud.url}/{name}/"},
    )


def key_of(cloud: Server, name: str) -> dict[str, Any]:
    """A new account's key, as a file."""
    with service(cloud, "iam") as iam:
        accounts = iam.projects().serviceAccounts()
        account = accounts.create(name=PROJECT, body={"accountId": name}).execute()
        key = accounts.keys().create(name=account["name"], body={}).execute()
    return dict(json.loads(base64.b64decode(key["privateKeyData"])))


def make_bucket(buckets: storage.Client, name: str = "lab-bundle") -> storage.Bucket:
    bucket = buckets.bucket(name)
    bucket.iam_configuration.uniform_bucket_level_access_enabled = True
    bucket.versioning_enabled = True
    bucket.create(location="europe-west4")
    return bucket


def test_storage_a_bucket_and_its_objects(buckets: storage.Client):
    bucket = make_bucket(buckets)
    assert [item.name for item in buckets.list_buckets()] == ["lab-bundle"]
    blob = bucket.blob("bundle/a b+c.txt")
    blob.metadata = {"digest": "x"}
    blob.upload_from_string("hello", content_type="text/plain", if_generation_match=0)
    with pytest.raises(exceptions.PreconditionFailed):
        blob.upload_from_string("hello", if_generation_match=0)
    again = bucket.get_blob("bundle/a b+c.txt")
    assert (again.size, again.content_type, again.metadata) == (5, "text/plain", {"digest": "x"})
    assert again.download_as_bytes() == b"hello"
    assert again.download_as_bytes(start=1, end=3) == b"ell"
    listing = bucket.list_blobs(delimiter="/")
    assert (list(listing), listing.prefixes) == ([], {"bundle/"})
    bucket.labels = {"muster": "lab"}
    bucket.patch()
    assert buckets.get_bucket("lab-bundle").labels == {"muster": "lab"}
    with pytest.raises(exceptions.Conflict):
        bucket.delete()
    for blob in bucket.list_blobs(versions=True):
        blob.delete()
    bucket.delete()
    assert buckets.lookup_bucket("lab-bundle") is None


@pytest.mark.parametrize("known", [True, False])
def test_storage_a_large_object_in_parts(buckets: storage.Client, known: bool):
    content = random.Random(1).randbytes(900_000)  # noqa: S311 (a test's content)
    blob = make_bucket(buckets).blob("large")
    blob.chunk_size = 256 * 1024
    blob.upload_from_file(io.BytesIO(content), size=len(content) if known else None)
    assert blob.size == len(content)
    # The client checks what it gets against the checksums of the answer.
    assert blob.download_as_bytes() == content


def test_storage_versions(buckets: storage.Client):
    bucket = make_bucket(buckets)
    for text in ("one", "two"):
        bucket.blob("a").upload_from_string(text)
    first, second = bucket.list_blobs(versions=True)
    assert first.download_as_bytes() == b"one"
    assert second.download_as_bytes() == b"two"
    assert first.time_deleted is not None


def test_storage_who_may_what(cloud: Server, buckets: storage.Client):
    bucket = make_bucket(buckets)
    bucket.blob("bundle/1").upload_from_string("content")
    key = key_of(cloud, "node-account")
    theirs = service_account.Credentials.from_service_account_info(key, scopes=SCOPES)
    client = storage.Client(project="demo-project", credentials=theirs)
    blob = client.bucket("lab-bundle").blob("bundle/1")
    with pytest.raises(exceptions.Forbidden, match=r"storage\.objects\.get"):
        blob.download_as_bytes()
    policy = bucket.get_iam_policy(requested_policy_version=3)
    policy.version = 3
    policy.bindings.append(
        {
            "role": "roles/storage.objectViewer",
            "members": {f"serviceAccount:{key['client_email']}"},
            "condition": {
                "title": "bundles",
                "expression": 'resource.name.startsWith("projects/_/buckets/lab-bundle/objects/b")',
            },
        }
    )
    bucket.set_iam_policy(policy)
    assert blob.download_as_bytes() == b"content"
    with pytest.raises(exceptions.Forbidden):
        blob.upload_from_string("other")
    asked = ["storage.objects.get", "storage.buckets.delete"]
    assert bucket.test_iam_permissions(asked) == asked
    client.close()


def test_secrets_from_the_first_version_to_the_last(cloud: Server):
    client = secrets(cloud)
    secret = client.create_secret(
        parent=PROJECT, secret_id=MUNGE, secret={"replication": {"automatic": {}}}
    )
    assert secret.name == "projects/123456789012/secrets/lab-munge"
    version = client.add_secret_version(parent=secret.name, payload={"data": b"\0key\xff"})
    assert version.state == secretmanager.SecretVersion.State.ENABLED
    latest = client.access_secret_version(name=f"{PROJECT}/secrets/lab-munge/versions/latest")
    assert latest.payload.data == b"\0key\xff"
    client.disable_secret_version(name=version.name)
    with pytest.raises(exceptions.BadRequest, match="DISABLED"):
        client.access_secret_version(name=version.name)
    client.enable_secret_version(name=version.name)
    assert [item.name for item in client.list_secret_versions(parent=secret.name)] == [version.name]
    assert [item.name for item in client.list_secrets(parent=PROJECT)] == [secret.name]
    secret.labels["muster"] = "lab"
    changed = client.update_secret(secret=secret, update_mask={"paths": ["labels"]})
    assert changed.labels == {"muster": "lab"}
    client.destroy_secret_version(name=version.name)
    client.delete_secret(name=secret.name)
    with pytest.raises(exceptions.NotFound):
        client.get_secret(name=secret.name)


def test_secrets_are_read_with_a_key_by_whom_they_are_granted_to(cloud: Server):
    """This client signs its own JWT if it has a key, and sends that as the token."""
    owners = secrets(cloud)
    secret = owners.create_secret(
        parent=PROJECT, secret_id=MUNGE, secret={"replication": {"automatic": {}}}
    )
    owners.add_secret_version(parent=secret.name, payload={"data": b"key"})
    key = key_of(cloud, "node-account")
    client = secrets(cloud, service_account.Credentials.from_service_account_info(key))
    latest = f"{secret.name}/versions/latest"
    with pytest.raises(exceptions.Forbidden, match=r"secretmanager\.versions\.access"):
        client.access_secret_version(name=latest)
    policy = owners.get_iam_policy(request={"resource": secret.name})
    policy.bindings.add(
        role="roles/secretmanager.secretAccessor",
        members=[f"serviceAccount:{key['client_email']}"],
    )
    owners.set_iam_policy(request={"resource": secret.name, "policy": policy})
    assert client.access_secret_version(name=latest).payload.data == b"key"


def test_a_key_gets_a_token_from_its_token_uri(cloud: Server):
    key = key_of(cloud, "node-account")
    assert key["token_uri"] == f"{cloud.url}/token"
    credentials = service_account.Credentials.from_service_account_info(key, scopes=SCOPES)
    credentials.refresh(Request())
    assert credentials.valid
    with service(cloud, "cloudresourcemanager", credentials=credentials) as manager:
        with pytest.raises(HttpError) as refused:
            manager.projects().get(projectId="demo-project").execute()
        assert refused.value.status_code == 403
        assert "resourcemanager.projects.get" in refused.value.reason
        answer = manager.projects().testIamPermissions(
            resource="demo-project", body={"permissions": ["resourcemanager.projects.get"]}
        )
        assert answer.execute() == {}


def test_the_projects_policy(cloud: Server):
    with service(cloud, "cloudresourcemanager") as manager, service(cloud, "iam") as iam:
        roles = iam.projects().roles()
        role = roles.create(
            parent=PROJECT,
            body={
                "roleId": "lab_controller",
                "role": {"title": "c", "includedPermissions": ["compute.instances.create"]},
            },
        ).execute()
        projects = manager.projects()
        body = {"options": {"requestedPolicyVersion": 3}}
        policy = projects.getIamPolicy(resource="demo-project", body=body).execute()
        binding = {
            "role": role["name"],
            "members": ["user:ada@example.org"],
            "condition": {
                "title": "lab",
                "expression": 'resource.name.startsWith("projects/demo-project/zones/z/")',
            },
        }
        changed = {**policy, "version": 3, "bindings": [*policy["bindings"], binding]}
        body = {"policy": changed}
        answer = projects.setIamPolicy(resource="demo-project", body=body).execute()
        assert binding in answer["bindings"]
        with pytest.raises(HttpError) as refused:
            projects.setIamPolicy(resource="demo-project", body=body).execute()
        assert refused.value.status_code == 409
        assert roles.get(name=role["name"]).execute()["includedPermissions"]
        assert roles.delete(name=role["name"]).execute()["deleted"] is True


def test_a_tunnels_policy(cloud: Server):
    with service(cloud, "iap") as iap:
        resource = f"{PROJECT}/iap_tunnel/zones/europe-west4-a/instances/lab-login-0"
        binding = {"role": "roles/iap.tunnelResourceAccessor", "members": ["group:ml@example.org"]}
        body = {"policy": {"bindings": [binding]}}
        iap.v1().setIamPolicy(resource=resource, body=body).execute()
        assert iap.v1().getIamPolicy(resource=resource, body={}).execute()["bindings"] == [binding]


def test_services_of_the_project(cloud: Server):
    with service(cloud, "serviceusage") as usage, service(cloud, "cloudbilling") as billing:
        enabled = usage.services().list(parent=PROJECT, filter="state:ENABLED").execute()
        names = [entry["config"]["name"] for entry in enabled["services"]]
        assert {"compute.googleapis.com", "secretmanager.googleapis.com"} <= set(names)
        body = {"serviceIds": ["logging.googleapis.com"]}
        assert usage.services().batchEnable(parent=PROJECT, body=body).execute()["done"]
        name = f"{PROJECT}/services/logging.googleapis.com"
        assert usage.services().get(name=name).execute()["state"] == "ENABLED"
        info = billing.projects().getBillingInfo(name=PROJECT).execute()
        assert info["billingEnabled"] is True


def test_a_method_that_is_not_here_is_answered_with_its_name(cloud: Server):
    with service(cloud, "iam") as iam, pytest.raises(HttpError) as refused:
        iam.projects().serviceAccounts().signBlob(
            name=f"{PROJECT}/serviceAccounts/x@y.z", body={"bytesToSign": "eA=="}
        ).execute()
    assert refused.value.status_code == 501
    assert "iam.projects.serviceAccounts.signBlob" in refused.value.reason
