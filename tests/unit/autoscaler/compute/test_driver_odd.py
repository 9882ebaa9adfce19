"""Answers that Google doesn't give, and calls that come twice: nobody waits for ever."""

from types import SimpleNamespace

import pytest
from edgekit import Edge, names, until

from muster.autoscaler.compute import driver
from muster.autoscaler.compute.http import Limits, Transport
from muster.autoscaler.reconcile.model import Deleted, Inserted


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request is answered with JSON that is no object."""
    answer = SimpleNamespace(status=200, data=b"null", headers={})
    monkeypatch.setattr(Transport, "_send", lambda *_a, **_k: answer)


def test_an_answer_that_is_no_object_fails_its_action_and_no_thread(
    cloud, quick: None, monkeypatch: pytest.MonkeyPatch, odd: None
):
    monkeypatch.setenv("GOOGLE_COMPUTE_CUSTOM_ENDPOINT", f"{cloud.server.url}/compute/v1/")
    edge = Edge(cloud, Limits(deadline_s=1, try_s=0.5))
    try:
        for name in names(6):
            # More than there are threads that delete.
            assert edge.delete(name).failure
        assert edge.insert(*names(2)).whole
    finally:
        edge.google.close()


def test_a_deletion_that_waits_is_not_asked_for_again(edge: Edge):
    for name in names(40):
        edge.make(name)
    vms = edge.google.vms()

    def submit(_cloud: object) -> None:
        for vm in vms * 3:
            edge.google.submit(driver.Delete(vm, "idle"))

    # On the cloud's own thread: meanwhile it answers nothing, so none of them ends.
    edge.cloud.server.do(submit)
    assert {event.name for event in edge.told(40) if isinstance(event, Deleted)} == set(names(40))
    assert edge.calls()["instances.delete"] == 40
    until(lambda: not edge.names() & set(names(40)))
    assert isinstance(edge.insert("lab-debug-0"), Inserted)
    assert "lab-debug-0" in edge.names()
    assert not edge.events
