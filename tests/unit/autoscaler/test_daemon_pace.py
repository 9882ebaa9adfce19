"""How often the daemon plans and reads while many VMs are deleted; all else is played."""

import threading
import time
from collections.abc import Iterator, Sequence
from unittest.mock import Mock

import pytest
from edgekit import until

from muster.autoscaler import daemon
from muster.autoscaler.daemon import Called, Daemon, Inbox, Pace
from muster.autoscaler.memory import Memory
from muster.autoscaler.model import Action, Deleted, Node, Power, Vm
from muster.autoscaler.world import World

NAMES = [f"lab-debug-{number}" for number in range(50)]


class Played:
    """A daemon that has asked for the deletion of all VMs."""

    def __init__(self) -> None:
        self.inbox = Inbox()
        self.power = Power.FALLING
        self.readings = 0
        self.ends: list[int] = []
        """How many ends of deletions each plan saw, of those that saw any."""
        cloud = Mock(sets=dict, vms=lambda: [Vm(name, "z", "RUNNING", 1000) for name in NAMES])
        cloud.room.return_value = {}
        self.daemon = Daemon(
            World("lab", 0),
            self.inbox,
            slurm=Mock(nodes=self._nodes),
            cloud=cloud,
            spool=Mock(requests=list, wait=lambda _seconds: time.sleep(0.01)),
            pace=Pace(slurm_busy_s=0.01, cloud_busy_s=0.01, idle_s=60),
            observe=self._observe,
        )
        self.thread = threading.Thread(target=self.daemon.run)
        self.thread.start()
        until(lambda: cloud.submit.call_count == len(NAMES))

    def _nodes(self) -> list[Node]:
        self.readings += 1
        return [Node(name, self.power) for name in NAMES]

    def _observe(self, world: World, _memory: Memory, _actions: Sequence[Action]) -> None:
        if world.events:
            self.ends.append(len(world.events))

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
        # Time enough for a plan of its own.
        time.sleep(0.005)
    assert played.ends == []
    played.inbox.put(Called())
    until(lambda: played.ends)
    assert played.ends == [len(NAMES)]


def test_the_end_of_a_deletion_that_a_node_waits_for_is_planned_at_once(played: Played):
    played.power = Power.RISING
    played.daemon.pace = Pace(slurm_busy_s=60, cloud_busy_s=60)
    played.inbox.put(Called())
    until(lambda: NAMES[0] in played.daemon.memory.rising)
    # What else was read has been planned by then.
    time.sleep(0.1)
    played.inbox.put(Deleted(NAMES[0], "z"))
    until(lambda: played.ends)


def test_deletions_are_no_reason_to_read_often(played: Played):
    # The first one was made before anything was known.
    time.sleep(0.1)
    before = played.readings
    time.sleep(0.3)
    assert played.readings <= before
