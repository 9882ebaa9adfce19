"""How often the daemon reconciles and reads while many VMs are deleted; the rest is simulated."""

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import cast
from unittest.mock import Mock, call

import pytest
from clockkit import SetClock
from driverkit import until

from muster.autoscaler import daemon
from muster.autoscaler.daemon import Daemon
from muster.autoscaler.messages import Called, Inbox, Message, NodesRead
from muster.autoscaler.readers import Pace
from muster.autoscaler.reconcile.model import (
    Action,
    Delete,
    Deleted,
    Event,
    Failure,
    Node,
    Power,
    Quotas,
    Request,
    Vm,
    VmList,
    Withdraw,
)
from muster.autoscaler.reconcile.observed import STALE_S, ObservedState
from muster.autoscaler.reconcile.records import TrackedState

NAMES = [f"lab-debug-{number}" for number in range(50)]
MADE = 1
"""When the VMs were made: before all readings, also on a machine that booted a minute ago."""
BOTH = 2
"""Readers: of slurmctld, and of the cloud."""


class CountingPace:
    """A `Pace` that counts how often a reader went to sleep, and for how long: `seconds`."""

    retry_s = 60.0

    def __init__(self) -> None:
        self.seconds = 0.01
        self.busy = 0
        self.idle = 0

    @property
    def slurm_busy_s(self) -> float:
        self.busy += 1
        return self.seconds

    cloud_busy_s = slurm_busy_s

    @property
    def idle_s(self) -> float:
        self.idle += 1
        return 60


class DaemonHarness:
    """A daemon that has started to delete all VMs, and whose readers sleep."""

    def __init__(self) -> None:
        self.inbox = Inbox()
        self.power = Power.POWERING_DOWN
        self.pace = CountingPace()
        self.ends: list[int] = []
        """How many deletions ended in each reconcile pass in which any did."""
        cloud = Mock(
            sets=dict, vms=lambda: VmList(Vm(name, "z", name, "RUNNING", MADE) for name in NAMES)
        )
        cloud.quotas.return_value = Quotas()
        self.daemon = Daemon(
            ObservedState("lab", 0),
            self.inbox,
            slurm=Mock(nodes=lambda: [Node(name, self.power) for name in NAMES]),
            cloud=cloud,
            spool=Mock(requests=list, wait=lambda _seconds: time.sleep(0.01)),
            pace=cast(Pace, self.pace),
            observe=self._observe,
        )
        self.thread = threading.Thread(target=self.daemon.run, daemon=True)
        self.thread.start()
        until(lambda: cloud.submit.call_count == len(NAMES))
        # The daemon need not read often for deletions: both readers take the long pause.
        until(lambda: self.pace.idle >= BOTH)
        until(self.inbox.empty)

    def _observe(
        self, observed: ObservedState, _tracked: TrackedState, _actions: Sequence[Action]
    ) -> None:
        if observed.events:
            self.ends.append(len(observed.events))

    def stop(self) -> None:
        self.daemon.stop()
        self.inbox.put(Called())
        self.thread.join(20)
        assert not self.thread.is_alive()


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Iterator[DaemonHarness]:
    monkeypatch.setattr(daemon, "TICK_S", 30)
    started = DaemonHarness()
    yield started
    monkeypatch.setattr(daemon, "TICK_S", 0.1)
    started.stop()


def test_deletions_that_end_are_reconciled_together(harness: DaemonHarness):
    for name in NAMES:
        harness.inbox.put(Deleted(Vm(name, "z", name, "RUNNING", MADE)))
        # It was taken from the inbox, and could have started its own reconcile pass.
        until(harness.inbox.empty)
    harness.inbox.put(Called())
    until(lambda: sum(harness.ends) == len(NAMES))
    assert harness.ends == [len(NAMES)]


def test_a_deletion_that_a_node_waits_for_is_reconciled_at_once(harness: DaemonHarness):
    harness.power = Power.POWERING_UP
    harness.pace.seconds = 60
    before = harness.pace.busy
    harness.inbox.put(Called())
    # Both readers have read that nodes power up, and read nothing in the next minute.
    until(lambda: harness.daemon.tracked.node(NAMES[0]).start)
    until(lambda: harness.pace.busy >= before + BOTH)
    until(harness.inbox.empty)
    harness.inbox.put(Deleted(Vm(NAMES[0], "z", NAMES[0], "RUNNING", MADE)))
    until(lambda: harness.ends)


class Steps:
    """A daemon that has started to delete all VMs; the test makes its steps."""

    def __init__(self) -> None:
        self.clock = SetClock()
        self.inbox = Inbox()
        self.requests: list[Request] = []
        self.done: list[Action] = []
        self.passes: list[float] = []
        """When the daemon decided."""
        self.nodes = {name: Node(name, Power.POWERING_DOWN) for name in NAMES}
        self.vms = VmList(Vm(name, "z", name, "RUNNING", 500) for name in NAMES)
        self.send_until: list[float] = []
        """Until when deletions may be sent, by each decision."""
        cloud = Mock(
            sets=dict,
            vms=lambda: self.vms,
            submit=self.done.append,
            send_deletions_until=self.send_until.append,
        )
        cloud.quotas.return_value = Quotas()
        self.daemon = Daemon(
            ObservedState("lab", 0),
            self.inbox,
            slurm=Mock(nodes=lambda: list(self.nodes.values())),
            cloud=cloud,
            spool=Mock(requests=lambda: self.requests),
            observe=lambda observed, *_: self.passes.append(observed.now),
            clock=self.clock,
        )
        self.daemon.slurm_reader.read()
        self.daemon.cloud_reader.read()
        self.second()
        assert len(self.done) == len(NAMES)

    def second(self, *messages: Message) -> None:
        """Let a second pass, at whose end messages come."""
        self.clock.passes(1)
        for message in messages:
            told = isinstance(message, Event)
            self.inbox.put(replace(message, at=self.clock.since_boot) if told else message)
        self.daemon.reconcile_pass(self.daemon.messages())

    def seconds_until_next(self) -> int:
        """How long the daemon does not decide anything, if nothing comes."""
        self.passes.clear()
        for seconds in range(1, 100):
            self.second()
            if self.passes:
                return seconds
        raise AssertionError


@pytest.fixture
def steps() -> Steps:
    return Steps()


def test_while_vms_are_only_deleted_a_pass_comes_every_five_seconds(steps: Steps):
    steps.passes.clear()
    for vm in steps.vms[:20]:
        steps.second(Deleted(vm))
    assert [b - a for a, b in zip(steps.passes, steps.passes[1:], strict=False)] == [5, 5, 5]
    assert steps.seconds_until_next() == 5


def test_a_deletion_that_failed_is_tried_again_on_time(steps: Steps):
    steps.seconds_until_next()
    steps.done.clear()
    steps.passes.clear()
    failed = steps.vms[0]
    steps.second(Deleted(failed, Failure("forbidden", "not you", 403)))
    steps.second()
    steps.second(NodesRead(steps.clock.since_boot + 1, dict(steps.nodes)))
    for _ in range(9):
        steps.second(Deleted(steps.vms[1]))
    # When it failed, when nodes were read, five seconds later, and when it may be tried again.
    assert [at - steps.passes[0] for at in steps.passes] == [0, 2, 7, 10]
    assert [action.vm for action in steps.done if isinstance(action, Delete)] == [failed]


@pytest.mark.parametrize("at", range(1, 5))
def test_what_is_read_or_asked_for_among_deletions_is_decided_at_once(steps: Steps, at: int):
    steps.seconds_until_next()
    for _ in range(at - 1):
        steps.second()
    steps.passes.clear()
    steps.nodes[NAMES[0]] = Node(NAMES[0], Power.OFF)
    steps.second(NodesRead(steps.clock.since_boot, dict(steps.nodes)))
    assert len(steps.passes) == 1
    for _ in range(at - 1):
        steps.second()
    steps.requests = [Request("r", steps.clock.since_boot, (NAMES[0],))]
    steps.done.clear()
    steps.second(Called(), Deleted(steps.vms[1]))
    # Its VM is from before SLURM asked: the node waits for that deletion.
    assert [type(action) for action in steps.done] == [Delete]
    assert steps.seconds_until_next() == 1


def test_a_deletion_among_others_is_withdrawn_at_once(steps: Steps):
    steps.seconds_until_next()
    steps.second()
    steps.done.clear()
    name = NAMES[0]
    steps.second(NodesRead(steps.clock.since_boot, steps.nodes | {name: Node(name, Power.UP)}))
    assert [action for action in steps.done if isinstance(action, Withdraw)] == [
        Withdraw(steps.vms[0])
    ]


def test_deletions_are_sent_only_while_the_states_by_which_they_were_judged_are_not_old(
    steps: Steps,
) -> None:
    read_at = steps.clock.since_boot - 1
    assert steps.send_until == [read_at + STALE_S]
    # slurmctld does not answer.
    for _ in range(100):
        steps.second()
    assert {*steps.send_until} == {read_at + STALE_S}
    # The process is stopped: what it knows is judged when it is read again.
    steps.clock.passes(300)
    steps.second()
    assert {*steps.send_until} == {read_at + STALE_S}
    steps.daemon.cloud_reader.read()
    steps.second(NodesRead(steps.clock.since_boot, dict(steps.nodes)))
    assert steps.send_until[-1] == steps.clock.since_boot - 1 + STALE_S


def test_a_deletion_is_withdrawn_before_the_others_may_be_sent_for_longer(steps: Steps) -> None:
    order = Mock()
    steps.daemon.cloud = order
    name = NAMES[0]
    steps.second(NodesRead(steps.clock.since_boot, steps.nodes | {name: Node(name, Power.UP)}))
    assert order.mock_calls == [
        call.submit(Withdraw(steps.vms[0])),
        call.send_deletions_until(steps.clock.since_boot - 1 + STALE_S),
    ]
