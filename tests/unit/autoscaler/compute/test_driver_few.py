"""Small groups don't wait while as many bulk operations run as a zone may have."""

from dataclasses import replace
from itertools import count

from controllerkit import ZONE, Cloud
from driverkit import CHOICE, DriverHarness, names, until
from quick import DRIVER_LIMITS

from muster.autoscaler.reconcile.model import Failure, Insert, Inserted
from muster_sandbox.fakecloud.api_errors import quota
from muster_sandbox.fakecloud.injected_faults import OperationError


def with_all_slots_taken(harness: DriverHarness) -> None:
    """Start eight bulk operations that take long: two are left to other zones."""
    harness.cloud.server.cloud.settings.latency_seconds = {"compute.instances.bulkInsert": 40}
    for number in range(8):
        harness.google.submit(Insert(f"bulk-{number}", CHOICE, names(5, 100 + 5 * number), 1))
    # More where a busy machine answers late: the driver asks again, by the same requestId.
    until(lambda: harness.calls().get("instances.bulkInsert", 0) >= 8)
    assert harness.google.budget().bulk == 8


def test_a_pair_is_created_by_single_inserts(harness: DriverHarness):
    with_all_slots_taken(harness)
    assert harness.insert(*names(2), least=2) == Inserted("request-1")
    assert harness.calls()["instances.insert"] == 2
    assert harness.names() >= set(names(2))
    assert len(harness.take_events(8)) == 8


def test_of_a_pair_with_room_for_one_the_other_is_reported_and_nothing_is_deleted(
    harness: DriverHarness,
):
    with_all_slots_taken(harness)
    harness.cloud.server.cloud.settings.capacity = {(ZONE, CHOICE.machine_type): 41}
    event = harness.insert(*names(2), least=2)
    assert event.whole is None
    assert {name: why.code for name, why in event.failed.items()} == {
        "lab-debug-1": "ZONE_RESOURCE_POOL_EXHAUSTED"
    }
    assert harness.names() >= {"lab-debug-0"}
    assert "instances.delete" not in harness.calls()


def test_those_that_are_not_tried_any_more_are_reported_too(harness: DriverHarness):
    """The second one is refused, so the job can't have all of its nodes."""
    with_all_slots_taken(harness)
    harness.refuse_second("instances.insert", "/instances", quota("Quota 'C2_CPUS' exceeded."))
    event = harness.insert(*names(4), least=4)
    assert event.whole is None
    assert {name: why.code for name, why in event.failed.items()} == dict.fromkeys(
        names(3, start=1), "quotaExceeded"
    )
    assert harness.names() & set(names(4)) == {"lab-debug-0"}
    assert "instances.delete" not in harness.calls()
    assert harness.calls()["instances.insert"] == 2


def test_each_name_has_its_own_reason_if_they_differ(harness: DriverHarness):
    """Of the second one it is not known whether its VM is made: that is not the first one's."""
    with_all_slots_taken(harness)
    no_room = OperationError("ZONE_RESOURCE_POOL_EXHAUSTED", "No room.")
    harness.fault("instances.insert", times=2, operation_error=no_room)
    ends = harness.google._inserts.operations
    wait = ends.wait
    waited = count(1)
    ends.wait = lambda *args: wait(*args) if next(waited) < 3 else None
    event = harness.insert(*names(3), least=3)
    assert event.whole is None
    assert {name: why.code for name, why in event.failed.items()} == {
        "lab-debug-0": "ZONE_RESOURCE_POOL_EXHAUSTED",
        "lab-debug-1": "ZONE_RESOURCE_POOL_EXHAUSTED",
        "lab-debug-2": "timeout",
    }


def test_a_reason_that_all_have_is_given_once(harness: DriverHarness):
    with_all_slots_taken(harness)
    no_room = OperationError("ZONE_RESOURCE_POOL_EXHAUSTED", "No room.")
    harness.fault("instances.insert", times=2, operation_error=no_room)
    event = harness.insert(*names(2), least=2)
    assert event.failed == {}
    assert event.whole == Failure("ZONE_RESOURCE_POOL_EXHAUSTED", "No room.", 503)


def test_a_pair_of_which_one_exists_is_success(harness: DriverHarness):
    harness.make("lab-debug-1")
    with_all_slots_taken(harness)
    assert harness.insert(*names(2), least=2) == Inserted("request-1")


def test_a_large_group_waits_for_its_turn(harness: DriverHarness):
    with_all_slots_taken(harness)
    harness.google.submit(Insert("large", CHOICE, names(6), 6))
    events = harness.take_events(9)
    assert all(isinstance(event, Inserted) and event.whole is None for event in events)
    assert harness.calls() == {
        "instances.bulkInsert": 9,
        "zoneOperations.list": harness.calls()["zoneOperations.list"],
    }


def test_a_large_group_that_gets_no_turn_is_not_sent(cloud: Cloud, harness: DriverHarness):
    narrow = DriverHarness(
        cloud, harness.clock, replace(DRIVER_LIMITS, bulk_at_once=1, deadline_s=20)
    )
    cloud.server.cloud.settings.latency_seconds = {"compute.instances.bulkInsert": 40}
    narrow.google.submit(Insert("first", CHOICE, names(5), 1))
    until(lambda: narrow.google.budget().bulk == 1)
    narrow.google.submit(Insert("second", CHOICE, names(5, 5), 1))
    codes = {
        event.id: event.whole.code
        for event in narrow.take_events(2)
        if isinstance(event, Inserted) and event.whole
    }
    assert codes == {"first": "timeout", "second": "notSent"}
    narrow.google.close()
