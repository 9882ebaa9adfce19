"""The system clock steps back while the daemon runs; all around the daemon is simulated."""

import threading
from collections.abc import Iterator, Sequence
from unittest.mock import Mock

import pytest
from driverkit import until

from muster.autoscaler.daemon import Called, Daemon, Inbox, Message, NodesRead, Pace, VmsRead
from muster.autoscaler.reconcile.model import (
    Action,
    Choice,
    Delete,
    Failure,
    Insert,
    Inserted,
    Node,
    NodeSet,
    Power,
    ProbeResult,
    Quotas,
    Request,
    Vm,
)
from muster.autoscaler.reconcile.observed import ObservedState
from muster.autoscaler.reconcile.records import TrackedState
from muster.autoscaler.slurm.slurmctld import SlurmError
from muster.gcp.api import CloudError

NODE = "lab-debug-0"
BEFORE = 1000.0
AFTER = BEFORE - 20
CHOICES = Choice("T/1", "a", "n1"), Choice("T/2", "b", "n1")
NO_ROOM = Failure("ZONE_RESOURCE_POOL_EXHAUSTED", "")


def nodes(at: float, power: Power) -> NodesRead:
    return NodesRead(at, {NODE: Node(NODE, power)})


def vms(at: float, *listed: Vm) -> VmsRead:
    return VmsRead(at, list(listed), Quotas())


def vm(zone: str) -> Vm:
    return Vm(NODE, zone, "1", "RUNNING", BEFORE + 1, "n1")


class DaemonHarness:
    """A daemon that gets only what the test puts into its inbox: its readers get no answers."""

    def __init__(self) -> None:
        self.inbox = Inbox()
        self.now = BEFORE
        self.done: list[Action] = []
        self.requests: list[Request] = []
        self.marks = 0
        self.probes = 0
        no_slurm = Mock(side_effect=SlurmError("no answer"))
        no_cloud = Mock(side_effect=CloudError("no answer"))
        self.daemon = Daemon(
            ObservedState("lab", BEFORE, sets={"debug": NodeSet("debug", CHOICES)}),
            self.inbox,
            slurm=Mock(nodes=no_slurm),
            cloud=Mock(sets=no_cloud, quotas=no_cloud, vms=no_cloud, submit=self.done.append),
            spool=Mock(requests=lambda: list(self.requests), wait=lambda _: self.ended.wait(9)),
            pace=Pace(60, 60, 60, 60),
            observe=self._observe,
            clock=lambda: self.now,
        )
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.daemon.run, daemon=True)
        self.thread.start()

    def _observe(
        self, observed: ObservedState, _tracked: TrackedState, _actions: Sequence[Action]
    ) -> None:
        self.probes += sum(isinstance(event, ProbeResult) for event in observed.events)

    def put(self, *messages: Message) -> None:
        """Put messages into the inbox and wait until it has reconciled with them."""
        self.marks += 1
        for message in (*messages, ProbeResult("none", "a", exists=False)):
            self.inbox.put(message)
        until(lambda: self.probes == self.marks)

    def resume(self) -> Insert:
        """Let SLURM request the node; return the insert that follows."""
        self.put(nodes(BEFORE, Power.OFF), vms(BEFORE))
        self.requests = [Request("r", BEFORE + 0.5, (NODE,))]
        self.now = BEFORE + 1
        self.put(Called())
        return self.inserts()[-1]

    def inserts(self) -> list[Insert]:
        return [action for action in self.done if isinstance(action, Insert)]

    def deletions(self) -> list[Delete]:
        return [action for action in self.done if isinstance(action, Delete)]

    def stop(self) -> None:
        self.daemon.stop()
        self.ended.set()
        self.inbox.put(Called())
        self.thread.join(20)
        assert not self.thread.is_alive()


@pytest.fixture
def harness() -> Iterator[DaemonHarness]:
    started = DaemonHarness()
    yield started
    started.stop()


@pytest.mark.parametrize("listed_at", [AFTER + 1, BEFORE + 2])
def test_node_states_from_before_the_step_delete_no_vm(harness: DaemonHarness, listed_at: float):
    insert = harness.resume()
    harness.put(Inserted(insert.id))
    harness.now = AFTER + 1
    # Also if the list has a time of the old clock.
    harness.put(vms(listed_at, vm("a")))
    harness.put(nodes(AFTER + 1, Power.POWERING_UP), vms(AFTER + 1, vm("a")))
    assert not harness.deletions()
    assert len(harness.inserts()) == 1


def test_nodes_that_were_read_by_the_old_clock_close_no_later_request(harness: DaemonHarness):
    harness.put(vms(BEFORE))
    harness.now = AFTER
    # slurmctld was asked before the clock stepped back, and answers late.
    harness.put(nodes(BEFORE, Power.OFF))
    harness.requests = [Request("r", AFTER + 0.5, (NODE,))]
    harness.now = AFTER + 1
    harness.put(Called(), vms(AFTER + 1))
    assert len(harness.inserts()) == 1
    harness.now = AFTER + 2
    harness.put(Inserted(harness.inserts()[0].id), vms(AFTER + 2, vm("a")))
    assert not harness.deletions()


@pytest.mark.parametrize("ended", [False, True])
def test_a_vm_that_was_inserted_before_is_not_created_in_another_zone_too(
    harness: DaemonHarness, ended: bool
):
    insert = harness.resume()
    harness.put(Inserted(insert.id, {NODE: NO_ROOM}))
    second = harness.inserts()[-1]
    assert second.choice == CHOICES[1]
    if ended:
        harness.put(Inserted(second.id))
    harness.now = AFTER + 2
    harness.put(nodes(AFTER + 2, Power.POWERING_UP), vms(AFTER + 2))
    if not ended:
        harness.put(Inserted(second.id))
    harness.now = AFTER + 3
    harness.put(nodes(AFTER + 3, Power.POWERING_UP), vms(AFTER + 3))
    assert len(harness.inserts()) == 2


def test_a_vm_that_is_gone_is_gone_by_any_clock():
    before = TrackedState(gone={NODE: {"1": BEFORE}})
    assert before.set_back(AFTER).gone == {NODE: {"1": AFTER}}
