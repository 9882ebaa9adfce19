"""The cloud with a slow backend: operations wait for its reports and follow them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakecloud_calls import REGION, ZONE, Caller, instance

from muster_sandbox.fakecloud import Settings, open_cloud
from muster_sandbox.fakecloud.backends import STOP_SECONDS, Done
from muster_sandbox.fakecloud.backends.memory import MemoryBackend
from muster_sandbox.fakecloud.clock import ManualClock
from muster_sandbox.fakecloud.services.compute import lifecycle
from muster_sandbox.fakecloud.services.compute.resources import Reference

ONE = f"{ZONE}/instances/one"


class Slow(MemoryBackend):
    """Records calls; a test decides when they are done."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, str, Done]] = []
        self.seconds = 0
        """How long the last machine that was stopped may take."""

    def start(self, instance: Any, done: Done) -> None:
        self.asked.append(("start", instance["name"], done))

    def stop(self, instance: Any, done: Done, seconds: int = STOP_SECONDS) -> None:
        self.asked.append(("stop", instance["name"], done))
        self.seconds = seconds

    def delete(self, instance: Any, done: Done) -> None:
        self.asked.append(("delete", instance["name"], done))

    def create_image(self, image: Any, disk: Any, done: Done) -> None:
        self.asked.append(("image", image["name"], done))
        assert disk["id"] == image["sourceDiskId"]

    def finish(self, what: str, name: str, problem: str = "") -> None:
        (call,) = [call for call in self.asked if call[:2] == (what, name)]
        self.asked.remove(call)
        call[2](problem)


@pytest.fixture
def slow() -> Slow:
    return Slow()


@pytest.fixture
def ask(slow: Slow) -> Iterator[Caller]:
    cloud = open_cloud(Settings(), backend=lambda _cloud: slow)
    yield Caller(cloud)
    cloud.close()
    assert cloud.failures == []


def test_it_runs_when_the_machine_has_booted(lab: Caller, slow: Slow):
    operation = lab.post(f"{ZONE}/instances", instance("one"))
    assert (operation["status"], lab.get(ONE)["status"]) == ("RUNNING", "STAGING")
    slow.finish("start", "one")
    assert lab.get(ONE)["status"] == "RUNNING"
    assert lab.get(f"{ZONE}/operations/{operation['name']}")["status"] == "DONE"


def test_a_machine_that_cant_boot_is_an_error_with_its_reason(lab: Caller, slow: Slow):
    operation = lab.post(f"{ZONE}/instances", instance("one"))
    slow.finish("start", "one", "no image debian-12")
    ended = lab.get(f"{ZONE}/operations/{operation['name']}")
    assert ended["error"]["errors"] == [{"code": "INTERNAL_ERROR", "message": "no image debian-12"}]
    assert lab.refused("GET", ONE)[0] == 404
    assert "items" not in lab.get(f"{ZONE}/disks")


def test_stop_start_and_delete_wait_for_the_machine(lab: Caller, slow: Slow):
    lab.post(f"{ZONE}/instances", instance("one"))
    slow.finish("start", "one")
    for method, during, after in (
        ("stop", "STOPPING", "TERMINATED"),
        ("start", "STAGING", "RUNNING"),
    ):
        lab.post(f"{ONE}/{method}")
        assert lab.get(ONE)["status"] == during
        assert slow.seconds == STOP_SECONDS
        slow.finish(method, "one")
        assert lab.get(ONE)["status"] == after
    lab.post(f"{ONE}/reset")
    slow.finish("stop", "one")
    slow.finish("start", "one")
    assert lab.get(ONE)["status"] == "RUNNING"
    lab.delete(ONE)
    assert lab.get(ONE)["status"] == "STOPPING"
    slow.finish("delete", "one")
    assert lab.refused("GET", ONE)[0] == 404


@pytest.mark.parametrize("action", ["STOP", "DELETE"])
def test_a_preempted_machine_has_half_a_minute_to_shut_down(lab: Caller, slow: Slow, action: str):
    scheduling = {"provisioningModel": "SPOT", "instanceTerminationAction": action}
    lab.post(f"{ZONE}/instances", instance("one", scheduling=scheduling))
    slow.finish("start", "one")
    lab.post(f"{ONE}/simulateMaintenanceEvent")
    assert (lab.get(ONE)["status"], slow.seconds) == ("STOPPING", 30)
    slow.finish("stop", "one")
    if action == "DELETE":
        slow.finish("delete", "one")
        assert lab.refused("GET", ONE)[0] == 404
    else:
        assert lab.get(ONE)["status"] == "TERMINATED"
    assert slow.asked == []


def test_how_long_a_preempted_machine_has_can_be_set(lab: Caller, slow: Slow):
    lab.cloud.settings.preemption_seconds = 5
    lab.post(f"{ZONE}/instances", instance("one", scheduling={"provisioningModel": "SPOT"}))
    slow.finish("start", "one")
    lab.post(f"{ONE}/simulateMaintenanceEvent")
    assert slow.seconds == 5


def test_a_deletion_overtakes_a_preemption(lab: Caller, slow: Slow):
    scheduling = {"provisioningModel": "SPOT", "instanceTerminationAction": "DELETE"}
    lab.post(f"{ZONE}/instances", instance("one", scheduling=scheduling))
    slow.finish("start", "one")
    preempted = lab.post(f"{ONE}/simulateMaintenanceEvent")
    lab.delete(ONE)
    slow.finish("delete", "one")
    lab.post(f"{ZONE}/instances", instance("one"))
    slow.finish("stop", "one", "it is gone")
    assert slow.asked == [("start", "one", slow.asked[0][2])]
    assert lab.get(f"{ZONE}/operations/{preempted['name']}")["status"] == "DONE"
    slow.finish("start", "one")
    assert lab.get(ONE)["status"] == "RUNNING"


def test_a_start_that_fails_leaves_it_off(lab: Caller, slow: Slow):
    lab.post(f"{ZONE}/instances", instance("one"))
    slow.finish("start", "one")
    lab.post(f"{ONE}/stop")
    slow.finish("stop", "one")
    lab.post(f"{ONE}/start")
    slow.finish("start", "one", "out of memory")
    assert lab.get(ONE)["status"] == "TERMINATED"


def test_a_deletion_overtakes_the_boot(lab: Caller, slow: Slow):
    lab.post(f"{ZONE}/instances", instance("one"))
    lab.delete(ONE)
    slow.finish("start", "one")
    assert lab.get(ONE)["status"] == "STOPPING"
    slow.finish("delete", "one")
    assert lab.refused("GET", ONE)[0] == 404
    assert all(
        operation["status"] == "DONE" for operation in lab.get(f"{ZONE}/operations")["items"]
    )


def test_a_machine_that_powers_off_is_off(lab: Caller, slow: Slow):
    lab.post(f"{ZONE}/instances", instance("one"))
    slow.finish("start", "one")
    one = Reference("demo-project", ZONE, "instances", "one")
    lab.cloud.report(lambda: lifecycle.stopped(lab.cloud, one))
    assert isinstance(lab.cloud.clock, ManualClock)
    lab.cloud.clock.advance(0)
    assert lab.get(ONE)["status"] == "TERMINATED"


def test_an_image_is_ready_when_it_is_made(lab: Caller, slow: Slow):
    lab.post(f"{ZONE}/disks", {"name": "builder", "sizeGb": "10"})
    body = {"family": "slurm", "sourceDisk": f"{ZONE}/disks/builder"}
    lab.post("global/images", {**body, "name": "slurm-1"})
    assert lab.get("global/images/slurm-1")["status"] == "PENDING"
    slow.finish("image", "slurm-1")
    assert lab.get("global/images/family/slurm")["name"] == "slurm-1"
    operation = lab.post("global/images", {**body, "name": "slurm-2"})
    slow.finish("image", "slurm-2", "disk full")
    ended = lab.get(f"global/operations/{operation['name']}")
    assert ended["error"]["errors"][0]["message"] == "disk full"
    assert lab.refused("GET", "global/images/slurm-2")[0] == 404


def test_a_bulk_creation_waits_for_each_machine(lab: Caller, slow: Slow):
    properties = {**instance("x"), "machineType": "n1-standard-2"}
    del properties["name"]
    body = {"count": 3, "minCount": 2, "namePattern": "n-#", "instanceProperties": properties}
    operation = lab.post(f"{ZONE}/instances/bulkInsert", body)
    url = f"{ZONE}/operations/{operation['name']}"
    slow.finish("start", "n-1")
    assert lab.get(f"{ZONE}/instances/n-1")["status"] == "RUNNING"
    slow.finish("start", "n-2", "no room")
    assert lab.get(url)["status"] == "RUNNING"
    slow.finish("start", "n-3")
    assert (lab.get(url)["status"], lab.get(url).get("error")) == ("DONE", None)
    names = [vm["name"] for vm in lab.get(f"{ZONE}/instances")["items"]]
    assert names == ["n-1", "n-3"]
    again = lab.post(f"{ZONE}/instances/bulkInsert", {**body, "namePattern": "m-#"})
    for number in (1, 2):
        slow.finish("start", f"m-{number}", "no room")
    slow.finish("start", "m-3")
    url = f"{ZONE}/operations/{again['name']}"
    assert lab.get(url)["status"] == "RUNNING"
    slow.finish("delete", "m-3")
    assert lab.get(url)["error"]["errors"][0]["code"] == "VM_MIN_COUNT_NOT_REACHED"


def test_a_boot_is_asked_for_again_after_a_restart(tmp_path: Path):
    first = Slow()
    cloud = open_cloud(Settings(), tmp_path, backend=lambda _cloud: first)
    ask = Caller(cloud)
    ask.post("global/networks", {"name": "lab", "autoCreateSubnetworks": False})
    subnet = {"name": "lab", "network": "global/networks/lab", "ipCidrRange": "10.0.0.0/20"}
    ask.post(f"{REGION}/subnetworks", subnet)
    operation = ask.post(f"{ZONE}/instances", instance("one"))
    cloud.close()
    second = Slow()
    again = open_cloud(Settings(), tmp_path, backend=lambda _cloud: second)
    ask = Caller(again)
    assert isinstance(again.clock, ManualClock)
    again.clock.advance(0)
    second.finish("start", "one")
    assert ask.get(f"{ZONE}/operations/{operation['name']}")["status"] == "DONE"
    assert ask.get(ONE)["status"] == "RUNNING"
    again.close()
    assert again.failures == []
