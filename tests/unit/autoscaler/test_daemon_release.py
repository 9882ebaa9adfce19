"""Nodes are read directly before they are released; the daemon is real, all around it is not."""

import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any
from unittest.mock import Mock

import pytest
from clockkit import SetClock
from driverkit import until

from muster.autoscaler.clock import Clock
from muster.autoscaler.daemon import Daemon
from muster.autoscaler.messages import Called, Inbox, NodesRead
from muster.autoscaler.readers import FRESH_S, RELEASE_S, Failures, Pace, SlurmReader
from muster.autoscaler.reconcile.model import (
    Node,
    Power,
    Quotas,
    Released,
    ReleaseNodes,
    Request,
    VmList,
)
from muster.autoscaler.reconcile.observed import STALE_S, ObservedState
from muster.autoscaler.slurm.slurmctld import SlurmError
from muster.definition.checks.slurm_values import SHORTEST_SUSPEND_S

NODES = ("lab-debug-0", "lab-debug-1")


class Slurm:
    """slurmctld, in which some nodes come into service after the first reading."""

    def __init__(self, come: tuple[str, ...]) -> None:
        self.come = come
        self.readings = 0
        self.released: list[list[str]] = []

    def nodes(self) -> list[Node]:
        self.readings += 1
        up = self.come if self.readings > 1 else ()
        return [Node(name, Power.UP if name in up else Power.POWERING_UP) for name in NODES]

    def release_nodes(self, names: Iterable[str], _reason: str, *, in_service: bool) -> None:
        assert not in_service
        self.released.append(list(names))


class DaemonHarness:
    """A daemon with a request whose time is over."""

    def __init__(self, come: tuple[str, ...]) -> None:
        self.slurm = Slurm(come)
        self.inbox = Inbox()
        cloud = Mock(sets=dict, vms=VmList)
        cloud.quotas.return_value = Quotas()
        requests = [Request("r", Clock().monotonic() - 280, NODES)]
        self.daemon = Daemon(
            ObservedState("lab", 0),
            self.inbox,
            slurm=self.slurm,
            cloud=cloud,
            spool=Mock(requests=lambda: requests, wait=lambda _seconds: time.sleep(0.01)),
            pace=Pace(0.05, 0.05, 0.05, 0.05),
        )
        self.thread = threading.Thread(target=self.daemon.run, daemon=True)
        self.thread.start()

    def stop(self) -> None:
        self.daemon.stop()
        self.inbox.put(Called())
        self.thread.join(20)
        assert not self.thread.is_alive()


@pytest.fixture(params=[(), NODES[:1], NODES])
def harness(request: pytest.FixtureRequest) -> Iterator[DaemonHarness]:
    started = DaemonHarness(request.param)
    yield started
    started.stop()


def test_a_node_that_has_come_into_service_is_not_released(harness: DaemonHarness):
    slurm = harness.slurm
    left = [name for name in NODES if name not in slurm.come]
    until(lambda: slurm.released or slurm.readings > 20)
    assert slurm.released[:1] == ([left] if left else [])


def test_no_definition_has_slurm_ask_for_a_node_before_its_last_release_is_over() -> None:
    """The states that a release rests on may be as old as STALE_S when it is decided."""
    assert SHORTEST_SUSPEND_S >= STALE_S + RELEASE_S + FRESH_S


HELD = {"reason": "look at its disk", "by_hand": True}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param({"down": True, "reason": "Not responding"}, {"down": True, **HELD}, id="down"),
        pytest.param({"drained": True, "busy": True, **HELD}, {"drained": True, **HELD}, id="idle"),
    ],
)
def test_a_node_that_somebody_holds_now_is_not_released(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    """It was decided when it was down, or had a job, and nobody held it."""
    decided = Node("lab-debug-0", Power.UP, **before)
    now = Node(decided.name, Power.UP, **after)
    slurm, clock, inbox = Mock(nodes=lambda: [now]), SetClock(), Inbox()
    reader = SlurmReader(slurm, inbox, Failures(inbox, clock), Pace(), clock)
    action = ReleaseNodes((now.name,), "slurmd has not answered for 600 s", decided.state)
    reader.release(clock.monotonic(), action)
    reader.read()
    assert slurm.release_nodes.call_count == 0
    messages = [inbox.get() for _ in range(inbox.qsize())]
    [released] = [message for message in messages if isinstance(message, Released)]
    assert (released, released.at) == (Released(action), clock.monotonic())


def test_a_node_that_a_job_has_by_now_is_not_released_as_unused() -> None:
    """SLURM gives a node that powers up to further jobs."""
    now = [Node(name, Power.POWERING_UP, busy=name == NODES[0]) for name in NODES]
    slurm, clock, inbox = Mock(nodes=lambda: now), SetClock(), Inbox()
    reader = SlurmReader(slurm, inbox, Failures(inbox, clock), Pace(), clock)
    reader.release(clock.monotonic(), ReleaseNodes(NODES, "no job", now[0].state, unused=True))
    reader.read()
    assert [call.args[0] for call in slurm.release_nodes.call_args_list] == [NODES[1:]]


def test_a_release_that_waited_too_long_is_decided_again_by_the_next_states() -> None:
    node = Node("lab-debug-0", Power.POWERING_UP)
    clock, inbox = SetClock(), Inbox()

    def slow() -> list[Node]:
        clock.passes(FRESH_S + 1)
        return [node]

    slurm = Mock(nodes=slow)
    reader = SlurmReader(slurm, inbox, Failures(inbox, clock), Pace(), clock)
    action = ReleaseNodes((node.name,), "no VM within 150 s", node.state)
    reader.release(clock.monotonic() - RELEASE_S, action)
    for _ in range(2):
        reader.read()
    first, second = (inbox.get() for _ in range(inbox.qsize()))
    assert isinstance(first, NodesRead) and isinstance(second, NodesRead)
    [ended] = second.not_released
    assert (first.not_released, ended.action, ended.at) == ((), action, second.at)
    assert slurm.release_nodes.call_count == 0


def test_a_release_that_is_refused_is_not_tried_again_before_it_is_decided_again() -> None:
    node = Node("lab-debug-0", Power.POWERING_UP)
    slurm, clock, inbox = Mock(nodes=lambda: [node]), SetClock(), Inbox()
    reader = SlurmReader(slurm, inbox, Failures(inbox, clock), Pace(), clock)
    slurm.release_nodes.side_effect = SlurmError("no answer")
    action = ReleaseNodes((node.name,), "no VM within 150 s", node.state)
    reader.release(clock.monotonic(), action)
    reader.read()
    clock.passes(20)
    reader.read()
    assert slurm.release_nodes.call_count == 1
    read = [inbox.get() for _ in range(inbox.qsize())][-1]
    assert isinstance(read, NodesRead)
    [ended] = read.not_released
    assert (ended.action, ended.names, ended.at) == (action, (), read.at)
