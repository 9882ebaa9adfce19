"""Google's own unchanged client against fakecloud: google-api-python-client."""

import uuid
from collections.abc import Iterator
from typing import Any

import google_auth_httplib2
import httplib2
import pytest
from fakecloud_calls import ZONE, instance
from google.oauth2.credentials import Credentials
from googleapiclient.discovery import build
from googleapiclient.errors import HttpError
from googleapiclient.http import BatchHttpRequest

from muster_sandbox.fakecloud.server import Server

HERE = {"project": "demo-project", "zone": "europe-west4-a"}
REGION = {"project": "demo-project", "region": "europe-west4"}
PROJECT = {"project": "demo-project"}


@pytest.fixture(params=["v1", "beta"])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def compute(cloud: Server, version: str) -> Iterator[Any]:
    http = google_auth_httplib2.AuthorizedHttp(Credentials("owner"), httplib2.Http(timeout=20))
    service = build(
        "compute",
        version,
        http=http,
        static_discovery=True,
        client_options={"api_endpoint": f"{cloud.url}/compute/{version}/"},
    )
    network(service)
    yield service
    service.close()
    http.close()


def done(operations: Any, operation: dict[str, Any], **place: str) -> dict[str, Any]:
    """Wait for an operation as the documentation's examples do; the real one may need several."""
    for _ in range(5):
        state: dict[str, Any] = operations.wait(operation=operation["name"], **place).execute()
        if state["status"] == "DONE":
            assert "error" not in state, state
            return state
    raise AssertionError("the operation doesn't end")


def network(compute: Any) -> None:
    body = {"name": "lab", "autoCreateSubnetworks": False}
    operation = compute.networks().insert(body=body, **PROJECT).execute()
    done(compute.globalOperations(), operation, **PROJECT)
    subnet = {"name": "lab", "network": "global/networks/lab", "ipCidrRange": "10.0.0.0/20"}
    operation = compute.subnetworks().insert(body=subnet, **REGION).execute()
    done(compute.regionOperations(), operation, **REGION)


def test_insert_poll_get_list_page_filter_delete(compute: Any, cloud: Server):
    cloud.do(lambda fake: fake.settings.latency_seconds.update({"compute.instances.*": 0.1}))
    instances, operations = compute.instances(), compute.zoneOperations()
    running = [
        instances.insert(
            body=instance(f"n-{number}", labels={"half": str(number % 2)}),
            requestId=str(uuid.uuid4()),
            **HERE,
        ).execute()
        for number in range(5)
    ]
    assert {vm["status"] for vm in running} == {"RUNNING"}
    for operation in running:
        done(operations, operation, **HERE)
    assert instances.get(instance="n-3", **HERE).execute()["status"] == "RUNNING"
    pages, request = [], instances.list(maxResults=2, **HERE)
    while request is not None:
        answer = request.execute()
        pages.append([vm["name"] for vm in answer["items"]])
        request = instances.list_next(request, answer)
    assert pages == [["n-0", "n-1"], ["n-2", "n-3"], ["n-4"]]
    odd = instances.list(filter="labels.half=1", fields="items(name)", **HERE).execute()
    assert odd == {"items": [{"name": "n-1"}, {"name": "n-3"}]}
    everywhere = instances.aggregatedList(filter="name eq 'n-[01]'", **PROJECT).execute()
    assert len(everywhere["items"][ZONE]["instances"]) == 2
    for number in range(5):
        done(operations, instances.delete(instance=f"n-{number}", **HERE).execute(), **HERE)
    assert "items" not in instances.list(**HERE).execute()
    assert "items" not in compute.disks().list(**HERE).execute()


def test_metadata_is_changed_with_its_fingerprint(compute: Any):
    instances, operations = compute.instances(), compute.zoneOperations()
    done(operations, instances.insert(body=instance("one"), **HERE).execute(), **HERE)
    metadata = instances.get(instance="one", **HERE).execute()["metadata"]
    metadata["items"] = [{"key": "bundle", "value": "sha256:1"}]
    change = instances.setMetadata(instance="one", body=metadata, **HERE)
    done(operations, change.execute(), **HERE)
    with pytest.raises(HttpError) as stale:
        instances.setMetadata(instance="one", body=metadata, **HERE).execute()
    assert stale.value.status_code == 412


def test_errors_are_understood(compute: Any):
    with pytest.raises(HttpError) as missing:
        compute.instances().get(instance="none", **HERE).execute()
    assert missing.value.status_code == 404
    assert missing.value.error_details[0]["reason"] == "notFound"
    assert missing.value.reason == (
        "The resource 'projects/demo-project/zones/europe-west4-a/instances/none' was not found"
    )
    body = {"name": "lab", "autoCreateSubnetworks": False}
    with pytest.raises(HttpError) as taken:
        compute.networks().insert(body=body, **PROJECT).execute()
    assert (taken.value.status_code, taken.value.error_details[0]["reason"]) == (
        409,
        "alreadyExists",
    )


def test_many_at_once(compute: Any):
    properties = {**instance("x"), "machineType": "n1-standard-2"}
    del properties["name"]
    body = {"count": 20, "namePattern": "n-##", "instanceProperties": properties}
    operation = compute.instances().bulkInsert(body=body, **HERE).execute()
    done(compute.zoneOperations(), operation, **HERE)
    assert len(compute.instances().list(**HERE).execute()["items"]) == 20


def test_a_batch_is_answered_call_by_call(compute: Any, cloud: Server, version: str):
    for name in ("a", "b"):
        compute.instances().insert(body=instance(name), **HERE).execute()
    answers: dict[str, Any] = {}

    def answered(name: str, answer: Any, error: HttpError | None) -> None:
        answers[name] = error.status_code if error else answer["operationType"]

    batch = BatchHttpRequest(answered, batch_uri=f"{cloud.url}/batch/compute/{version}")
    for name in ("a", "none", "b"):
        batch.add(compute.instances().delete(instance=name, **HERE), request_id=name)
    made = compute.instances().insert(body=instance("c"), **HERE)
    batch.add(made, request_id="c")
    batch.execute()
    assert answers == {"a": "delete", "none": 404, "b": "delete", "c": "insert"}
    left = compute.instances().list(fields="items/name", **HERE).execute()
    assert left == {"items": [{"name": "c"}]}


def test_an_image_is_built_and_used(compute: Any):
    operations = compute.zoneOperations()
    builder = compute.instances().insert(body=instance("builder"), **HERE).execute()
    done(operations, builder, **HERE)
    stop = compute.instances().stop(instance="builder", **HERE).execute()
    done(operations, stop, **HERE)
    body = {"name": "slurm-1", "family": "slurm", "sourceDisk": f"{ZONE}/disks/builder"}
    image = compute.images().insert(body=body, **PROJECT).execute()
    done(compute.globalOperations(), image, **PROJECT)
    newest = compute.images().getFromFamily(family="slurm", **PROJECT).execute()
    assert (newest["name"], newest["status"]) == ("slurm-1", "READY")
    public = compute.images().getFromFamily(project="debian-cloud", family="debian-13").execute()
    assert public["name"].startswith("debian-13-trixie-v")


def test_the_catalog_is_read(compute: Any):
    zones = compute.zones().list(**PROJECT).execute()["items"]
    assert HERE["zone"] in [zone["name"] for zone in zones]
    region = compute.regions().get(**REGION).execute()
    assert {"CPUS", "INSTANCES"} <= {quota["metric"] for quota in region["quotas"]}
    machine = compute.machineTypes().get(machineType="n1-standard-2", **HERE).execute()
    assert machine["guestCpus"] == 2
    assert compute.projects().get(**PROJECT).execute()["name"] == "demo-project"
