"""How often the daemon reconciles and reads while many VMs are deleted; the rest is simulated."""

import threading
import time
from collections.abc import Iterator, Sequence
from typing import cast
from unittest.mock import Mock

import pytest
from driverkit import until

from muster.autoscaler import daemon
from muster.autoscaler.daemon import Daemon
from muster.autoscaler.messages import Called, Inbox
from muster.autoscaler.readers import Pace
from muster.autoscaler.reconcile.model import Action, Deleted, Node, Power, Quotas, Vm, VmList
from muster.autoscaler.reconcile.observed import ObservedState
from muster.autoscaler.reconcile.records import TrackedState

NAMES = [f"lab-debug-{number}" for number in range(50)]
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
            sets=dict, vms=lambda: VmList(Vm(name, "z", name, "RUNNING", 1000) for name in NAMES)
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
        harness.inbox.put(Deleted(Vm(name, "z", name, "RUNNING", 1000)))
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
    harness.inbox.put(Deleted(Vm(NAMES[0], "z", NAMES[0], "RUNNING", 1000)))
    until(lambda: harness.ends)
