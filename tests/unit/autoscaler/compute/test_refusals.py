"""What goes wrong again and again is logged once, and then counted."""

import pytest
from clockkit import SetClock
from driverkit import BUSY, DriverHarness, lost_vm, until
from quick import FastClock

from muster.autoscaler.compute.refusals import EVERY_S, Refusals
from muster.autoscaler.reconcile.model import Delete, Deleted
from muster.gcp.api import CloudError

DAY_S = 86400


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records]


def test_each_kind_is_logged_once_and_then_counted(
    clock: FastClock, caplog: pytest.LogCaptureFixture
):
    refusals = Refusals(clock)
    for number in range(1000):
        refusals.add("instances.delete", "backendError", f"delete n{number}: backendError")
        refusals.add("instances.delete", "rateLimitExceeded", f"delete n{number}: rate")
        refusals.add("instances.get", "backendError", f"get n{number}: backendError")
    assert messages(caplog) == [
        "delete n0: backendError",
        "delete n0: rate",
        "get n0: backendError",
    ]
    clock.suspended_s += EVERY_S
    for number in range(1000, 1002):
        refusals.add("instances.delete", "backendError", f"delete n{number}: backendError")
    (later,) = messages(caplog)[3:]
    assert later.startswith("delete n1000: backendError (999 more such errors in 6")


def test_one_after_a_while_has_no_number(clock: FastClock, caplog: pytest.LogCaptureFixture):
    refusals = Refusals(clock)
    for _ in range(2):
        refusals.add("instances.delete", "backendError", "delete n0: backendError")
        clock.suspended_s += EVERY_S
    assert messages(caplog) == ["delete n0: backendError"] * 2


def test_a_day_of_errors_each_second_has_some_kilobytes(caplog: pytest.LogCaptureFixture):
    clock = SetClock()
    refusals = Refusals(clock)
    for number in range(DAY_S):
        clock.passes(1)
        refusals.add("instances.get", "rateLimitExceeded", f"delete n{number}: 403 Rate Limit ...")
    assert 100 < len(caplog.records) <= DAY_S / EVERY_S
    assert sum(map(len, messages(caplog))) < 20_000


def test_thousands_of_deletions_that_fail_have_a_few_lines(
    harness: DriverHarness, caplog: pytest.LogCaptureFixture
):
    harness.fault("instances.get", times=10_000, error=BUSY)
    for number in range(300):
        harness.google.submit(Delete(lost_vm(number), "idle"))
    until(lambda: harness.calls().get("instances.get", 0) > 300)
    assert len(caplog.records) == 1
    assert messages(caplog)[0].startswith("delete lab-gone-")


def test_a_list_that_fails_all_the_time_has_a_few_lines(
    harness: DriverHarness, caplog: pytest.LogCaptureFixture
):
    harness.fault("instances.aggregatedList", times=10_000, error=BUSY)
    with pytest.raises(CloudError):
        harness.google.vms()
    assert harness.calls()["instances.aggregatedList"] > 5
    assert len(caplog.records) == 1


def test_operations_that_cannot_be_polled_have_a_few_lines(
    harness: DriverHarness, caplog: pytest.LogCaptureFixture
):
    harness.make("lab-debug-0")
    harness.cloud.server.cloud.settings.latency_seconds = {"compute.instances.delete": 60}
    harness.fault("zoneOperations.list", times=10_000, error=BUSY)
    event = harness.delete("lab-debug-0")
    assert event == Deleted(event.vm, event.failure)
    assert event.failure is not None
    assert event.failure.code == "timeout"
    # Of both methods; the last request of each has only until the deadline, and may be cut off.
    assert len(caplog.records) <= 4
