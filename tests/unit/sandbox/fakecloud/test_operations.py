"""Operations: they take time, can be waited for, fail on request, and continue after a restart."""

from pathlib import Path

import pytest
from fakecloud_calls import ZONE, Caller, instance

from muster_sandbox.fakecloud import Cloud, Settings, handle, open_cloud
from muster_sandbox.fakecloud.api_errors import ApiError
from muster_sandbox.fakecloud.clock import ManualClock
from muster_sandbox.fakecloud.http import Deferred, Request
from muster_sandbox.fakecloud.injected_faults import OperationError

REQUEST = "7b0a9a2c-6f3e-4a86-9e0e-0d1f5a9d2b11"


def slow(fake: Cloud, seconds: float = 30) -> ManualClock:
    fake.settings.latency_seconds = {"compute.instances.*": seconds}
    assert isinstance(fake.clock, ManualClock)
    return fake.clock


def test_an_insert_takes_its_time(fake: Cloud, lab: Caller):
    clock = slow(fake)
    operation = lab.post(f"{ZONE}/instances", instance("one"))
    assert (operation["status"], operation["progress"]) == ("RUNNING", 0)
    assert operation["zone"].endswith("/projects/demo-project/zones/europe-west4-a")
    assert lab.get(f"{ZONE}/instances/one")["status"] == "PROVISIONING"
    clock.advance(29)
    assert lab.get(f"{ZONE}/operations/{operation['name']}")["status"] == "RUNNING"
    clock.advance(1)
    done = lab.get(f"{ZONE}/operations/{operation['name']}")
    assert (done["status"], done["progress"]) == ("DONE", 100)
    assert done["endTime"] > done["startTime"]
    assert done["targetId"] == lab.get(f"{ZONE}/instances/one")["id"]
    assert lab.get(f"{ZONE}/instances/one")["status"] == "RUNNING"
    assert lab.get(f"{ZONE}/operations/{done['id']}") == done


def wait(fake: Cloud, name: str) -> Deferred:
    path = f"/compute/v1/projects/demo-project/{ZONE}/operations/{name}/wait"
    answer = handle(fake, Request("POST", path, headers={"authorization": "Bearer owner"}))
    assert isinstance(answer, Deferred)
    return answer


def test_wait_answers_at_the_end(fake: Cloud, lab: Caller):
    clock = slow(fake)
    operation = lab.post(f"{ZONE}/instances", instance("one"))
    waiting = [wait(fake, operation["name"]) for _ in range(2)]
    clock.advance(29)
    assert [deferred.value for deferred in waiting] == [None, None]
    clock.advance(1)
    assert all(isinstance(deferred.value, dict) for deferred in waiting)
    assert lab.post(f"{ZONE}/operations/{operation['name']}/wait")["status"] == "DONE"


def test_wait_gives_up_after_two_minutes(fake: Cloud, lab: Caller):
    clock = slow(fake, 600)
    operation = lab.post(f"{ZONE}/instances", instance("one"))
    waiting = wait(fake, operation["name"])
    clock.advance(119)
    assert waiting.value is None
    clock.advance(1)
    assert isinstance(waiting.value, dict)
    assert waiting.value["status"] == "RUNNING"


def test_a_repeated_request_makes_nothing_twice(fake: Cloud, lab: Caller):
    first = lab.post(f"{ZONE}/instances", instance("one"), requestId=REQUEST)
    again = lab.post(f"{ZONE}/instances", instance("one"), requestId=REQUEST)
    assert again == first
    assert first["clientOperationId"] == REQUEST
    assert lab.refused("POST", f"{ZONE}/instances", instance("one"))[:2] == (409, "alreadyExists")
    deleted = lab.delete(f"{ZONE}/instances/one", requestId=REQUEST)
    assert deleted["operationType"] == "delete"
    zero = "00000000-0000-0000-0000-000000000000"
    assert lab.refused("DELETE", f"{ZONE}/instances/one", requestId=zero)[0] == 400


def test_an_operation_fails_as_a_test_asks(fake: Cloud, lab: Caller):
    fake.faults.add(
        "compute.instances.insert",
        operation_error=OperationError("ZONE_RESOURCE_POOL_EXHAUSTED", "no room"),
    )
    operation = lab.ok("POST", f"{ZONE}/instances", instance("one"))
    assert operation["status"] == "DONE"
    assert operation["error"] == {
        "errors": [{"code": "ZONE_RESOURCE_POOL_EXHAUSTED", "message": "no room"}]
    }
    assert operation["httpErrorStatusCode"] == 503
    assert lab.refused("GET", f"{ZONE}/instances/one")[0] == 404
    assert lab.refused("GET", f"{ZONE}/disks/one")[0] == 404
    lab.post(f"{ZONE}/instances", instance("one"))


def test_calls_fail_as_often_as_a_test_asks(fake: Cloud, lab: Caller):
    fake.faults.add("compute.instances.*", times=2, error=ApiError(503, "backendError", "later"))
    for _ in range(2):
        status, answer = lab("GET", f"{ZONE}/instances")
        assert (status, answer["error"]["status"]) == (503, "UNAVAILABLE")
    lab.get(f"{ZONE}/instances")


def test_operations_are_listed_by_filter_and_place(fake: Cloud, lab: Caller):
    for name in ("a", "b", "c"):
        lab.post(f"{ZONE}/instances", instance(name))
    answer = lab.get(f"{ZONE}/operations", filter="targetLink eq '.*/instances/b'")
    assert [operation["operationType"] for operation in answer["items"]] == ["insert"]
    everywhere = lab.get("aggregated/operations", maxResults=100)["items"]
    kinds = {place: len(listed.get("operations", [])) for place, listed in everywhere.items()}
    assert {place: count for place, count in kinds.items() if count} == {
        "zones/europe-west4-a": 3,
        "regions/europe-west4": 1,
        "global": 1,
    }


@pytest.mark.parametrize("elapsed", [10, 100])
def test_an_operation_goes_on_after_a_restart(tmp_path: Path, elapsed: float):
    settings = Settings(latency_seconds={"compute.networks.delete": 60})
    cloud = open_cloud(settings, tmp_path, ManualClock(1000))
    ask = Caller(cloud)
    ask.post("global/networks", {"name": "lab", "autoCreateSubnetworks": False})
    operation = ask.delete("global/networks/lab")
    cloud.close()
    clock = ManualClock(1000 + elapsed)
    again = open_cloud(settings, tmp_path, clock)
    ask = Caller(again)
    assert ask.get("global/networks/lab")["name"] == "lab"
    clock.advance(max(0, 60 - elapsed) + 1)
    assert ask.get(f"global/operations/{operation['name']}")["status"] == "DONE"
    assert ask.refused("GET", "global/networks/lab")[0] == 404
    again.close()
    assert again.failures == []
