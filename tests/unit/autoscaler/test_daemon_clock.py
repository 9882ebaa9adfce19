"""A clock that is set back while the daemon works; all around it is played."""

import threading
from collections.abc import Iterator, Sequence
from unittest.mock import Mock

import pytest
from edgekit import until

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
from muster.autoscaler.reconcile.tracked import TrackedState
from muster.autoscaler.slurm.slurmctld import SlurmError
from muster.gcp.api import CloudError

NODE = "lab-debug-0"
BEFORE = 1000.0
AFTER = BEFORE - 20
CHOICES = Choice("T/1", "a", "n1"), Choice("T/2", "b", "n1")
NO_ROOM = Failure("ZONE_RESOURCE_POOL_EXHAUSTED", "")


def nodes(at: float, power: Power) -> NodesRead:
    return NodesRead(at, {NODE: Node(NODE, power)})


def vms(at: float, *found: Vm) -> VmsRead:
    return VmsRead(at, list(found), Quotas())


def vm(zone: str) -> Vm:
    return Vm(NODE, zone, "RUNNING", BEFORE + 1, "n1")


class Played:
    """A daemon that knows what the test puts into its inbox: its readers have no answers."""

    def __init__(self) -> None:
        self.inbox = Inbox()
        self.now = BEFORE
        self.done: list[Action] = []
        self.requests: list[Request] = []
        self.marks = 0
        self.seen = 0
        silent = Mock(side_effect=SlurmError("no answer"))
        away = Mock(side_effect=CloudError("no answer"))
        self.daemon = Daemon(
            ObservedState("lab", BEFORE, sets={"debug": NodeSet("debug", CHOICES)}),
            self.inbox,
            slurm=Mock(nodes=silent),
            cloud=Mock(sets=away, quotas=away, vms=away, submit=self.done.append),
            spool=Mock(requests=lambda: list(self.requests), wait=lambda _: self.ended.wait(9)),
            pace=Pace(60, 60, 60, 60),
            observe=self._observe,
            clock=lambda: self.now,
        )
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.daemon.run, daemon=True)
        self.thread.start()

    def _observe(
        self, observed: ObservedState, _memory: TrackedState, _actions: Sequence[Action]
    ) -> None:
        self.seen += sum(isinstance(event, ProbeResult) for event in observed.events)

    def hear(self, *messages: Message) -> None:
        """Let it plan with messages."""
        self.marks += 1
        for message in (*messages, ProbeResult("nobody", "a", exists=False)):
            self.inbox.put(message)
        until(lambda: self.seen == self.marks)

    def rise(self) -> Insert:
        """Let SLURM ask for the node; return the insert that comes of it."""
        self.hear(nodes(BEFORE, Power.OFF), vms(BEFORE))
        self.requests = [Request("r", BEFORE + 0.5, (NODE,))]
        self.now = BEFORE + 1
        self.hear(Called())
        return self.inserts()[-1]

    def inserts(self) -> list[Insert]:
        return [each for each in self.done if isinstance(each, Insert)]

    def deletions(self) -> list[Delete]:
        return [each for each in self.done if isinstance(each, Delete)]

    def stop(self) -> None:
        self.daemon.stop()
        self.ended.set()
        self.inbox.put(Called())
        self.thread.join(20)
        assert not self.thread.is_alive()


@pytest.fixture
def played() -> Iterator[Played]:
    made = Played()
    yield made
    made.stop()


@pytest.mark.parametrize("listed_at", [AFTER + 1, BEFORE + 2])
def test_the_nodes_as_they_were_before_let_no_vm_be_deleted(played: Played, listed_at: float):
    insert = played.rise()
    played.hear(Inserted(insert.id))
    played.now = AFTER + 1
    # Also where the list was asked for by the old clock.
    played.hear(vms(listed_at, vm("a")))
    played.hear(nodes(AFTER + 1, Power.POWERING_UP), vms(AFTER + 1, vm("a")))
    assert not played.deletions()
    assert len(played.inserts()) == 1


def test_nodes_that_were_read_by_the_old_clock_settle_no_later_request(played: Played):
    played.hear(vms(BEFORE))
    played.now = AFTER
    # slurmctld was asked before the clock was set back, and is slow.
    played.hear(nodes(BEFORE, Power.OFF))
    played.requests = [Request("r", AFTER + 0.5, (NODE,))]
    played.now = AFTER + 1
    played.hear(Called(), vms(AFTER + 1))
    assert len(played.inserts()) == 1
    played.now = AFTER + 2
    played.hear(Inserted(played.inserts()[0].id), vms(AFTER + 2, vm("a")))
    assert not played.deletions()


@pytest.mark.parametrize("ended", [False, True])
def test_what_was_asked_for_before_is_not_made_elsewhere_too(played: Played, ended: bool):
    insert = played.rise()
    played.hear(Inserted(insert.id, {NODE: NO_ROOM}))
    second = played.inserts()[-1]
    assert second.choice == CHOICES[1]
    if ended:
        played.hear(Inserted(second.id))
    played.now = AFTER + 2
    played.hear(nodes(AFTER + 2, Power.POWERING_UP), vms(AFTER + 2))
    if not ended:
        played.hear(Inserted(second.id))
    played.now = AFTER + 3
    played.hear(nodes(AFTER + 3, Power.POWERING_UP), vms(AFTER + 3))
    assert len(played.inserts()) == 2
