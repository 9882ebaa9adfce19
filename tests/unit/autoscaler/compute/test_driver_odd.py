"""Invalid answers, and deletions that are submitted twice: nothing waits for ever."""

from types import SimpleNamespace

import pytest
from driverkit import DriverHarness, names, until

from muster.autoscaler.compute import driver
from muster.autoscaler.compute.api_client import Limits, Transport
from muster.autoscaler.reconcile.model import Deleted, Inserted


@pytest.fixture
def invalid_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer each request with JSON that is no object."""
    answer = SimpleNamespace(status=200, data=b"null", headers={})
    monkeypatch.setattr(Transport, "_send", lambda *_a, **_k: answer)


def test_an_answer_that_is_no_object_fails_its_action_and_no_thread(
    cloud, clock, monkeypatch: pytest.MonkeyPatch, invalid_answers: None
):
    monkeypatch.setenv("GOOGLE_COMPUTE_CUSTOM_ENDPOINT", f"{cloud.server.url}/compute/v1/")
    harness = DriverHarness(cloud, clock, Limits(deadline_s=15, try_s=7))
    try:
        for name in names(6):
            # More deletions than threads that delete.
            assert harness.delete(name).failure
        assert harness.insert(*names(2)).whole
    finally:
        harness.google.close()


def test_a_deletion_that_has_not_ended_is_not_sent_again(harness: DriverHarness):
    for name in names(40):
        harness.make(name)
    vms = harness.google.vms()

    def submit(_cloud: object) -> None:
        for vm in vms * 3:
            harness.google.submit(driver.Delete(vm, "idle"))

    # On the cloud's thread: meanwhile the cloud answers nothing, so none of them ends.
    harness.cloud.server.do(submit)
    assert {
        event.vm.name for event in harness.take_events(40) if isinstance(event, Deleted)
    } == set(names(40))
    assert harness.calls()["instances.delete"] == 40
    until(lambda: not harness.names() & set(names(40)))
    assert isinstance(harness.insert("lab-debug-0"), Inserted)
    assert "lab-debug-0" in harness.names()
    assert not harness.events
