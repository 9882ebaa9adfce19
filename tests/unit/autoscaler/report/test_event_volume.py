"""The event log stays small, whatever fails for ever, and nothing of a few nodes is left out."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from muster.autoscaler.reconcile.model import (
    Action,
    Choice,
    Close,
    Delete,
    Deleted,
    Event,
    Failure,
    Insert,
    Inserted,
    Job,
    Node,
    NodeSet,
    Power,
    Released,
    ReleaseNodes,
    Request,
    Vm,
)
from muster.autoscaler.reconcile.observed import ObservedState, VmList
from muster.autoscaler.reconcile.reconcile import reconcile
from muster.autoscaler.reconcile.records import TrackedState
from muster.autoscaler.report import event_log
from muster.autoscaler.report.event_log import EventLog
from muster.autoscaler.report.metrics import Metrics
from muster.autoscaler.report.observer import Observer
from muster.autoscaler.report.status_file import StatusFile

DAY_S = 86_400
MANY, FEW = 500, 5
ZONE = "europe-west4-a"
SETS = {"debug": NodeSet("debug", (Choice("projects/p/T", ZONE, "n1-standard-2"),))}
FORBIDDEN = Failure(
    "forbidden",
    "Required 'compute.instances.delete' permission for "
    "'projects/muster-lab/zones/europe-west4-a/instances/lab-debug-0'",
    403,
)


class Failing:
    """Passes of which an observer writes the event log; what is tried is refused."""

    def __init__(self, folder: Path, count: int) -> None:
        self.path = folder / "events.jsonl"
        self.log = EventLog(self.path)
        self.observer = Observer(StatusFile(folder / "status.json"), self.log, Metrics())
        self.names = [f"lab-debug-{number}" for number in range(count)]
        self.observed = ObservedState("lab", 0, sets=SETS)
        self.tracked = TrackedState(began=0)
        self.now = 1000.0
        self.round(Power.OFF)

    def round(
        self,
        power: Power,
        *,
        vms: Sequence[Vm] = (),
        requests: Sequence[Request] = (),
        events: Sequence[Event] = (),
    ) -> list[Action]:
        """Read all nodes in a state, and VMs; return what is to be done."""
        self.observed = replace(
            self.observed,
            now=self.now,
            nodes={name: Node(name, power) for name in self.names},
            nodes_at=self.now,
            vms=VmList(vms),
            vms_at=self.now,
            requests=requests,
            events=self._told(events),
        )
        return self._pass()

    def quietly(self, events: Sequence[Event] = ()) -> list[Action]:
        """Read nothing."""
        self.observed = replace(self.observed, now=self.now, events=self._told(events))
        return self._pass()

    def _told(self, events: Sequence[Event]) -> list[Event]:
        return [replace(event, at=self.now) for event in events]

    def _pass(self) -> list[Action]:
        actions, self.tracked = reconcile(self.observed, self.tracked)
        self.observer(self.observed, self.tracked, actions)
        return actions

    def deletions(self, until: float) -> int:
        """Let SLURM power down all nodes, and Google refuse all deletions; return how often."""
        vms = [Vm(name, ZONE, f"48{n:017}", "RUNNING", 1) for n, name in enumerate(self.names)]
        actions = self.round(Power.POWERING_DOWN, vms=vms)
        times = 0
        while self.now < until:
            times += 1
            self.now += 1
            ended = [Deleted(action.vm, FORBIDDEN) for action in actions]
            assert [type(action) for action in actions] == [Delete] * len(self.names)
            assert not self.quietly(ended)
            self.now = min(
                deletion.again
                for record in self.tracked.nodes.values()
                for deletion in record.deletions.values()
            )
            actions = self.quietly()
        return times

    def starts(self, until: float) -> None:
        """Let SLURM ask for all nodes, each for a job, and Google refuse all inserts."""
        jobs = [Job(100_000 + number, (name,)) for number, name in enumerate(self.names)]
        while self.now < until:
            request = Request(f"{self.now:.0f}.resume", self.now, tuple(self.names), tuple(jobs))
            actions = self.round(Power.POWERING_UP, requests=[request])
            self.now += 1
            refused = [
                Inserted(action.id, whole=FORBIDDEN)
                for action in actions
                if isinstance(action, Insert)
            ]
            assert refused
            actions = self.quietly(refused)
            released = [
                Released(action, action.names)
                for action in actions
                if isinstance(action, ReleaseNodes)
            ]
            assert released
            self.quietly(released)
            self.now += 2
            actions = self.round(Power.POWERING_DOWN, requests=[request])
            assert actions == [Close(request.id)]
            # SuspendTimeout.
            self.now += 120
            self.round(Power.OFF)
            self.now += 120

    def works(self) -> None:
        """Let all nodes come into service, and end."""
        request = Request(f"{self.now:.0f}.resume", self.now, tuple(self.names))
        actions = self.round(Power.POWERING_UP, requests=[request])
        made = [Inserted(action.id) for action in actions if isinstance(action, Insert)]
        self.now += 5
        vms = [
            Vm(name, ZONE, f"49{n:017}", "RUNNING", self.now) for n, name in enumerate(self.names)
        ]
        self.round(Power.POWERING_UP, vms=vms, requests=[request], events=made)
        for power in (Power.UP, Power.POWERING_DOWN):
            self.now += 60
            self.round(power, vms=vms)
        self.now += 60
        self.round(Power.OFF, events=[Deleted(vm) for vm in vms])

    @property
    def events(self) -> list[str]:
        return [json.loads(line)["event"] for line in self.path.read_text().splitlines()]

    @property
    def size(self) -> int:
        return self.path.stat().st_size


@pytest.fixture
def failing(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Failing]:
    made = Failing(tmp_path, request.param)
    yield made
    made.log.close()


@pytest.mark.parametrize("failing", [MANY], indirect=True)
def test_a_day_of_deletions_that_fail_for_ever_is_some_megabytes(failing: Failing):
    """Of 5,000 nodes there would be 3 MB more, once: the first lines of each are all written."""
    failing.deletions(DAY_S)
    assert failing.size < 4_000_000


@pytest.mark.parametrize("failing", [20], indirect=True)
def test_a_day_of_starts_that_fail_for_ever_is_some_megabytes(failing: Failing):
    failing.starts(DAY_S)
    assert failing.size < 4_000_000


@pytest.mark.parametrize("failing", [FEW], indirect=True)
def test_nothing_is_left_out_while_a_few_nodes_fail(failing: Failing):
    failing.deletions(DAY_S)
    events = Counter(failing.events)
    assert events.keys() == {"start", "stage", "delete", "not deleted"}
    assert events["delete"] >= FEW * 50
    assert events["delete"] == events["not deleted"] + FEW


@pytest.mark.parametrize("failing", [MANY], indirect=True)
def test_what_is_left_out_is_counted_each_hour(failing: Failing):
    times = failing.deletions(6 * 3600)
    failing.now += 3600
    failing.quietly()
    lines = [json.loads(line) for line in failing.path.read_text().splitlines()]
    counted = [line["omitted"] for line in lines if line["event"] == "repeated"]
    assert len(counted) == 6
    assert {kind for omitted in counted for kind in omitted} == {"delete", "not deleted forbidden"}
    written = sum(line["event"] == "not deleted" for line in lines)
    omitted = sum(omitted["not deleted forbidden"] for omitted in counted)
    assert written + omitted == MANY * times


@pytest.mark.parametrize("failing", [MANY], indirect=True)
def test_after_a_node_was_in_service_all_is_written_of_it_again(failing: Failing):
    failing.starts(3000)
    before = Counter(failing.events)
    failing.works()
    failing.starts(failing.now + 1)
    more = Counter(failing.events) - before
    assert more["deleted"] == MANY
    # Booting, idle, going and off; then asked, released and off.
    assert more["stage"] == 7 * MANY


def test_a_log_that_is_not_rotated_does_not_fill_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(event_log, "MOST_BYTES", 1000)
    log = EventLog(tmp_path / "events.jsonl")
    for at in range(100):
        log.write(at, [{"event": "delete", "node": "lab-debug-0"}])
    assert 1000 < log.path.stat().st_size < 1100
    [record] = caplog.records
    assert "File too large" in record.message
    log.path.rename(tmp_path / "events.jsonl.1")
    log.write(100, [{"event": "delete", "node": "lab-debug-0"}])
    assert len(log.path.read_text().splitlines()) == 1
    log.close()
