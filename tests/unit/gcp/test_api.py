"""The client of Google's APIs, against fakecloud over HTTP."""

import google.auth
import google.auth.exceptions
import pytest

from muster.gcp import api
from muster.gcp.api import CloudError, Compute
from muster_sandbox.fakecloud.api_errors import ApiError
from muster_sandbox.fakecloud.injected_faults import OperationError
from muster_sandbox.fakecloud.server import Server

DISKS = "zones/europe-west4-a/disks"


def disk(name: str) -> dict:
    return {"name": name, "sizeGb": "10"}


def test_a_resource_is_made_found_and_deleted(compute: Compute):
    compute.wait(compute.post(DISKS, disk("a")), 10)
    assert compute.get(f"{DISKS}/a")["sizeGb"] == "10"
    assert compute.get("")["name"] == "demo-project"
    done = compute.wait(compute.delete(f"{DISKS}/a"), 10)
    assert done["status"] == "DONE"
    assert api.exists(lambda: compute.get(f"{DISKS}/a")) is None


def test_a_list_has_all_pages_and_everywhere_all_zones(compute: Compute):
    for zone in ("europe-west4-a", "europe-west4-b"):
        for number in range(3):
            compute.wait(compute.post(f"zones/{zone}/disks", disk(f"{zone}-{number}")), 10)
    names = [item["name"] for item in compute.list(DISKS, maxResults=2)]
    assert sorted(names) == [f"europe-west4-a-{number}" for number in range(3)]
    assert len(compute.everywhere("disks", maxResults=2)) == 6
    assert compute.everywhere("disks", filter="name=europe-west4-b-0")[0]["name"].endswith("b-0")


def test_an_error_is_googles_sentence_with_its_reason(compute: Compute):
    with pytest.raises(CloudError, match="was not found") as caught:
        compute.get(f"{DISKS}/none")
    assert (caught.value.status, caught.value.reason) == (404, "notFound")
    compute.wait(compute.post(DISKS, disk("a")), 10)
    with pytest.raises(CloudError) as caught:
        compute.post(DISKS, disk("a"))
    assert (caught.value.status, caught.value.reason) == (409, "alreadyExists")


def test_the_same_request_id_makes_nothing_twice(compute: Compute):
    request = api.new_request_id()
    first = compute.post(DISKS, disk("a"), requestId=request)
    assert compute.post(DISKS, disk("a"), requestId=request)["name"] == first["name"]


def test_a_failed_operation_is_an_error(compute: Compute, cloud: Server):
    error = OperationError("ZONE_RESOURCE_POOL_EXHAUSTED", "no room in the zone")
    cloud.do(lambda fake: fake.faults.add("compute.disks.insert", operation_error=error))
    with pytest.raises(CloudError, match="no room") as caught:
        compute.wait(compute.post(DISKS, disk("a")), 10)
    assert caught.value.reason == "ZONE_RESOURCE_POOL_EXHAUSTED"


def test_an_operation_is_waited_for_and_the_wait_has_an_end(compute: Compute, cloud: Server):
    cloud.do(lambda fake: fake.settings.latency_seconds.update({"compute.disks.insert": 0.3}))
    operation = compute.post(DISKS, disk("a"))
    assert operation["status"] != "DONE"
    assert compute.wait(operation, 10)["status"] == "DONE"
    cloud.do(lambda fake: fake.settings.latency_seconds.update({"compute.disks.insert": 60}))
    with pytest.raises(CloudError, match="insert of b has not ended after 0 s") as caught:
        compute.wait(compute.post(DISKS, disk("b")), 0)
    assert caught.value.reason == "timeout"


def test_a_busy_server_is_asked_again(compute: Compute, cloud: Server):
    busy = ApiError(503, "backendError", "try again")
    cloud.do(lambda fake: fake.faults.add("compute.disks.insert", error=busy))
    assert compute.wait(compute.post(DISKS, disk("a")), 10)


def test_a_lost_answer_makes_nothing_twice(compute: Compute, cloud: Server):
    cloud.do(lambda fake: fake.faults.add("compute.disks.insert", drop=True))
    operation = compute.post(DISKS, disk("a"), requestId=api.new_request_id())
    assert compute.wait(operation, 10)["status"] == "DONE"
    assert len(compute.list(DISKS)) == 1


def test_nobody_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(api, "PAUSES_S", ())
    monkeypatch.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", "owner")
    monkeypatch.setenv("GOOGLE_COMPUTE_CUSTOM_ENDPOINT", "http://127.0.0.1:9/compute/v1/")
    with (
        api.connect() as session,
        pytest.raises(CloudError, match=r"no answer from http://127\.0\.0\.1:9") as caught,
    ):
        Compute("demo-project", session).get("zones")
    assert caught.value.status == 0


def test_without_credentials_the_sentence_says_how_to_get_some(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("GOOGLE_OAUTH_ACCESS_TOKEN", raising=False)

    def none(**_: object) -> None:
        raise google.auth.exceptions.DefaultCredentialsError("none found")

    monkeypatch.setattr(google.auth, "default", none)
    with pytest.raises(CloudError, match="gcloud auth application-default login"):
        Compute("demo-project")


def test_a_proxys_page_is_no_crash(compute: Compute, monkeypatch: pytest.MonkeyPatch):
    class Page:
        ok, status_code, url = False, 407, "https://example.org/"
        content = b'["not Google"]'

    monkeypatch.setattr(compute.service.session, "request", lambda *_a, **_k: Page())
    with pytest.raises(CloudError, match=r"407 from https://example\.org/"):
        compute.get("zones")
