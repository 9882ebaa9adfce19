"""Google fails in many ways, and still each action gets exactly one event."""

from dataclasses import replace
from typing import Any

import pytest
from controllerkit import ZONE, Cloud
from driverkit import BUSY, CHOICE, DriverHarness, lost_vm, names
from quick import DRIVER_LIMITS

from muster.autoscaler.compute.api_client import Limits
from muster.autoscaler.reconcile.model import Delete, Failure, Insert, Inserted
from muster.autoscaler.reconcile.retry_policy import Remedy, remedy
from muster_sandbox.fakecloud.api_errors import ApiError, permission_denied, quota, rate_limit
from muster_sandbox.fakecloud.http import Deferred, Handle, Reply, Request, reply
from muster_sandbox.fakecloud.injected_faults import OperationError

METHODS = ("instances.bulkInsert", "instances.delete", "instances.aggregatedList")


def all_at_once(harness: DriverHarness) -> None:
    """Create, list and delete two VMs."""
    assert harness.insert(*names(2), least=2) == Inserted("request-1")
    vms = harness.google.vms()
    assert [vm.name for vm in vms] == list(names(2))
    for vm in vms:
        assert harness.delete(vm).failure is None
    assert harness.names() == set()


@pytest.mark.parametrize("method", METHODS)
def test_a_call_to_a_busy_server_is_sent_again(harness: DriverHarness, method: str):
    harness.fault(method, times=3, error=BUSY)
    all_at_once(harness)
    assert harness.google.budget().calls[method, "backendError"] == 3


# Deletions are sent in one batch, so they are lost together.
LOST = ("instances.bulkInsert", "batch", "instances.aggregatedList")


@pytest.mark.parametrize("method", LOST)
def test_a_lost_answer_changes_nothing_twice(harness: DriverHarness, method: str):
    """The first call was done; the second has the same requestId."""
    harness.fault(method, times=2, drop=True)
    all_at_once(harness)
    assert harness.google.budget().calls[method, "unreachable"] == 2


@pytest.mark.parametrize("method", LOST)
def test_a_call_without_an_answer_is_sent_again(cloud: Cloud, harness: DriverHarness, method: str):
    impatient = DriverHarness(cloud, harness.clock, replace(DRIVER_LIMITS, try_s=6))
    impatient.fault(method, delay_seconds=3600)
    all_at_once(impatient)
    impatient.google.close()


def test_the_rate_limit_slows_all_calls_of_its_group(harness: DriverHarness):
    harness.fault("instances.delete", times=3, error=rate_limit("Rate Limit Exceeded"))
    all_at_once(harness)
    budget = harness.google.budget()
    assert budget.calls["instances.delete", "rateLimitExceeded"] == 3
    assert budget.pace["mutate"] < 1
    assert budget.pace["list"] == 1


def refuse_batches(harness: DriverHarness, error: ApiError, times: int) -> None:
    """Refuse requests with many calls, without an answer to any of these."""
    before = harness.cloud.server.cloud.middleware
    left = [error] * times

    def refused(handle: Handle, request: Request) -> Reply | Deferred:
        if left and request.path.startswith("/batch/"):
            return reply(left.pop().body(), error.status)
        return before(handle, request)

    harness.cloud.server.cloud.middleware = refused


def test_a_batch_that_is_above_the_rate_limit_slows_calls_and_is_sent_again(harness: DriverHarness):
    refuse_batches(harness, rate_limit("Rate Limit Exceeded"), times=2)
    harness.make("lab-debug-0")
    assert harness.delete("lab-debug-0").failure is None
    budget = harness.google.budget()
    assert budget.calls["batch", "rateLimitExceeded"] == 2
    # The calls of the first request only read.
    assert budget.pace["read"] < 1


def test_a_batch_that_is_not_permitted_is_not_sent_again(harness: DriverHarness):
    refuse_batches(harness, permission_denied("No permission."), times=1000)
    harness.make("lab-debug-0")
    event = harness.delete("lab-debug-0")
    assert event.failure is not None
    assert (event.failure.code, event.failure.status) == ("forbidden", 403)
    assert event.failure.message == "No permission."
    assert harness.calls() == {"batch": 1}


def test_a_batch_that_is_not_found_says_nothing_of_its_vms(harness: DriverHarness):
    """Its address was not found, and not a VM."""
    refuse_batches(harness, ApiError(404, "notFound", "Not Found"), times=2)
    harness.make("lab-debug-0")
    assert harness.delete("lab-debug-0").failure is None
    assert harness.names() == set()
    assert harness.calls()["instances.delete"] == 1


def test_what_google_refuses_is_not_sent_again(harness: DriverHarness):
    """A quota, a zone without capacity, and an invalid call."""
    for error in (
        quota("Quota 'C2_CPUS' exceeded.  Limit: 8.0 in region europe-west4."),
        ApiError(503, "insufficientCapacity", "The zone has no room."),
        ApiError(400, "invalid", "Invalid value for field 'count'."),
    ):
        harness.fault("instances.bulkInsert", error=error)
        event = harness.insert(*names(2))
        assert event.whole is not None
        assert (event.whole.code, event.whole.message) == (error.reason, error.message)
        assert event.whole.status == error.status
    assert harness.calls()["instances.bulkInsert"] == 3


def test_a_failed_operation_without_a_vms_error_is_a_failure_of_all(harness: DriverHarness):
    why = OperationError("VM_MIN_COUNT_NOT_REACHED", "Requested minimum count of 5 VMs ...")
    harness.fault("instances.bulkInsert", operation_error=why)
    event = harness.insert(*names(5), least=5)
    assert event.failed == {}
    assert event.whole is not None
    assert (event.whole.code, event.whole.message) == (why.code, why.message)


def test_a_part_that_has_no_room_is_named(harness: DriverHarness):
    harness.cloud.server.cloud.settings.capacity = {(ZONE, CHOICE.machine_type): 2}
    event = harness.insert(*names(5))
    assert event.whole is None
    assert set(event.failed) == set(names(3, start=2))
    assert {why.code for why in event.failed.values()} == {"ZONE_RESOURCE_POOL_EXHAUSTED"}
    assert harness.names() == set(names(2))


def test_a_job_without_room_for_all_gets_none_and_the_reason(harness: DriverHarness):
    harness.cloud.server.cloud.settings.capacity = {(ZONE, CHOICE.machine_type): 2}
    event = harness.insert(*names(5), least=5)
    assert event.whole is not None
    assert event.whole.code == "ZONE_RESOURCE_POOL_EXHAUSTED"
    assert harness.names() == set()


def test_a_quota_in_the_operation_is_named(harness: DriverHarness):
    harness.cloud.server.cloud.settings.quotas = {"europe-west4": {"C2_CPUS": 4}}
    event = harness.insert(*names(2))
    assert {why.code for why in event.failed.values()} == {"QUOTA_EXCEEDED"}
    assert len(event.failed) == 1


def test_an_operation_without_its_optional_members_is_read(harness: DriverHarness):
    """instancesBulkInsertOperationMetadata may be missing."""
    harness.cloud.server.cloud.settings.latency_seconds = {"compute.instances.bulkInsert": 5}
    harness.cloud.server.cloud.settings.capacity = {(ZONE, CHOICE.machine_type): 1}
    harness.google.submit(Insert("request", CHOICE, names(2), 1))
    harness.forget("instancesBulkInsertOperationMetadata")
    (event,) = harness.take_events(1)
    assert isinstance(event, Inserted)
    assert set(event.failed) == {"lab-debug-1"}


def only_counted(operation: dict[str, Any]) -> dict[str, Any]:
    """Remove the errors: Google did not start the last VMs, and only createdVmCount shows it."""
    errors = {"error", "httpErrorStatusCode"}
    operation = {key: operation[key] for key in operation if key not in errors}
    metadata = operation.get("instancesBulkInsertOperationMetadata", {})
    for location in metadata.get("perLocationStatus", {}).values():
        location.pop("failedToCreateVmCount", None)
    return operation


def test_vms_that_google_did_not_create_without_saying_so_are_found_by_the_list(
    harness: DriverHarness,
):
    harness.cloud.server.cloud.settings.capacity = {(ZONE, CHOICE.machine_type): 2}
    harness.rewrite(only_counted)
    event = harness.insert(*names(5))
    assert event.whole is None
    assert set(event.failed) == set(names(5)) - harness.names()
    assert len(harness.names()) == 2
    assert {why.code for why in event.failed.values()} == {"notMade"}
    assert {remedy(why) for why in event.failed.values()} == {Remedy.ELSEWHERE}
    assert "instances.get" not in harness.calls()


def test_a_list_that_lacks_more_vms_than_were_not_created_is_not_used(
    harness: DriverHarness, monkeypatch: pytest.MonkeyPatch
):
    """The VM that it lacks runs, so it must not be created again in another zone."""
    harness.cloud.server.cloud.settings.capacity = {(ZONE, CHOICE.machine_type): 2}
    harness.rewrite(only_counted)
    existing = harness.google._inserts.existing
    read_list = existing._list
    lists: list[dict[str, Any]] = []

    def stale_list(zone: str, until: float) -> dict[str, Any]:
        vms = read_list(zone, until)
        lists.append(vms)
        return dict(list(vms.items())[1:]) if len(lists) <= 2 else vms

    monkeypatch.setattr(existing, "_list", stale_list)
    event = harness.insert(*names(5))
    assert set(event.failed) == set(names(5)) - harness.names()
    assert len(lists) == 3


def test_a_vm_of_ours_that_exists_is_success(harness: DriverHarness):
    harness.insert(*names(2))
    assert harness.insert(*names(4), least=4) == Inserted("request-2")
    assert harness.names() == set(names(4))


def test_a_restarted_daemon_that_inserts_again_creates_nothing(
    cloud: Cloud, harness: DriverHarness
):
    harness.insert(*names(3), least=3, action="request")
    restarted = DriverHarness(cloud, harness.clock)
    assert restarted.insert(*names(3), least=3, action="request") == Inserted("request")
    # The requestId was enough: no VM had to be looked up.
    assert restarted.calls() == {"instances.bulkInsert": 1}
    restarted.google.close()


def test_a_vm_of_another_owner_with_the_name_is_a_failure(harness: DriverHarness):
    harness.make("lab-debug-1", labels={"owner": "ada"})
    event = harness.insert(*names(3))
    assert event.whole is None
    assert {name: why.code for name, why in event.failed.items()} == {
        "lab-debug-1": "alreadyExists"
    }
    assert "not a node of cluster lab" in event.failed["lab-debug-1"].message
    assert harness.names() == set(names(3))


@pytest.mark.parametrize(
    # The last two stay until reconcile deletes them, which it does when a list has them.
    "status",
    ["STOPPING", "PENDING_STOP", "DEPROVISIONING", "TERMINATED", "SUSPENDED"],
)
def test_a_previous_vm_that_is_not_up_is_a_failure_that_passes(harness: DriverHarness, status: str):
    make_with_status(harness, "lab-debug-1", status)
    event = harness.insert(*names(2))
    assert event.whole is None
    why = Failure("stillStopping", f"the previous VM is still {status} in {ZONE}", 409)
    assert event.failed == {"lab-debug-1": why}
    assert remedy(why) is Remedy.LATER


# As reconcile does with VMs that are listed: what is not known to end is coming.
@pytest.mark.parametrize("status", ["PENDING", "STAGING", "A_STATUS_THAT_GOOGLE_ADDS"])
def test_a_vm_that_comes_is_the_nodes(harness: DriverHarness, status: str):
    make_with_status(harness, "lab-debug-1", status)
    event = harness.insert(*names(2))
    assert (event.whole, event.failed) == (None, {})


def make_with_status(harness: DriverHarness, name: str, status: str) -> None:
    harness.make(name)
    scope = f"demo-project/zones/{ZONE}"
    harness.cloud.server.do(
        lambda fake: fake.store.put(
            "compute.instances",
            scope,
            name,
            {**fake.store.get("compute.instances", scope, name), "status": status},
        )
    )


def test_a_job_of_which_one_vm_exists_lacks_only_the_others(harness: DriverHarness):
    harness.make("lab-debug-1")
    harness.cloud.server.cloud.settings.capacity = {(ZONE, CHOICE.machine_type): 2}
    event = harness.insert(*names(3), least=3)
    assert event.whole is None
    assert {name: why.code for name, why in event.failed.items()} == dict.fromkeys(
        ("lab-debug-0", "lab-debug-2"), "ZONE_RESOURCE_POOL_EXHAUSTED"
    )
    assert harness.names() == {"lab-debug-1"}


def test_a_job_of_which_one_vm_exists_lacks_only_those_that_are_refused(harness: DriverHarness):
    harness.make("lab-debug-1")
    no_quota = quota("Quota 'C2_CPUS' exceeded.")
    harness.refuse_second("instances.bulkInsert", "/bulkInsert", no_quota)
    event = harness.insert(*names(2), least=2)
    assert event.whole is None
    assert {name: why.code for name, why in event.failed.items()} == {
        "lab-debug-0": "quotaExceeded"
    }


def test_a_job_that_lacks_one_vm_gets_none(harness: DriverHarness):
    harness.make("lab-debug-1", labels={"owner": "ada"})
    event = harness.insert(*names(3), least=3)
    assert event.whole is not None
    assert event.whole.code == "alreadyExists"
    assert harness.names() == {"lab-debug-1"}


def test_an_operation_that_does_not_end_gets_an_event(cloud: Cloud, harness: DriverHarness):
    cloud.server.cloud.settings.latency_seconds = {"compute.instances.*": 3600}
    harness.make("lab-debug-9")
    impatient = DriverHarness(cloud, harness.clock, replace(DRIVER_LIMITS, deadline_s=20))
    began = harness.clock.monotonic()
    inserted = impatient.insert(*names(2))
    assert inserted.whole is not None
    assert inserted.whole.code == "timeout"
    deleted = impatient.delete("lab-debug-9")
    assert deleted.failure is not None
    assert deleted.failure.code == "timeout"
    assert harness.clock.monotonic() - began < 90
    impatient.google.close()


def test_a_deletion_that_fails_later_is_reported(harness: DriverHarness):
    harness.make("lab-debug-0")
    harness.fault(
        "instances.delete", operation_error=OperationError("INTERNAL_ERROR", "again", 500)
    )
    event = harness.delete("lab-debug-0")
    assert event.failure is not None
    assert event.failure.code == "INTERNAL_ERROR"


def test_what_the_rate_limit_holds_back_too_long_is_not_sent(cloud: Cloud, harness: DriverHarness):
    """At two calls a minute the last one would wait for half a minute."""
    slow = DriverHarness(cloud, harness.clock, Limits(per_minute=2, burst=2, deadline_s=20))
    slow.insert(*names(2))
    slow.google.submit(Insert("late", CHOICE, names(2, start=2), 1))
    slow.google.submit(Insert("later", CHOICE, names(2, start=4), 1))
    events = slow.take_events(2)
    late = [event for event in events if isinstance(event, Inserted) and event.whole]
    assert [event.whole.code for event in late if event.whole] == ["notSent"]
    assert len(harness.names()) == 4
    slow.google.close()


def test_a_report_that_cannot_be_read_is_a_failure(harness: DriverHarness):
    harness.fault("instances.getGuestAttributes", error=ApiError(400, "invalid", "Invalid value."))
    event = harness.probe("lab-debug-0", report=True)
    assert event.failure is not None
    assert event.failure.code == "invalid"


def test_lists_fail_as_a_whole(harness: DriverHarness):
    """With a part of the VMs, the others would look gone."""
    harness.insert(*names(600))
    harness.fault("instances.aggregatedList", times=1, error=BUSY)
    assert len(harness.google.vms()) == 600


def test_there_are_no_events_after_the_end(harness: DriverHarness):
    harness.cloud.server.cloud.settings.latency_seconds = {"compute.instances.*": 3}
    harness.google.submit(Insert("request", CHOICE, names(2), 1))
    for number in range(50):
        harness.google.submit(Delete(lost_vm(number), "idle"))
    harness.google.close()
    harness.events.clear()
    harness.clock.sleep(9)
    assert harness.events == []
