"""Steps of the system clock change no decision, and after a gap nothing is decided by old news."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from clockkit import SetClock

from muster.autoscaler.daemon import CALM_S, Daemon
from muster.autoscaler.messages import Called, Inbox, Message, NodesRead, VmsRead
from muster.autoscaler.readers import FRESH_S, QUOTAS_S
from muster.autoscaler.reconcile.model import (
    Action,
    Choice,
    Delete,
    Deleted,
    Event,
    Failure,
    Insert,
    Inserted,
    Node,
    NodeSet,
    Power,
    Probe,
    ProbeResult,
    Quotas,
    Request,
    Vm,
    VmList,
)
from muster.autoscaler.reconcile.observed import STALE_S, ObservedState
from muster.autoscaler.reconcile.records import Phase
from muster.autoscaler.slurm.power_save_program import BOOT_ID
from muster.autoscaler.slurm.slurmctld import SlurmError
from muster.autoscaler.slurm.spool import Spool

NODE = "lab-debug-0"
BEGIN = 1000.0
CHOICES = Choice("T/1", "a", "n1"), Choice("T/2", "b", "n1")


class DaemonHarness:
    """A daemon whose steps the test makes; slurmctld and the cloud are what the test sets."""

    def __init__(self, folder: Path) -> None:
        self.clock = SetClock(BEGIN)
        self.folder = folder
        self.inbox = Inbox()
        self.power = Power.OFF
        self.down = False
        self.listed: list[Vm] = []
        self.quotas = Quotas()
        self.away = False
        self.done: list[Action] = []
        self.released: list[str] = []
        self.called: Callable[[], None] = lambda: None
        """What happens while slurmctld or the cloud is read."""
        cloud = Mock(
            sets=lambda: {"debug": NodeSet("debug", CHOICES)},
            quotas=lambda _sets: replace(self.quotas, at=self.clock.since_boot),
            vms=self._vms,
            submit=self._submit,
        )
        slurm = Mock(
            nodes=self._nodes,
            release_nodes=lambda names, _, **_states: self.released.extend(names),
        )
        self.daemon = Daemon(
            ObservedState("lab", 0),
            self.inbox,
            slurm=slurm,
            cloud=cloud,
            spool=Spool(folder, self.clock),
            clock=self.clock,
        )
        self.read()

    def _submit(self, action: Action) -> None:
        if not isinstance(action, Probe):
            self.done.append(action)
            return
        vm = next((vm for vm in self.listed if vm.zone == action.zone), None)
        status = vm.status if vm else ""
        self.tell(ProbeResult(NODE, action.zone, vm is not None, status=status))

    def tell(self, event: Event) -> None:
        """Put an event into the inbox, as the driver does."""
        self.inbox.put(replace(event, at=self.clock.since_boot))

    def _nodes(self) -> list[Node]:
        if self.away:
            raise SlurmError("no answer")
        node = Node(NODE, self.power, down=self.down, not_responding=self.down)
        self.called()
        return [node]

    def _vms(self) -> VmList:
        listed = VmList(self.listed)
        self.called()
        return listed

    def resume(self) -> None:
        """Let slurmctld ask for the node, as muster-resume does."""
        self.clock.passes(0.5)
        self.power = Power.POWERING_UP
        head = {
            "nodes": NODE,
            "asked": self.clock.date,
            "boot": Path(BOOT_ID).read_text().strip(),
            "since_boot": self.clock.since_boot,
        }
        name = f"{self.clock.date * 1e9:.0f}-1.resume"
        (self.folder / name).write_text(json.dumps(head) + "\n")

    def read(self) -> None:
        """Read slurmctld and the cloud, then reconcile."""
        self.daemon.slurm_reader.read()
        self.daemon.cloud_reader.read()
        self.reconcile()

    def reconcile(self, *messages: Message) -> None:
        """Reconcile with all messages, and look into the spool."""
        for message in messages:
            put = self.tell if isinstance(message, Event) else self.inbox.put
            put(message)
        self.daemon.spool.wait(0)
        self.daemon.reconcile_pass(self.daemon.messages())

    def passes(self, seconds: float) -> None:
        """Let time pass, with a reconcile pass each second."""
        for _ in range(round(seconds)):
            self.clock.passes(1)
            self.reconcile()

    def actions(self) -> list[str]:
        """What was submitted and released, without times."""
        return [repr(action) for action in self.done] + self.released


@pytest.fixture
def harness(tmp_path: Path) -> DaemonHarness:
    return DaemonHarness(tmp_path)


# --- steps of the system clock --------------------------------------------------------------------


def story(harness: DaemonHarness, step: Callable[[int], None]) -> list[str]:
    """A node is asked for, made, in service, powered down, asked for again, and does not come."""

    first = Vm(NODE, "a", "1", "RUNNING", 0, "n1")
    step(0)
    harness.resume()
    step(1)
    harness.reconcile(Called())
    step(2)
    harness.passes(3)
    [insert] = [action for action in harness.done if isinstance(action, Insert)]
    harness.listed = [Vm(NODE, "a", "1", "RUNNING", harness.clock.since_boot, "n1")]
    step(3)
    harness.reconcile(Inserted(insert.id))
    harness.read()
    step(4)
    harness.passes(20)
    harness.power = Power.UP
    harness.read()
    step(5)
    harness.passes(60)
    harness.power = Power.POWERING_DOWN
    harness.read()
    step(6)
    harness.passes(10)
    harness.listed = []
    harness.reconcile(Deleted(first))
    harness.passes(120)
    harness.read()
    step(7)
    harness.resume()
    step(8)
    harness.reconcile(Called())
    for _ in range(14):
        harness.passes(20)
        harness.read()
        step(9)
    harness.read()
    return harness.actions()


@pytest.mark.parametrize("at", range(10))
@pytest.mark.parametrize("seconds", [-600, -20, -3, -0.1, 0.1, 3, 20, 600])
def test_a_step_of_the_system_clock_changes_no_decision(
    tmp_path: Path, seconds: float, at: int
) -> None:
    (tmp_path / "steady").mkdir()
    (tmp_path / "stepped").mkdir()
    expected = story(DaemonHarness(tmp_path / "steady"), lambda _: None)
    harness = DaemonHarness(tmp_path / "stepped")

    def step(number: int) -> None:
        if number == at:
            harness.clock.date += seconds

    got = story(harness, step)
    # An insert's id follows from the name of the request's file, or from its time.
    assert len(got) == len(expected)
    assert got == expected
    assert expected[-1] == NODE, "the node is released in the end"


def test_people_read_dates_by_the_new_clock(harness: DaemonHarness) -> None:
    assert harness.daemon.observed.date(BEGIN) == pytest.approx(harness.clock.date)
    harness.clock.date -= 600
    harness.passes(1)
    now = harness.daemon.observed.now
    assert harness.daemon.observed.date(now) == pytest.approx(harness.clock.date)


def test_two_readings_of_the_clocks_do_not_change_dates(harness: DaemonHarness) -> None:
    """Or the status file would change with each pass."""
    before = harness.daemon.observed.started
    harness.clock.date += 0.004
    harness.passes(1)
    assert harness.daemon.observed.started == before


# --- gaps -----------------------------------------------------------------------------------------


def in_service(harness: DaemonHarness) -> None:
    harness.power = Power.UP
    harness.listed = [Vm(NODE, "a", "1", "RUNNING", harness.clock.since_boot, "n1")]
    harness.read()


def test_after_a_gap_a_list_from_before_it_releases_no_node(harness: DaemonHarness) -> None:
    """In the gap the VM had stopped, and SLURM had asked for the node again."""
    in_service(harness)
    stopped = VmList([Vm(NODE, "a", "1", "TERMINATED", harness.clock.since_boot, "n1")])
    listed = VmsRead(harness.clock.since_boot, stopped, Quotas())
    harness.clock.passes(300)
    harness.listed = [Vm(NODE, "a", "2", "RUNNING", harness.clock.since_boot - 60, "n1")]
    # The reader had put it before the gap.
    harness.reconcile(listed)
    harness.read()
    harness.read()
    assert harness.actions() == []


def test_after_a_gap_node_states_from_before_it_delete_no_vm(harness: DaemonHarness) -> None:
    in_service(harness)
    off = NodesRead(harness.clock.since_boot, {NODE: Node(NODE, Power.OFF)})
    harness.clock.passes(300)
    harness.listed = [Vm(NODE, "a", "2", "RUNNING", harness.clock.since_boot - 60, "n1")]
    harness.reconcile(off)
    harness.daemon.cloud_reader.read()
    harness.reconcile()
    harness.read()
    assert harness.actions() == []


def test_a_gap_is_noticed_while_the_spool_is_read(
    harness: DaemonHarness, monkeypatch: pytest.MonkeyPatch
) -> None:

    in_service(harness)
    stopped = VmList([Vm(NODE, "a", "1", "TERMINATED", harness.clock.since_boot, "n1")])
    requests = harness.daemon.spool.requests

    def slowly() -> list[Request]:
        harness.clock.passes(300)
        return requests()

    monkeypatch.setattr(harness.daemon.spool, "requests", slowly)
    harness.reconcile(VmsRead(harness.clock.since_boot, stopped, Quotas()), Called())
    monkeypatch.setattr(harness.daemon.spool, "requests", requests)
    harness.read()
    assert harness.actions() == []


def test_what_ended_in_a_gap_is_known_after_it(harness: DaemonHarness) -> None:
    harness.resume()

    harness.reconcile(Called())
    [insert] = [action for action in harness.done if isinstance(action, Insert)]
    harness.clock.passes(60)
    harness.reconcile(Inserted(insert.id))
    assert insert.id not in harness.daemon.tracked.inserts


def test_what_ended_in_a_gap_is_reported(harness: DaemonHarness) -> None:
    seen: list[Event] = []
    harness.daemon.observe = lambda observed, *_: seen.extend(observed.events)
    harness.resume()
    harness.reconcile(Called())
    [insert] = [action for action in harness.done if isinstance(action, Insert)]
    harness.clock.passes(60)
    harness.reconcile(Inserted(insert.id))
    harness.read()
    assert seen == [Inserted(insert.id)]


def test_after_a_gap_a_request_is_met_also_while_slurmctld_does_not_answer(
    harness: DaemonHarness,
) -> None:
    harness.clock.passes(60)
    harness.resume()
    harness.away = True
    harness.reconcile()
    for _ in range(10):
        harness.passes(10)
        harness.read()
    assert [type(action) for action in harness.done] == [Insert]


def test_a_daemon_whose_passes_are_all_slow_decides(harness: DaemonHarness) -> None:
    """Each seems a gap, and what is known is from before it."""
    harness.resume()
    for _ in range(10):
        harness.daemon.slurm_reader.read()
        harness.daemon.cloud_reader.read()
        harness.clock.passes(7)
        harness.reconcile()
    assert [type(action) for action in harness.done] == [Insert]


def test_what_slurmctld_says_after_a_gap_is_known_although_the_cloud_does_not_answer(
    harness: DaemonHarness,
) -> None:
    """It powers the node down, and asks for it again; that request is lost."""
    harness.resume()
    harness.reconcile(Called())
    harness.clock.passes(300)
    harness.reconcile()
    for power in (Power.POWERING_DOWN, Power.POWERING_UP):
        harness.power = power
        harness.daemon.slurm_reader.read()
        harness.passes(5)
    harness.passes(STALE_S)
    for _ in range(3):
        harness.read()
        harness.passes(5)
    assert harness.released == []


def test_a_release_that_was_decided_before_a_gap_is_decided_again(harness: DaemonHarness) -> None:
    """In the gap SLURM may have given the node up, and asked for it again."""
    in_service(harness)
    harness.listed = [Vm(NODE, "a", "1", "TERMINATED", harness.clock.since_boot, "n1")]
    harness.daemon.cloud_reader.read()
    harness.reconcile()
    assert harness.released == []
    harness.clock.passes(300)
    harness.listed = [Vm(NODE, "a", "2", "RUNNING", harness.clock.since_boot - 60, "n1")]
    harness.read()
    harness.read()
    assert harness.released == []


@pytest.mark.parametrize("gap_s", [0, 20, 40, 300])
def test_a_node_is_released_by_a_reading_from_directly_before(
    harness: DaemonHarness, gap_s: float
) -> None:
    """The daemon is stopped when it has the nodes' states."""
    in_service(harness)
    harness.listed = [Vm(NODE, "a", "1", "TERMINATED", harness.clock.since_boot, "n1")]
    harness.daemon.cloud_reader.read()
    harness.reconcile()
    # Its VM is read by name.
    harness.reconcile()
    harness.called = lambda: harness.clock.passes(gap_s)
    harness.daemon.slurm_reader.read()
    assert harness.released == ([] if gap_s else [NODE])


@pytest.mark.parametrize(("takes_s", "unknown"), [(QUOTAS_S, False), (QUOTAS_S + 1, True)])
def test_quotas_are_unknown_when_the_list_after_them_comes_late(
    harness: DaemonHarness, takes_s: float, unknown: bool
) -> None:
    """A VM may have gone since, which quotas count and the list lacks: Google says what it has."""
    harness.quotas = Quotas({"CPUS": 0}, {choice.pool: {"CPUS": 1} for choice in CHOICES})
    harness.read()
    harness.resume()
    harness.daemon.slurm_reader.read()
    harness.called = lambda: harness.passes(takes_s)
    harness.daemon.cloud_reader.read()
    harness.called = lambda: None
    harness.reconcile()
    assert [type(action) for action in harness.done] == ([Insert] if unknown else [])


def test_a_list_that_comes_late_is_no_failure_that_is_tried_again_soon(
    harness: DaemonHarness,
) -> None:
    harness.called = lambda: harness.passes(QUOTAS_S + 1)
    reader = harness.daemon.cloud_reader
    assert reader.read() == reader._pace.idle_s


# The first slow answer that ends SLOW_S after another one. With 29 s that is the third, longer than
# RELEASE_S after the decision: the fourth decides again, while the fifth is asked for already.
@pytest.mark.parametrize(
    ("takes_s", "released_s"), [(0, 0), (FRESH_S, FRESH_S), (3, 36), (10, 50), (29, 174)]
)
def test_slow_answers_release_nodes_only_after_a_while(
    harness: DaemonHarness, takes_s: float, released_s: float
) -> None:
    """Fresh ones may come soon; if not, slow ones must do."""
    in_service(harness)
    harness.listed = [Vm(NODE, "a", "1", "TERMINATED", harness.clock.since_boot, "n1")]
    harness.daemon.cloud_reader.read()
    harness.reconcile()
    # Its VM was read by name.
    harness.reconcile()
    begun = harness.clock.since_boot
    harness.called = lambda: harness.passes(takes_s)
    for _ in range(100):
        harness.daemon.slurm_reader.read()
        if harness.released:
            break
    assert harness.released == [NODE], "once for each reading"
    assert harness.clock.since_boot - begun == released_s


@pytest.mark.parametrize("takes_s", [3, 10, 29])
def test_slow_answers_release_no_node_whose_vm_is_not_known_to_be_gone(
    harness: DaemonHarness, takes_s: float
) -> None:
    """It may come into service while slurmctld answers that it powers up."""
    harness.resume()
    harness.read()
    harness.called = lambda: harness.passes(takes_s)
    while harness.clock.since_boot < BEGIN + 400:
        harness.daemon.slurm_reader.read()
        harness.daemon.cloud_reader.read()
    assert harness.released == []
    harness.called = lambda: None
    while harness.daemon.tracked.node(NODE).released_at == 0:
        harness.passes(5)
        harness.daemon.slurm_reader.read()
    assert harness.released == [NODE]


@pytest.mark.parametrize("gap_s", [20, 300])
def test_a_slow_answer_after_a_gap_releases_no_node(harness: DaemonHarness, gap_s: float) -> None:
    """The daemon was stopped during the one before: nobody knows that slurmctld is slow."""
    in_service(harness)
    harness.called = lambda: harness.passes(gap_s)
    harness.daemon.slurm_reader.read()
    harness.called = lambda: None
    harness.listed = [Vm(NODE, "a", "1", "TERMINATED", harness.clock.since_boot, "n1")]
    harness.daemon.cloud_reader.read()
    harness.reconcile()
    # Its VM is read by name.
    harness.reconcile()
    harness.called = lambda: harness.passes(12)
    harness.daemon.slurm_reader.read()
    assert harness.released == []


def test_a_node_that_has_answered_again_is_not_released(harness: DaemonHarness) -> None:
    """It was down when that was decided."""
    in_service(harness)
    harness.down = True
    for _ in range(65):
        harness.passes(10)
        if harness.daemon.tracked.node(NODE).phase is Phase.RELEASED:
            break
        harness.daemon.slurm_reader.read()
        harness.listed = [Vm(NODE, "a", "1", "RUNNING", BEGIN, "n1")]
        harness.daemon.cloud_reader.read()
    assert harness.daemon.tracked.node(NODE).phase is Phase.RELEASED
    harness.down = False
    harness.daemon.slurm_reader.read()
    harness.read()
    assert harness.actions() == []


def test_an_update_that_slurmctld_refuses_for_an_hour_is_logged_once(
    harness: DaemonHarness, caplog: pytest.LogCaptureFixture
) -> None:
    calls = Mock(side_effect=SlurmError("scontrol: Access/permission denied"))
    harness.daemon.slurm_reader._slurm.release_nodes = calls
    in_service(harness)
    harness.listed = [Vm(NODE, "a", "1", "TERMINATED", harness.clock.since_boot, "n1")]
    for _ in range(3600 // 5):
        harness.passes(5)
        harness.daemon.slurm_reader.read()
        harness.daemon.cloud_reader.read()
    assert 0 < calls.call_count <= 3600 / 5
    said = [record.message for record in caplog.records if "be released" in record.message]
    assert said == ["nodes can't be released: scontrol: Access/permission denied"]


def test_a_release_is_judged_again_after_slurmctld_did_not_answer(harness: DaemonHarness) -> None:
    """It was killed, had not saved that it had asked, and asks again: that is another start."""
    harness.resume()
    harness.read()
    harness.reconcile()
    insert = harness.done.pop()
    assert isinstance(insert, Insert)
    forbidden = Failure("forbidden", "Required permission", 403)
    harness.reconcile(Inserted(insert.id, whole=forbidden))
    assert harness.daemon.tracked.node(NODE).phase is Phase.RELEASED
    harness.away = True
    harness.daemon.slurm_reader.read()
    harness.passes(20)
    harness.away = False
    harness.resume()
    harness.daemon.slurm_reader.read()
    harness.reconcile()
    harness.daemon.slurm_reader.read()
    assert harness.released == []
    assert isinstance(harness.done.pop(), Insert)


# --- without news ---------------------------------------------------------------------------------


def test_a_vm_that_stops_for_long_makes_no_decision_each_second(harness: DaemonHarness) -> None:
    vm = Vm(NODE, "a", "1", "RUNNING", BEGIN - 60, "n1")
    harness.listed = [vm]
    harness.read()
    assert isinstance(harness.done.pop(), Delete)
    harness.listed = [replace(vm, status="STOPPING")]
    harness.reconcile(Deleted(vm, Failure("timeout", "its operation has not ended")))
    harness.read()
    decided = Mock()
    harness.daemon.observe = decided
    harness.passes(60)
    assert 60 / CALM_S - 2 <= decided.call_count <= 60 / CALM_S + 2
