"""The daemon with the real driver and spool, a fake cloud and a simulated SLURM."""

import errno
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from controllerkit import OTHER_ZONE
from driverkit import CHOICE, SOON_S, DriverHarness, until

from muster.autoscaler import daemon
from muster.autoscaler.clock import Clock
from muster.autoscaler.compute import driver, metadata
from muster.autoscaler.compute.api_client import Limits
from muster.autoscaler.compute.driver import INSERT_PAUSES_S, Google
from muster.autoscaler.compute.fleet import Fleet
from muster.autoscaler.daemon import Daemon
from muster.autoscaler.messages import Inbox
from muster.autoscaler.readers import Pace
from muster.autoscaler.reconcile import observed
from muster.autoscaler.reconcile.model import Node, Power
from muster.autoscaler.reconcile.node_reasons import PREEMPTED
from muster.autoscaler.reconcile.observed import ObservedState
from muster.autoscaler.report.event_log import EventLog
from muster.autoscaler.report.history import history, read_log
from muster.autoscaler.report.metrics import Metrics
from muster.autoscaler.report.observer import Observer
from muster.autoscaler.report.status_file import StatusFile, read
from muster.autoscaler.slurm import power_save_program
from muster.autoscaler.slurm.slurmctld import SlurmError
from muster.autoscaler.slurm.spool import Spool
from muster_sandbox.fakecloud.api_errors import ApiError
from muster_sandbox.fakecloud.injected_faults import OperationError

PACE = Pace(slurm_busy_s=0.1, cloud_busy_s=0.2, idle_s=0.5, retry_s=0.2)
QUICK = observed.Timeouts(missing_s=1)
"""A daemon that starts again waits for lists only briefly."""
SLOW = Limits(per_minute=240, burst=6)
NO_ROOM = OperationError("ZONE_RESOURCE_POOL_EXHAUSTED", "The zone does not have enough resources")


class SimulatedSlurm:
    """Nodes register as soon as their VM runs; requests are written as slurmctld's programs do."""

    def __init__(self, harness: DriverHarness, spool: Path, count: int = 40) -> None:
        self.harness = harness
        self.spool = spool
        self.states = {f"lab-debug-{number}": Power.OFF for number in range(count)}
        self.reasons: dict[str, str] = {}
        self.preempted: set[str] = set()
        """Nodes that are draining because Google preempts their VM, and whose jobs do not end."""
        self.jobs: dict[int, list[str]] = {}
        """Jobs that wait for nodes."""
        self.away = False
        self.lock = threading.Lock()

    def nodes(self) -> list[Node]:
        if self.away:
            raise SlurmError("scontrol: Unable to contact slurm controller")
        with self.lock:
            running = self.running()
            for name, power in self.states.items():
                if power is Power.POWERING_UP and name in running:
                    self.states[name] = Power.UP
            return [self.node(name, power) for name, power in self.states.items()]

    def node(self, name: str, power: Power) -> Node:
        if name in self.preempted and power is Power.UP:
            return Node(name, power, drained=True, busy=True, leaving=True, reason=PREEMPTED)
        has_job = any(name in nodes for nodes in self.jobs.values())
        return Node(name, power, busy=power is Power.POWERING_UP and has_job)

    def running(self) -> set[str]:
        vms = self.harness.cloud.server.do(
            lambda fake: {name: vm["status"] for _, name, vm in fake.store.all("compute.instances")}
        )
        return {name for name, status in vms.items() if status == "RUNNING"}

    def release_nodes(self, names: Iterable[str], reason: str, *, in_service: bool) -> None:
        assert all((self.states[name] is Power.UP) is in_service for name in names)
        with self.lock:
            for name in names:
                self.states[name] = Power.POWERING_DOWN
                self.reasons[name] = reason
            # Its jobs are queued again: they have no other node either.
            self.jobs = {
                job: nodes for job, nodes in self.jobs.items() if set(names).isdisjoint(nodes)
            }

    def resume(self, *names: str, jobs: dict[int, list[str]] | None = None) -> None:
        waiting = [
            {"job_id": job, "nodes_resume": ",".join(nodes)} for job, nodes in (jobs or {}).items()
        ]
        with self.lock:
            self.states |= dict.fromkeys(names, Power.POWERING_UP)
            self.jobs |= jobs or {}
        resume_file = json.dumps({"jobs": waiting}).encode()
        power_save_program.write(str(self.spool), "resume", ",".join(names), resume_file)
        power_save_program.wake(str(self.spool))

    def suspend(self, *names: str, write: bool = True) -> None:
        with self.lock:
            self.states |= dict.fromkeys(names, Power.POWERING_DOWN)
        if write:
            power_save_program.write(str(self.spool), "suspend", ",".join(names), b"")
            power_save_program.wake(str(self.spool))

    def all_are(self, power: Power, *names: str) -> bool:
        return all(self.states[name] is power for name in names)


class SteppedClock(Clock):
    """The real clock, set forward by `skew_s`."""

    skew_s = 0.0

    def now(self) -> float:
        return super().now() + self.skew_s


class Service:
    """A daemon that can be stopped and started again."""

    def __init__(self, harness: DriverHarness, spool: Path, pace: Pace) -> None:
        self.harness = harness
        self.limits = Limits()
        self.clock = SteppedClock()
        self.folder = spool
        self.pace = pace
        self.status = spool.parent / "status.json"
        self.events = EventLog(spool.parent / "events.jsonl")
        self.slurm = SimulatedSlurm(harness, spool)
        self.start()

    def start(self) -> None:
        inbox = Inbox()
        self.google = Google(
            "demo-project", "lab", inbox.put, self.limits, self.harness.credentials
        )
        self.daemon = Daemon(
            ObservedState("lab", 0, timeouts=QUICK),
            inbox,
            slurm=self.slurm,
            cloud=Fleet(self.google),
            spool=Spool(self.folder, self.clock),
            pace=self.pace,
            observe=Observer(StatusFile(self.status), self.events, Metrics()),
            clock=self.clock,
        )
        self.thread = threading.Thread(target=self.daemon.run)
        self.thread.start()

    def stop(self) -> None:
        self.daemon.stop()
        self.thread.join(timeout=10)
        assert not self.thread.is_alive()
        self.google.close()
        self.events.close()


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    folder = tmp_path / "spool"
    folder.mkdir()
    return folder


def with_one_choice(choice: dict[str, Any]) -> dict[str, Any]:
    return {"choices": [choice], "compact": False}


@pytest.fixture
def service(
    harness: DriverHarness,
    spool: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Iterator[Service]:
    choice = {
        "template": CHOICE.template,
        "zone": CHOICE.zone,
        "machine_type": CHOICE.machine_type,
        "spot": False,
    }
    other = choice | {"zone": OTHER_ZONE}
    sets = json.dumps({"debug": with_one_choice(choice), "other": with_one_choice(other)})
    monkeypatch.setattr(metadata, "read", lambda _path: sets)
    started = Service(harness, spool, getattr(request, "param", PACE))
    # What is asked for before, an earlier daemon may have begun.
    until(lambda: started.daemon.observed.nodes_at)
    yield started
    started.stop()


def shown(service: Service) -> dict[str, str]:
    """The stages of all nodes that are not off, by the status file."""
    return {name: row.view.stage for name, row in read(service.status).nodes.items()}


def calls(service: Service, method: str) -> int:
    counts = service.google.budget().calls
    return sum(count for (name, _), count in counts.items() if name == method)


def test_a_burst_is_created_by_one_call_and_deleted_when_slurm_suspends_it(
    service: Service, spool: Path
):
    names = [f"lab-debug-{number}" for number in range(30)]
    service.slurm.resume(*names, jobs={job: [name] for job, name in enumerate(names, 1)})
    until(lambda: service.slurm.all_are(Power.UP, *names))
    until(lambda: not list(spool.glob("*.resume")))
    # It is counted with its answer, which may come later than the VMs.
    until(lambda: calls(service, "instances.bulkInsert"))
    assert calls(service, "instances.bulkInsert") == 1
    service.slurm.suspend(*names)
    until(lambda: not service.harness.names() & set(names))
    assert not list(spool.glob("*.suspend"))


def test_twenty_resume_programs_at_once_share_one_limiter(
    service: Service, spool: Path, tmp_path: Path
):
    """Each requests the two nodes of one job, by one call to the cloud, which counts the calls."""
    program = tmp_path / "muster-resume"
    program.write_text(
        Path(power_save_program.__file__).read_text().replace(power_save_program.SPOOL, str(spool))
    )
    service.stop()
    service.limits = SLOW
    service.start()
    at = service.harness.inserts()
    pairs = [(f"lab-debug-{number}", f"lab-debug-{number + 1}") for number in range(0, 40, 2)]
    names = [name for pair in pairs for name in pair]
    running = []
    # slurmctld doesn't list them as powering up until all are requested.
    with service.slurm.lock:
        for job, pair in enumerate(pairs, 1):
            content = {"jobs": [{"job_id": job, "nodes_resume": ",".join(pair)}]}
            resume_file = tmp_path / f"job-{job}"
            resume_file.write_text(json.dumps(content))
            words = [sys.executable, "-IS", program, ",".join(pair)]
            running.append(subprocess.Popen(words, env={"SLURM_RESUME_FILE": str(resume_file)}))
        service.slurm.states |= dict.fromkeys(names, Power.POWERING_UP)
        service.slurm.jobs = {job: list(pair) for job, pair in enumerate(pairs, 1)}
        assert [process.wait(SOON_S) for process in running] == [0] * len(pairs)
    until(lambda: service.slurm.all_are(Power.UP, *names), 2 * SOON_S)
    # One call for each job, or for each node if too many bulk operations run.
    assert len(pairs) <= len(at) <= len(names)
    for begin in at:
        for seconds in (1, 2, 4):
            count = sum(begin <= time_s < begin + seconds for time_s in at)
            assert count <= SLOW.burst + SLOW.per_minute / 60 * seconds + 1
    # Without the limiter all would come at once.
    assert at[-1] - at[0] > (len(pairs) - SLOW.burst) / (SLOW.per_minute / 60) - 1


def test_a_node_without_room_is_released_with_the_reason(service: Service, spool: Path):
    service.harness.fault("instances.insert", operation_error=NO_ROOM)
    service.harness.fault("instances.bulkInsert", operation_error=NO_ROOM)
    service.slurm.resume("lab-debug-0")
    until(lambda: service.slurm.all_are(Power.POWERING_DOWN, "lab-debug-0"))
    assert (
        "ZONE_RESOURCE_POOL_EXHAUSTED of c2-standard-4 in" in service.slurm.reasons["lab-debug-0"]
    )
    until(lambda: not list(spool.glob("*.resume")))


# The bound depends on how often production reads lists and polls operations.
@pytest.mark.parametrize("service", [Pace()], indirect=True)
def test_what_a_job_cannot_use_is_deleted_within_ten_seconds_of_the_refusal(
    service: Service, monkeypatch: pytest.MonkeyPatch
):
    service.stop()
    monkeypatch.setattr(driver, "INSERT_PAUSES_S", INSERT_PAUSES_S)
    # Booting takes longer than this test.
    monkeypatch.setattr(service.slurm, "running", set)
    service.start()
    settings = service.harness.cloud.server.cloud.settings
    settings.latency_seconds = {"compute.instances.bulkInsert": 1}
    settings.capacity = {(OTHER_ZONE, CHOICE.machine_type): 0}
    refused = service.harness.times("POST", f"{OTHER_ZONE}/instances/bulkInsert")
    deleted = service.harness.times("DELETE", "/instances/lab-debug-0")
    until(lambda: service.status.exists() and read(service.status).cloud_read)
    names = ["lab-debug-0", "lab-other-0"]
    service.slurm.resume(*names, jobs={7: names})
    until(lambda: "lab-debug-0" in service.harness.names())
    until(lambda: service.slurm.all_are(Power.POWERING_DOWN, *names))
    assert "ZONE_RESOURCE_POOL_EXHAUSTED" in service.slurm.reasons["lab-other-0"]
    until(lambda: "lab-debug-0" not in service.harness.names())
    assert len(refused) == 1
    assert deleted[0] - refused[0] < 10


def test_a_clock_that_steps_back_delays_nothing(service: Service, monkeypatch: pytest.MonkeyPatch):
    service.slurm.resume("lab-debug-0")
    until(lambda: service.slurm.all_are(Power.UP, "lab-debug-0"))
    service.clock.skew_s = -3600
    stepped_back = SimpleNamespace(
        time=lambda: time.time() - 3600,
        time_ns=lambda: time.time_ns() - 3600 * 10**9,
        clock_gettime=time.clock_gettime,
        CLOCK_BOOTTIME=time.CLOCK_BOOTTIME,
    )
    monkeypatch.setattr(power_save_program, "time", stepped_back)
    service.slurm.resume("lab-debug-1")
    until(lambda: service.slurm.all_are(Power.UP, "lab-debug-0", "lab-debug-1"))


def test_a_daemon_that_starts_later_handles_earlier_requests(service: Service, spool: Path):
    service.stop()
    service.slurm.resume("lab-debug-0", "lab-debug-1", jobs={1: ["lab-debug-0", "lab-debug-1"]})
    service.slurm.suspend("lab-debug-2")
    service.harness.make("lab-debug-2")
    assert list(spool.glob("*.resume"))
    service.start()
    until(lambda: service.slurm.all_are(Power.UP, "lab-debug-0", "lab-debug-1"))
    until(lambda: "lab-debug-2" not in service.harness.names())


def test_a_suspend_without_a_file_in_the_spool_still_deletes(service: Service):
    service.slurm.resume("lab-debug-0")
    until(lambda: service.slurm.all_are(Power.UP, "lab-debug-0"))
    service.slurm.suspend("lab-debug-0", write=False)
    until(lambda: "lab-debug-0" not in service.harness.names())


# Without watching, the end of the VM would be noticed too late for this test.
@pytest.mark.parametrize("service", [replace(PACE, idle_s=1000)], indirect=True)
def test_the_end_of_a_preempted_vm_is_watched_for(service: Service, spool: Path):
    service.slurm.resume("lab-debug-0")
    until(lambda: service.slurm.all_are(Power.UP, "lab-debug-0"))
    until(lambda: not list(spool.glob("*.resume")))
    service.slurm.preempted.add("lab-debug-0")
    # As when its jobs, queued again, request other nodes.
    service.slurm.resume("lab-debug-1")
    until(lambda: shown(service).get("lab-debug-0") == "leaving")
    until(lambda: service.slurm.all_are(Power.UP, "lab-debug-1"))
    until(lambda: not list(spool.glob("*.resume")))
    service.harness.remove("lab-debug-0")
    until(lambda: service.slurm.all_are(Power.POWERING_DOWN, "lab-debug-0"))
    assert service.slurm.reasons["lab-debug-0"] == "its VM was taken back (spot)"


def test_a_daemon_that_is_stopped_during_inserts_leaves_one_vm_for_each_node(service: Service):
    names = [f"lab-debug-{number}" for number in range(20)]
    for name in names:
        service.slurm.resume(name)
        if name.endswith(("3", "7")):
            service.stop()
            service.start()
    until(lambda: service.slurm.all_are(Power.UP, *names))
    assert set(names) <= service.harness.names()


def test_while_slurmctld_is_away_nothing_is_deleted_and_requests_are_met(service: Service):
    service.slurm.resume("lab-debug-0")
    until(lambda: service.slurm.all_are(Power.UP, "lab-debug-0"))
    service.slurm.away = True
    service.slurm.resume("lab-debug-1")
    until(lambda: "lab-debug-1" in service.harness.names())
    assert "lab-debug-0" in service.harness.names()
    service.slurm.away = False
    until(lambda: service.slurm.all_are(Power.UP, "lab-debug-1"))


def test_status_file_and_event_log_show_what_happens(service: Service):
    names = ["lab-debug-0", "lab-debug-1"]
    # It creates nothing before it has a list of the VMs.
    until(lambda: service.status.exists() and read(service.status).cloud_read)
    service.slurm.resume(*names, jobs={7: names})
    until(lambda: shown(service) == dict.fromkeys(names, "idle"))
    assert read(service.status).nodes["lab-debug-0"].view.zone == CHOICE.zone
    service.slurm.suspend(*names)
    until(lambda: not service.harness.names())
    with service.slurm.lock:
        service.slurm.states |= dict.fromkeys(names, Power.OFF)
    until(lambda: shown(service) == {})
    log = history(read_log(service.events.path), 0, time.time())
    for name in names:
        stages = [span.stage.value for span in log.nodes[name]]
        assert stages[0] == "inserting" and stages[-2:] == ["idle", "going"], stages
    assert [(job.id, job.nodes) for job in log.jobs] == [(7, tuple(names))]


def test_with_a_read_only_spool_nodes_come_and_go_and_requests_are_removed_later(
    service: Service, spool: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    unlink = Path.unlink

    def refuse(path: Path, missing_ok: bool = False) -> None:
        if path.parent == spool:
            # As the system says it, with the file's name.
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        unlink(path, missing_ok=missing_ok)

    nodes = ("lab-debug-0", "lab-debug-1")
    with monkeypatch.context() as read_only:
        read_only.setattr(Path, "unlink", refuse)
        for node in nodes:
            # Two requests, whose errors differ by the files' names.
            service.slurm.resume(node)
        until(lambda: service.slurm.all_are(Power.UP, *nodes))
        until(lambda: "the spool" in read(service.status).unread)
        unread = read(service.status).unread["the spool"]
        assert (unread.verb, unread.why) == (
            "written",
            f"Read-only file system; make {spool} writable",
        )
        # It is tried again at each pass, and said once.
        time.sleep(3 * daemon.TICK_S)
        assert caplog.text.count("the spool can't be written") == 1
        log = (spool.parent / "events.jsonl").read_text()
        assert log.count('"closed"') == len(nodes)
        # What is settled counts no more, although its file is there.
        service.slurm.suspend("lab-debug-0", write=False)
        until(lambda: not service.slurm.running() & {"lab-debug-0"})
        service.slurm.states["lab-debug-0"] = Power.OFF
        service.slurm.resume("lab-debug-0")
        until(lambda: service.slurm.all_are(Power.UP, *nodes))
        assert len(list(spool.glob("*.resume"))) == 3
    until(lambda: not list(spool.glob("*.resume")))
    until(lambda: not read(service.status).unread)


def test_with_a_spool_that_cant_be_listed_nodes_come_and_it_is_read_again(
    service: Service, spool: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    iterdir = Path.iterdir

    def refuse(path: Path) -> Iterator[Path]:
        if path == spool:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return iterdir(path)

    with monkeypatch.context() as broken:
        broken.setattr(Path, "iterdir", refuse)
        service.slurm.resume("lab-debug-0")
        until(lambda: service.slurm.all_are(Power.UP, "lab-debug-0"))
        until(lambda: "the spool's requests" in read(service.status).unread)
        unread = read(service.status).unread["the spool's requests"]
        assert (unread.verb, unread.why) == (
            "read",
            "Input/output error; using SLURM's node states meanwhile",
        )
        time.sleep(3 * daemon.TICK_S)
        assert caplog.text.count("the spool's requests can't be read") == 1
        assert list(spool.glob("*.resume"))
    # No program wakes the daemon.
    until(lambda: not list(spool.glob("*.resume")))
    until(lambda: not read(service.status).unread)


def test_what_cant_be_read_is_shown_and_blocks_nothing_else(service: Service):
    """Without the right to read quotas nodes are still created: Google checks quotas itself."""
    refused = ApiError(403, "forbidden", "Required 'compute.regions.get' permission.")
    service.harness.fault("regions.get", times=1 << 20, error=refused)
    service.slurm.away = True
    until(lambda: service.status.exists() and len(read(service.status).unread) == 2)
    status = read(service.status)
    assert set(status.unread) == {"slurmctld", "the quotas"}
    assert status.unread["the quotas"].why == f"forbidden: {refused.message}"
    assert status.room == {}
    # All users can read the status file.
    assert service.harness.credentials.token not in service.status.read_text()
    service.slurm.away = False
    service.slurm.resume("lab-debug-0")
    until(lambda: service.slurm.all_are(Power.UP, "lab-debug-0"))
    until(lambda: set(read(service.status).unread) == {"the quotas"})
    assert read(service.status).unread["the quotas"].since == status.unread["the quotas"].since
    service.harness.cloud.server.cloud.faults.waiting.clear()
    until(lambda: not read(service.status).unread)
    assert read(service.status).room
