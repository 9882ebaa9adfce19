"""A deletion that waits can be withdrawn, and is sent only until a time; later it can't."""

import math
from collections.abc import Callable

import pytest
from controllerkit import Cloud
from driverkit import BUSY, DriverHarness, lost_vm, until

from muster.autoscaler.compute.api_client import Limits
from muster.autoscaler.compute.delete import WITHDRAWN
from muster.autoscaler.compute.driver import Google
from muster.autoscaler.reconcile.model import Delete, Deleted, Vm, Withdraw
from muster_sandbox.fakecloud.http import Deferred, Handle, Reply, Request

NAME = "lab-debug-0"


@pytest.fixture
def vm(harness: DriverHarness) -> Vm:
    harness.make(NAME)
    return harness.vm(NAME)


def during(harness: DriverHarness, verb: str, work: Callable[[], None]) -> None:
    """Do something while the cloud handles a call for the VM."""
    before = harness.cloud.server.cloud.middleware

    def watched(handle: Handle, request: Request) -> Reply | Deferred:
        if request.verb == verb and request.path.endswith(NAME):
            work()
        return before(handle, request)

    harness.cloud.server.cloud.middleware = watched


def test_one_that_waits_ends_at_once_and_the_vm_stays(cloud: Cloud, harness: DriverHarness, vm: Vm):
    slow = DriverHarness(cloud, harness.clock, Limits(per_minute=60, try_s=30))
    for number in range(100):
        slow.google.submit(Delete(lost_vm(number), "idle"))
    slow.google.submit(Delete(vm, "idle"))
    slow.google.submit(Withdraw(vm))
    until(lambda: Deleted(vm, WITHDRAWN) in slow.events)
    assert len(slow.events) < 50
    assert len(slow.take_events(101)) == 101
    slow.google.close()
    assert harness.names() == {NAME}


def test_it_is_looked_at_again_before_the_call(harness: DriverHarness, vm: Vm):
    """It is withdrawn while Google reads the VM's id."""
    during(harness, "GET", lambda: harness.google.submit(Withdraw(vm)))
    assert harness.delete(vm).failure == WITHDRAWN
    assert harness.names() == {NAME}
    assert "instances.delete" not in harness.calls()


def test_one_that_google_has_got_is_not_touched(harness: DriverHarness, vm: Vm):
    harness.cloud.server.cloud.settings.latency_seconds = {"compute.instances.*": 15}
    during(harness, "DELETE", lambda: harness.google.submit(Withdraw(vm)))
    harness.google.submit(Delete(vm, "idle"))
    until(lambda: harness.calls().get("instances.delete"))
    harness.google.submit(Withdraw(vm))
    assert harness.take_events(1) == [Deleted(vm)]
    assert harness.names() == set()
    assert harness.events == []


def test_one_that_waits_for_another_try_ends(harness: DriverHarness, vm: Vm):
    harness.fault("instances.delete", times=1000, error=BUSY)
    harness.google.submit(Delete(vm, "idle"))
    until(lambda: harness.calls().get("instances.delete", 0) >= 3)
    # Meanwhile the next try may be under way.
    harness.google.submit(Withdraw(vm))
    assert harness.take_events(1) == [Deleted(vm, WITHDRAWN)]
    calls = harness.calls()["instances.delete"]
    harness.clock.sleep(30)
    assert harness.calls()["instances.delete"] == calls


def test_one_that_google_refuses_meanwhile_is_not_sent_again(harness: DriverHarness, vm: Vm):
    harness.fault("instances.delete", times=1, error=BUSY)
    during(harness, "DELETE", lambda: harness.google.submit(Withdraw(vm)))
    assert harness.delete(vm).failure == WITHDRAWN
    harness.clock.sleep(30)
    assert harness.calls()["instances.delete"] == 1
    assert harness.names() == {NAME}


def test_one_that_is_asked_for_again_before_google_refuses_it_is_sent_again(
    harness: DriverHarness, vm: Vm
):
    def again() -> None:
        harness.google.submit(Withdraw(vm))
        harness.google.submit(Delete(vm, "idle"))

    harness.fault("instances.delete", times=1, error=BUSY)
    during(harness, "DELETE", again)
    assert harness.delete(vm).failure is None
    assert harness.names() == set()


def test_of_one_that_nobody_asked_for_nothing_is_said(harness: DriverHarness, vm: Vm):
    harness.google.submit(Withdraw(vm))
    assert harness.delete(vm).failure is None
    harness.google.submit(Withdraw(vm))
    assert harness.events == []


def test_one_that_is_asked_for_again_is_done(harness: DriverHarness, vm: Vm):
    def again() -> None:
        harness.google.submit(Withdraw(vm))
        harness.google.submit(Delete(vm, "idle"))

    during(harness, "GET", lambda: again() if not harness.events else None)
    harness.google.submit(Delete(vm, "idle"))
    assert harness.take_events(2) == [Deleted(vm, WITHDRAWN), Deleted(vm)]
    assert harness.names() == set()


def test_one_that_was_decided_by_states_that_are_old_is_not_sent_until_it_is_judged_again(
    harness: DriverHarness, vm: Vm
):
    harness.google.send_deletions_until(harness.clock.monotonic() - 1)
    harness.google.submit(Delete(vm, "idle"))
    harness.clock.sleep(20)
    assert harness.calls() == {}
    harness.google.send_deletions_until(harness.clock.monotonic() + 45)
    assert harness.take_events(1) == [Deleted(vm)]
    assert harness.names() == set()


def test_one_that_is_not_wanted_when_it_is_judged_again_was_never_sent(
    harness: DriverHarness, vm: Vm
):
    """As after a time in which this process was stopped."""
    harness.google.send_deletions_until(harness.clock.monotonic() - 1)
    harness.google.submit(Delete(vm, "idle"))
    harness.clock.sleep(20)
    harness.google.submit(Withdraw(vm))
    harness.google.send_deletions_until(harness.clock.monotonic() + 45)
    assert harness.take_events(1) == [Deleted(vm, WITHDRAWN)]
    assert harness.names() == {NAME}
    assert "instances.delete" not in harness.calls()


def test_the_time_is_looked_at_again_before_the_call(cloud: Cloud, harness: DriverHarness, vm: Vm):
    """The states become old while Google reads the id; its deadline counts from the next try."""
    slow = DriverHarness(cloud, harness.clock, Limits(deadline_s=60, try_s=30))
    times = [harness.clock.monotonic() - 1, math.inf]
    during(harness, "GET", lambda: slow.google.send_deletions_until(times.pop(0)))
    slow.google.submit(Delete(vm, "idle"))
    until(lambda: slow.calls().get("instances.get"))
    harness.clock.sleep(70)
    assert "instances.delete" not in slow.calls()
    slow.google.send_deletions_until(math.inf)
    assert slow.take_events(1) == [Deleted(vm)]
    slow.google.close()
    assert harness.names() == set()


def test_before_a_time_was_said_none_is_sent(harness: DriverHarness, vm: Vm):
    google = Google(
        "demo-project", "lab", harness.events.append, None, harness.credentials, clock=harness.clock
    )
    google.submit(Delete(vm, "idle"))
    harness.clock.sleep(20)
    google.close()
    assert harness.names() == {NAME}
