"""How often the daemon plans and reads while many VMs are deleted; all else is played."""

import threading
import time
from collections.abc import Iterator, Sequence
from typing import cast
from unittest.mock import Mock

import pytest
from edgekit import until

from muster.autoscaler import daemon
from muster.autoscaler.daemon import Called, Daemon, Inbox, Pace
from muster.autoscaler.reconcile.model import Action, Deleted, Node, Power, Quotas, Vm
from muster.autoscaler.reconcile.observed import ObservedState
from muster.autoscaler.reconcile.tracked import TrackedState

NAMES = [f"lab-debug-{number}" for number in range(50)]
BOTH = 2
"""Readers: of slurmctld, and of the cloud."""


class Watched:
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


class Played:
    """A daemon that has asked for the deletion of all VMs, and whose readers sleep."""

    def __init__(self) -> None:
        self.inbox = Inbox()
        self.power = Power.POWERING_DOWN
        self.pace = Watched()
        self.ends: list[int] = []
        """How many ends of deletions each plan saw, of those that saw any."""
        cloud = Mock(sets=dict, vms=lambda: [Vm(name, "z", "RUNNING", 1000) for name in NAMES])
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
        # Deletions are no reason to read often: both readers take the long pause.
        until(lambda: self.pace.idle >= BOTH)
        until(self.inbox.empty)

    def _observe(
        self, observed: ObservedState, _memory: TrackedState, _actions: Sequence[Action]
    ) -> None:
        if observed.events:
            self.ends.append(len(observed.events))

    def stop(self) -> None:
        self.daemon.stop()
        self.inbox.put(Called())
        self.thread.join(20)
        assert not self.thread.is_alive()


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
    monkeypatch.setattr(daemon, "TICK_S", 30)
    made = Played()
    yield made
    monkeypatch.setattr(daemon, "TICK_S", 0.1)
    made.stop()


def test_the_ends_of_deletions_are_planned_together(played: Played):
    for name in NAMES:
        played.inbox.put(Deleted(name, "z"))
        # It has been looked at, and could have had a plan of its own.
        until(played.inbox.empty)
    played.inbox.put(Called())
    until(lambda: sum(played.ends) == len(NAMES))
    assert played.ends == [len(NAMES)]


def test_the_end_of_a_deletion_that_a_node_waits_for_is_planned_at_once(played: Played):
    played.power = Power.POWERING_UP
    played.pace.seconds = 60
    before = played.pace.busy
    played.inbox.put(Called())
    # Both have read that nodes rise, and nothing more is read in the next minute.
    until(lambda: NAMES[0] in played.daemon.tracked.powering_up)
    until(lambda: played.pace.busy >= before + BOTH)
    until(played.inbox.empty)
    played.inbox.put(Deleted(NAMES[0], "z"))
    until(lambda: played.ends)
