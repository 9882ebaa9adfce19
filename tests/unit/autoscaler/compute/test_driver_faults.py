"""What Google does wrong, and that each action has its one event all the same."""

import time
from typing import Any

import pytest
from controllerkit import COMPUTE, ZONE, Cloud
from edgekit import BUSY, CHOICE, Edge, names

from muster.autoscaler.compute import http, insert
from muster.autoscaler.compute.http import Limits
from muster.autoscaler.reconcile.model import Delete, Insert, Inserted, Vm
from muster.autoscaler.reconcile.retry_policy import Remedy, remedy
from muster_sandbox.fakecloud.errors import ApiError, quota, rate_limit
from muster_sandbox.fakecloud.faults import OperationError

METHODS = ("instances.bulkInsert", "instances.delete", "instances.aggregatedList")


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries follow each other at once."""
    monkeypatch.setattr(http, "FIRST_BACKOFF_S", 0.02)


def all_at_once(edge: Edge) -> None:
    """Make, list and delete two VMs."""
    assert edge.insert(*names(2), least=2) == Inserted("request-1")
    vms = edge.google.vms()
    assert [vm.name for vm in vms] == list(names(2))
    for vm in vms:
        assert edge.delete(vm).failure is None
    assert edge.names() == set()


@pytest.mark.parametrize("method", METHODS)
def test_a_busy_server_is_asked_again(edge: Edge, method: str):
    edge.fault(method, times=3, error=BUSY)
    all_at_once(edge)
    assert edge.google.budget().calls[method, "backendError"] == 3


# Deletions go together, so they are lost together.
LOST = ("instances.bulkInsert", "batch", "instances.aggregatedList")


@pytest.mark.parametrize("method", LOST)
def test_a_lost_answer_makes_nothing_twice(edge: Edge, method: str):
    """The call was made; the second one has its requestId."""
    edge.fault(method, times=2, drop=True)
    all_at_once(edge)
    assert edge.google.budget().calls[method, "unreachable"] == 2


@pytest.mark.parametrize("method", LOST)
def test_who_does_not_answer_is_asked_again(cloud: Cloud, edge: Edge, method: str):
    hasty = Edge(cloud, Limits(try_s=0.3))
    hasty.fault(method, delay_seconds=3600)
    all_at_once(hasty)
    hasty.google.close()


def test_the_rate_limit_slows_all_calls_of_its_group(edge: Edge):
    edge.fault("instances.delete", times=3, error=rate_limit("Rate Limit Exceeded"))
    all_at_once(edge)
    budget = edge.google.budget()
    assert budget.calls["instances.delete", "rateLimitExceeded"] == 3
    assert budget.pace["mutate"] < 1
    assert budget.pace["list"] == 1


def test_what_google_refuses_is_not_asked_again(edge: Edge):
    """A quota, a zone without room, and what no try changes."""
    for error in (
        quota("Quota 'C2_CPUS' exceeded.  Limit: 8.0 in region europe-west4."),
        ApiError(503, "insufficientCapacity", "The zone has no room."),
        ApiError(400, "invalid", "Invalid value for field 'count'."),
    ):
        edge.fault("instances.bulkInsert", error=error)
        event = edge.insert(*names(2))
        assert event.whole is not None
        assert (event.whole.code, event.whole.message) == (error.reason, error.message)
        assert event.whole.status == error.status
    assert edge.calls()["instances.bulkInsert"] == 3


def test_a_failed_operation_without_a_vms_error_is_a_failure_of_all(edge: Edge):
    why = OperationError("VM_MIN_COUNT_NOT_REACHED", "Requested minimum count of 5 VMs ...")
    edge.fault("instances.bulkInsert", operation_error=why)
    event = edge.insert(*names(5), least=5)
    assert event.failed == {}
    assert event.whole is not None
    assert (event.whole.code, event.whole.message) == (why.code, why.message)


def test_a_part_that_has_no_room_is_named(edge: Edge):
    edge.cloud.server.cloud.settings.capacity = {(ZONE, CHOICE.machine_type): 2}
    event = edge.insert(*names(5))
    assert event.whole is None
    assert set(event.failed) == set(names(3, start=2))
    assert {why.code for why in event.failed.values()} == {"ZONE_RESOURCE_POOL_EXHAUSTED"}
    assert edge.names() == set(names(2))


def test_a_job_without_room_for_all_has_none_and_knows_why(edge: Edge):
    edge.cloud.server.cloud.settings.capacity = {(ZONE, CHOICE.machine_type): 2}
    event = edge.insert(*names(5), least=5)
    assert event.whole is not None
    assert event.whole.code == "ZONE_RESOURCE_POOL_EXHAUSTED"
    assert edge.names() == set()


def test_a_quota_in_the_operation_is_named(edge: Edge):
    edge.cloud.server.cloud.settings.quotas = {"europe-west4": {"C2_CPUS": 4}}
    event = edge.insert(*names(2))
    assert {why.code for why in event.failed.values()} == {"QUOTA_EXCEEDED"}
    assert len(event.failed) == 1


def test_an_operation_that_says_little_is_read_all_the_same(edge: Edge):
    """instancesBulkInsertOperationMetadata may be missing."""
    edge.cloud.server.cloud.settings.latency_seconds = {"compute.instances.bulkInsert": 0.5}
    edge.cloud.server.cloud.settings.capacity = {(ZONE, CHOICE.machine_type): 1}
    edge.google.submit(Insert("request", CHOICE, names(2), 1))
    edge.forget("instancesBulkInsertOperationMetadata")
    (event,) = edge.told(1)
    assert isinstance(event, Inserted)
    assert set(event.failed) == {"lab-debug-1"}


def not_begun(found: dict[str, Any]) -> dict[str, Any]:
    """Google had no room for the last VMs and did not begin them: nothing says so but a number."""
    found = {key: found[key] for key in found if key not in {"error", "httpErrorStatusCode"}}
    told = found.get("instancesBulkInsertOperationMetadata", {}).get("perLocationStatus", {})
    for each in told.values():
        each.pop("failedToCreateVmCount", None)
    return found


def test_vms_that_were_not_made_and_of_which_nothing_is_said_are_found_by_the_list(edge: Edge):
    edge.cloud.server.cloud.settings.capacity = {(ZONE, CHOICE.machine_type): 2}
    edge.rewrite(not_begun)
    event = edge.insert(*names(5))
    assert event.whole is None
    assert set(event.failed) == set(names(5)) - edge.names()
    assert len(edge.names()) == 2
    assert {why.code for why in event.failed.values()} == {"notMade"}
    assert {remedy(why) for why in event.failed.values()} == {Remedy.ELSEWHERE}
    assert "instances.get" not in edge.calls()


def test_a_list_that_lacks_more_than_were_not_made_is_not_believed(
    edge: Edge, monkeypatch: pytest.MonkeyPatch
):
    """The VM that it lacks runs; a second one elsewhere would be one too many."""
    monkeypatch.setattr(insert, "AGAIN_S", 0.01)
    edge.cloud.server.cloud.settings.capacity = {(ZONE, CHOICE.machine_type): 2}
    edge.rewrite(not_begun)
    lists = edge.google._inserts.standing
    found = lists._list
    behind: list[int] = []

    def late(zone: str, until: float) -> dict[str, Any]:
        behind.append(1)
        vms = found(zone, until)
        return dict(list(vms.items())[1:]) if len(behind) <= 2 else vms

    monkeypatch.setattr(lists, "_list", late)
    event = edge.insert(*names(5))
    assert set(event.failed) == set(names(5)) - edge.names()
    assert len(behind) == 3


def test_a_name_that_is_ours_is_success(edge: Edge):
    edge.insert(*names(2))
    assert edge.insert(*names(4), least=4) == Inserted("request-2")
    assert edge.names() == set(names(4))


def test_a_successor_that_asks_again_makes_nothing_new(cloud: Cloud, edge: Edge):
    edge.insert(*names(3), least=3, action="request")
    successor = Edge(cloud)
    assert successor.insert(*names(3), least=3, action="request") == Inserted("request")
    # The requestId was enough: nobody had to be looked for.
    assert successor.calls() == {"instances.bulkInsert": 1}
    successor.google.close()


def test_a_name_of_somebody_else_is_a_failure(edge: Edge):
    edge.make("lab-debug-1", labels={"owner": "ada"})
    event = edge.insert(*names(3))
    assert event.whole is None
    assert {name: why.code for name, why in event.failed.items()} == {
        "lab-debug-1": "alreadyExists"
    }
    assert "not one of cluster lab" in event.failed["lab-debug-1"].message
    assert edge.names() == set(names(3))


def test_a_vm_on_its_way_down_is_a_failure(edge: Edge):
    edge.make("lab-debug-1")
    edge.cloud.server.cloud.settings.latency_seconds = {"compute.instances.delete": 3600}
    edge.cloud.owner.delete(f"{COMPUTE}/zones/{ZONE}/instances/lab-debug-1")
    event = edge.insert(*names(2))
    assert {name: why.code for name, why in event.failed.items()} == {
        "lab-debug-1": "alreadyExists"
    }
    assert "STOPPING" in event.failed["lab-debug-1"].message


def test_a_job_that_lacks_a_name_is_not_begun(edge: Edge):
    edge.make("lab-debug-1", labels={"owner": "ada"})
    event = edge.insert(*names(3), least=3)
    assert event.whole is not None
    assert event.whole.code == "alreadyExists"
    assert edge.names() == {"lab-debug-1"}


def test_an_operation_that_does_not_end_has_an_event(cloud: Cloud, edge: Edge):
    cloud.server.cloud.settings.latency_seconds = {"compute.instances.*": 3600}
    edge.make("lab-debug-9")
    hasty = Edge(cloud, Limits(deadline_s=1))
    began = time.monotonic()
    inserted = hasty.insert(*names(2))
    assert inserted.whole is not None
    assert inserted.whole.code == "timeout"
    deleted = hasty.delete("lab-debug-9")
    assert deleted.failure is not None
    assert deleted.failure.code == "timeout"
    assert time.monotonic() - began < 5
    hasty.google.close()


def test_a_deletion_that_fails_later_is_reported(edge: Edge):
    edge.make("lab-debug-0")
    edge.fault("instances.delete", operation_error=OperationError("INTERNAL_ERROR", "again", 500))
    event = edge.delete("lab-debug-0")
    assert event.failure is not None
    assert event.failure.code == "INTERNAL_ERROR"


def test_what_cannot_be_sent_in_time_was_not_sent(cloud: Cloud, edge: Edge):
    """Nine calls a minute: the second one is a matter of seconds."""
    slow = Edge(cloud, Limits(per_minute=9, burst=2, deadline_s=0.5))
    slow.insert(*names(2))
    slow.google.submit(Insert("late", CHOICE, names(2, start=2), 1))
    slow.google.submit(Insert("later", CHOICE, names(2, start=4), 1))
    events = slow.told(2)
    late = [event for event in events if isinstance(event, Inserted) and event.whole]
    assert [event.whole.code for event in late if event.whole] == ["notSent"]
    assert len(edge.names()) == 4
    slow.google.close()


def test_a_report_that_cannot_be_had_is_a_failure(edge: Edge):
    edge.fault("instances.getGuestAttributes", error=ApiError(400, "invalid", "Invalid value."))
    event = edge.look("lab-debug-0")
    assert event.failure is not None
    assert event.failure.code == "invalid"


def test_lists_fail_as_a_whole(edge: Edge):
    """A part of the VMs would look like the death of the others."""
    edge.insert(*names(600))
    edge.fault("instances.aggregatedList", times=1, error=BUSY)
    assert len(edge.google.vms()) == 600


def test_nothing_is_told_after_the_end(edge: Edge):
    edge.cloud.server.cloud.settings.latency_seconds = {"compute.instances.*": 0.3}
    edge.google.submit(Insert("request", CHOICE, names(2), 1))
    for number in range(50):
        edge.google.submit(Delete(Vm(f"lab-gone-{number}", ZONE, "RUNNING", 0), "idle"))
    edge.google.close()
    edge.events.clear()
    time.sleep(0.6)
    assert edge.events == []
