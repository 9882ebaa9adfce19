"""The daemon's readers of slurmctld and of the cloud, each for its own thread.

A reader puts what it has read into the inbox. The thread of slurmctld's also releases nodes, as
that must follow a reading directly.
"""

import logging
import math
import queue
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from muster.autoscaler.clock import Clock
from muster.autoscaler.compute.errors import of_call
from muster.autoscaler.compute.node_templates import SetsError
from muster.autoscaler.messages import Inbox, NodesRead, NotRead, SetsRead, VmsRead
from muster.autoscaler.reconcile.model import (
    Node,
    NodeSet,
    Power,
    Quotas,
    Released,
    ReleaseNodes,
    VmList,
)
from muster.autoscaler.reconcile.retry_policy import sentence
from muster.autoscaler.slurm.slurmctld import SlurmError
from muster.gcp.api import CloudError

log = logging.getLogger(__name__)

FRESH_S = 2.0
"""How long after they were read nodes may be released."""
SLOW_S = 30.0
"""After so long of slow answers nodes whose VM is gone are released by those, too."""
QUOTAS_S = 10.0
"""Quotas that are older when the list of VMs has come are unknown: they may count VMs that it
lacks."""
RELEASE_S = 60.0
"""How long after that was decided a node may be released: SLURM needs longer (SuspendTimeout) to
power a node down and ask for it again."""

T = TypeVar("T")


class Slurm(Protocol):
    """slurmctld: `muster.autoscaler.slurm.slurmctld`."""

    def nodes(self) -> list[Node]:
        """Return the nodes in the cloud; SlurmError: they can't be read."""

    def release_nodes(self, names: Iterable[str], reason: str, *, in_service: bool) -> None:
        """Take nodes out of their jobs and power them down; SlurmError: it failed."""


class CloudReadings(Protocol):
    """What is read of the cloud. CloudError: it can't be read."""

    def vms(self) -> VmList:
        """Return the nodes' VMs."""

    def sets(self) -> dict[str, NodeSet]:
        """Return the node sets from the controller's metadata."""

    def quotas(self, node_sets: Iterable[NodeSet]) -> Quotas:
        """Return what is left of the quotas."""


@dataclass(frozen=True)
class Pace:
    """Seconds between readings."""

    slurm_busy_s: float = 2
    """While nodes are powering up or being released."""
    cloud_busy_s: float = 5
    idle_s: float = 30
    """At all other times, also while VMs are deleted. The daemon notices a preempted VM, for
    example, after this time at the latest."""
    retry_s: float = 5
    """After a reading that failed."""


class Failures:
    """Tells the log and the inbox what can't be read, once for each error: it is tried again."""

    def __init__(self, inbox: Inbox, clock: Clock) -> None:
        self._inbox = inbox
        self._clock = clock
        self._why: dict[str, str] = {}
        """What can't be read -> the last error. Each has only one thread."""

    def tried(self, what: str, read: Callable[[], T]) -> T | None:
        """Return an answer; None after a failure."""
        try:
            answer = read()
        except (SlurmError, CloudError, SetsError) as error:
            self.failed(
                what, sentence(of_call(error)) if isinstance(error, CloudError) else str(error)
            )
            return None
        self.works(what)
        return answer

    def failed(self, what: str, why: str, verb: str = "read") -> None:
        """Take an error."""
        if self._why.get(what) != why:
            self._why[what] = why
            log.warning("%s can't be %s: %s", what, verb, why)
            self._inbox.put(NotRead(what, self._clock.monotonic(), why, verb))

    def works(self, what: str) -> None:
        """Take a success."""
        if self._why.pop(what, None) is not None:
            log.info("%s: no error any more", what)
            self._inbox.put(NotRead(what, self._clock.monotonic(), ""))


class SlurmReader:
    """Reads slurmctld's nodes, and releases nodes."""

    def __init__(
        self, slurm: Slurm, inbox: Inbox, failures: Failures, pace: Pace, clock: Clock
    ) -> None:
        self.due = threading.Event()
        """Read soon."""
        self.busy = True
        """Read often."""
        self._slurm = slurm
        self._inbox = inbox
        self._failures = failures
        self._pace = pace
        self._clock = clock
        self._releases: queue.SimpleQueue[tuple[float, ReleaseNodes]] = queue.SimpleQueue()
        """With the time at which they were decided."""
        self._undone: list[ReleaseNodes] = []
        """Those that slurmctld did not answer in time, or refused."""
        self._slow_since = math.inf
        """Since when all answers have been slow: the end of the first of them."""

    def release(self, decided: float, action: ReleaseNodes) -> None:
        """Release nodes after the next reading."""
        self._releases.put((decided, action))
        self.due.set()

    def read(self) -> float:
        """Read the nodes, and release what is to be released; return the seconds to pause."""
        self.due.clear()
        # Of the actions so far: for later ones the nodes must be read again.
        releases = [self._releases.get() for _ in range(self._releases.qsize())]
        at = self._clock.monotonic()
        nodes = self._failures.tried("slurmctld", self._slurm.nodes)
        if nodes is None:
            self._undone += (action for _, action in releases)
            return self._pace.retry_s
        by_name = {node.name: node for node in nodes}
        self._inbox.put(NodesRead(at, by_name, self._not_released(at)))
        if not self._release_nodes(releases, by_name, *self._fresh_until(at)):
            return self._pace.retry_s
        return self._pace.slurm_busy_s if self.busy else self._pace.idle_s

    def _not_released(self, at: float) -> tuple[Released, ...]:
        """Return the ends of releases that were not done, when slurmctld has answered again.

        It may have been killed meanwhile, and wait for the same nodes for another request.
        """
        why = "slurmctld did not answer in time, or refused it"
        ended = tuple(Released(action, failure=why, at=at) for action in self._undone)
        self._undone.clear()
        return ended

    def _keep(self, decided: float, action: ReleaseNodes) -> None:
        """Keep a release for the next reading, which decides again where it is too old."""
        if self._clock.monotonic() > decided + RELEASE_S:
            self._undone.append(action)
        else:
            self._releases.put((decided, action))
            self.due.set()

    def _fresh_until(self, at: float) -> tuple[float, float]:
        """Until when nodes may be released by a reading that began at a time; if their VM is gone.

        By one that took longer than FRESH_S none are, but it is read again. If slurmctld has been
        so slow for SLOW_S, a reading counts from its end for nodes whose VM is gone, or they would
        never be released. The first one says nothing of that: perhaps this process was stopped
        meanwhile. Of other nodes a slow reading says nothing: they may have come into service
        since. SLURM gives up by itself those that don't.
        """
        answered = self._clock.monotonic()
        if answered <= at + FRESH_S:
            self._slow_since = math.inf
            return at + FRESH_S, at + FRESH_S
        self._slow_since = min(self._slow_since, answered)
        slow = self._slow() and answered < at + SLOW_S
        return at, answered + FRESH_S if slow else at

    def _slow(self) -> bool:
        """Whether slurmctld has been slow for long."""
        return self._clock.monotonic() > self._slow_since + SLOW_S

    def _release_nodes(
        self,
        releases: Iterable[tuple[float, ReleaseNodes]],
        nodes: Mapping[str, Node],
        until: float,
        until_if_gone: float,
    ) -> bool:
        """Release the nodes that are still as they were when it was decided; whether that worked.

        `nodes` were read directly before: a node may have come into service since the decision.
        SLURM has no update with a condition, so the time from that reading to a call of scontrol
        remains. After `until` (`until_if_gone`: of nodes whose VM is gone) the nodes are read again
        for the other actions. What is refused is decided again after the next reading.
        """
        works = True
        for decided, action in releases:
            now = self._clock.monotonic()
            fresh_until = until_if_gone if action.vm_gone else until
            if now > min(fresh_until, decided + RELEASE_S):
                self._keep(decided, action)
                continue
            if not self._release(action, nodes):
                self._undone.append(action)
                works = False
            if self._slow():
                # One for each reading.
                until = until_if_gone = -math.inf
        return works

    def _release(self, action: ReleaseNodes, nodes: Mapping[str, Node]) -> bool:
        names = tuple(
            name
            for name in action.names
            if name in nodes
            and nodes[name].state == action.state
            and not (action.unused and nodes[name].busy)
        )
        try:
            if names:
                in_service = action.state[0] is Power.UP
                self._slurm.release_nodes(names, action.reason, in_service=in_service)
        except SlurmError as error:
            self._failures.failed("nodes", str(error), "released")
            return False
        self._failures.works("nodes")
        self._inbox.put(Released(action, names, at=self._clock.monotonic()))
        # The next reading shows it.
        self.due.set()
        return True


class CloudReader:
    """Reads the metadata, the quotas and the VMs."""

    def __init__(
        self, cloud: CloudReadings, inbox: Inbox, failures: Failures, pace: Pace, clock: Clock
    ) -> None:
        self.due = threading.Event()
        """Read soon."""
        self.busy = True
        """Read often."""
        self._cloud = cloud
        self._inbox = inbox
        self._failures = failures
        self._pace = pace
        self._clock = clock
        self._sets: dict[str, NodeSet] = {}

    def read(self) -> float:
        """Read all, even if one fails; return the seconds to pause."""
        self.due.clear()
        at = self._clock.monotonic()
        sets = self._failures.tried("the metadata", self._cloud.sets)
        if sets is not None:
            self._sets = sets
            self._inbox.put(SetsRead(at, sets))
        # Quotas are read before VMs: VMs in the list may be newer, and then quotas miss them.
        quotas = self._failures.tried("the quotas", lambda: self._cloud.quotas(self._sets.values()))
        at = self._clock.monotonic()
        vms = self._failures.tried("the cloud", self._cloud.vms)
        if vms is not None:
            # After a failure quotas are unknown: old ones would still count VMs that are gone.
            fresh = self._clock.monotonic() <= at + QUOTAS_S
            self._inbox.put(VmsRead(at, vms, quotas if quotas and fresh else Quotas()))
        busy = self.busy or None in (sets, quotas, vms)
        return self._pace.cloud_busy_s if busy else self._pace.idle_s
