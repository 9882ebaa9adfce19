"""The daemon: reads, plans, does; all that waits is done by threads, all that decides by one.

Threads put what they find into one inbox. The loop takes out what there is, makes a plan with what
was read last, and hands each action to the edge that does it. A request of SLURM's is planned for
the moment it comes, with what is known; nothing that hangs is ever waited for.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from muster.autoscaler.compute.errors import of_call
from muster.autoscaler.compute.node_templates import SetsError
from muster.autoscaler.reconcile.model import (
    Action,
    Close,
    Delete,
    Deleted,
    Event,
    Insert,
    Node,
    NodeSet,
    Probe,
    Quotas,
    ReleaseNodes,
    Request,
    Unread,
    Vm,
)
from muster.autoscaler.reconcile.observed import ObservedState
from muster.autoscaler.reconcile.reconcile import reconcile
from muster.autoscaler.reconcile.retry_policy import sentence
from muster.autoscaler.reconcile.tracked import TrackedState
from muster.autoscaler.slurm.slurmctld import SlurmError
from muster.autoscaler.systemd import ALIVE, READY, notify
from muster.gcp.api import CloudError

log = logging.getLogger(__name__)


class Slurm(Protocol):
    """slurmctld: `muster.autoscaler.slurm.slurmctld`."""

    def nodes(self) -> list[Node]:
        """Return the nodes in the cloud; SlurmError: it does not say."""

    def release_nodes(self, names: Iterable[str], reason: str) -> None:
        """Take nodes out of their jobs and power them down; SlurmError: it did not."""


class Spool(Protocol):
    """What SLURM's programs have left: `muster.autoscaler.slurm.spool`."""

    def requests(self) -> list[Request]:
        """Return the requests that are not closed."""

    def forget_calls(self) -> None:
        """Remove the calls of the other programs."""

    def close(self, request: str) -> None:
        """Remove a request."""

    def wait(self, seconds: float) -> bool:
        """Wait for a program to call, at most so long; whether one did."""


class Cloud(Protocol):
    """The cluster's VMs: `muster.autoscaler.compute.fleet`. CloudError: Google does not say."""

    def vms(self) -> list[Vm]:
        """Return the nodes' VMs."""

    def sets(self) -> dict[str, NodeSet]:
        """Return the node sets as the controller's metadata says them now."""

    def quotas(self, found: Iterable[NodeSet]) -> Quotas:
        """Return what the quotas leave."""

    def submit(self, action: Insert | Delete | Probe) -> None:
        """Begin to do something; exactly one event comes of it, into the inbox."""


@dataclass(frozen=True)
class Pace:
    """Seconds between readings."""

    slurm_busy_s: float = 2
    """While nodes are on their way into service, or are released."""
    cloud_busy_s: float = 5
    idle_s: float = 30
    """Else, also while VMs are deleted: what nobody announces, such as a VM that Google takes, is
    found so late."""
    retry_s: float = 5
    """After a reading that failed."""


@dataclass(frozen=True, slots=True)
class NodesRead:
    """slurmctld's answer; the time is that of the question."""

    at: float
    nodes: dict[str, Node]


@dataclass(frozen=True, slots=True)
class VmsRead:
    """The cloud's answer; the time is that of the question."""

    at: float
    vms: list[Vm]
    quotas: Quotas
    """Read just before."""


@dataclass(frozen=True, slots=True)
class SetsRead:
    """The metadata's answer."""

    sets: dict[str, NodeSet]


@dataclass(frozen=True, slots=True)
class NotRead:
    """A reading failed, or (`why` is empty) does so no more."""

    what: str
    at: float
    why: str


@dataclass(frozen=True, slots=True)
class Called:
    """One of SLURM's programs has put something into the spool."""


Message = NodesRead | VmsRead | SetsRead | NotRead | Called | Event
Inbox = queue.SimpleQueue[Message]
T = TypeVar("T")
Observer = Callable[[ObservedState, TrackedState, Sequence[Action]], None]
SET_BACK_S = 5.0
"""A clock that goes back by less is being corrected little by little."""
TICK_S = 1.0
"""A plan is made so often even if nothing is heard: deadlines pass."""


class Daemon:
    """The autoscaler of one cluster.

    `inbox` is where the cloud puts its events; `observe` is called after each plan, for metrics,
    logs and `muster nodes`.
    """

    def __init__(
        self,
        observed: ObservedState,
        inbox: Inbox,
        *,
        slurm: Slurm,
        cloud: Cloud,
        spool: Spool,
        pace: Pace = Pace(),
        observe: Observer = lambda *_: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.observed = observed
        self._clock = clock
        self.tracked = TrackedState()
        self.slurm = slurm
        self.cloud = cloud
        self.spool = spool
        self.pace = pace
        self.observe = observe
        self._inbox = inbox
        self._returns: queue.SimpleQueue[ReleaseNodes] = queue.SimpleQueue()
        self._slurm_due = threading.Event()
        self._cloud_due = threading.Event()
        self._stopping = threading.Event()
        self._sets: dict[str, NodeSet] = {}
        self._busy = True
        self._broken: BaseException | None = None

    def stop(self) -> None:
        """End `run` soon. What is under way in the cloud goes on: a successor finds it."""
        self._stopping.set()
        self._slurm_due.set()
        self._cloud_due.set()

    def run(self) -> None:
        """Work until `stop`.

        Raises:
            BaseException: what a thread did not expect; systemd starts a successor.

        """
        work = (self._listen, self._read_slurm, self._read_cloud)
        threads = [
            threading.Thread(target=self._safely, args=(each,), daemon=True) for each in work
        ]
        for thread in threads:
            thread.start()
        try:
            self._inbox.put(Called())
            notify(READY)
            while not self._stopping.is_set():
                self._round(self._messages())
                notify(ALIVE)
        finally:
            self.stop()
            for thread in threads:
                # One that waits for slurmctld or Google is not waited for: nothing depends on it.
                thread.join(TICK_S)
        if self._broken:
            raise self._broken

    def _messages(self) -> list[Message]:
        """Return all that has come, as soon as something has that hurries, or the tick is over."""
        found: list[Message] = []
        end = time.monotonic() + TICK_S
        with suppress(queue.Empty):
            while not found or not self._hurries(found[-1]):
                found.append(self._inbox.get(timeout=max(0.0, end - time.monotonic())))
            while True:
                found.append(self._inbox.get_nowait())
        return found

    def _hurries(self, message: Message) -> bool:
        """Whether a plan is due: deletions end by the thousand, and mostly nobody waits for it."""
        return not isinstance(message, Deleted) or message.name in self.tracked.powering_up

    def _round(self, messages: list[Message]) -> None:
        now = self._clock()
        if now < self.observed.now - SET_BACK_S:
            self._set_back(now)
        events: list[Event] = []
        news: dict[str, Any] = {}
        for message in messages:
            match message:
                case NodesRead() | VmsRead() if message.at > now:
                    # Asked for by a clock that has been set back: what it settles is not known.
                    self._read_soon()
                case NodesRead(at, nodes):
                    news |= {"nodes": nodes, "nodes_at": at}
                case VmsRead(at, vms, quotas):
                    news |= {"vms": vms, "vms_at": at, "quotas": quotas}
                case SetsRead(sets):
                    news |= {"sets": sets}
                case NotRead(what, at, why):
                    before = news.get("unread", self.observed.unread)
                    others = {each: of for each, of in before.items() if each != what}
                    since = before[what].since if what in before else at
                    this = {what: Unread(since, why)} if why else {}
                    news |= {"unread": others | this}
                case Called():
                    news |= {"requests": self.spool.requests()}
                    # What they say, the nodes' states say: only that there was one counts.
                    self.spool.forget_calls()
                    self._read_soon()
                case event:
                    events.append(event)
        self.observed = replace(self.observed, now=now, events=events, **news)
        actions, self.tracked = reconcile(self.observed, self.tracked)
        for action in actions:
            self._do(action)
        tracked = self.tracked
        idle = not self._busy
        self._busy = any((tracked.powering_up, tracked.asks, tracked.released, tracked.preempted))
        if idle and self._busy:
            # Who has just read, and found nothing under way, sleeps long.
            self._read_soon()
        # With the requests that are closed now: they say whose nodes the plan was about.
        self.observe(self.observed, tracked, actions)
        closed = {action.request for action in actions if isinstance(action, Close)}
        if closed:
            left = [each for each in self.observed.requests if each.id not in closed]
            self.observed = replace(self.observed, requests=left)

    def _set_back(self, now: float) -> None:
        """Forget what has times that are still to come: it would hold everything up until then.

        What is read next has the new time; until then nothing is known, as to a successor.
        """
        log.warning("the clock was set back by %.0f s: all is read anew", self.observed.now - now)
        self.tracked = self.tracked.set_back(now)
        self.observed = replace(self.observed, nodes={}, nodes_at=0, vms=(), vms_at=0, unread={})
        self._read_soon()

    def _read_soon(self) -> None:
        self._slurm_due.set()
        self._cloud_due.set()

    def _do(self, action: Action) -> None:
        match action:
            case ReleaseNodes():
                self._returns.put(action)
                self._slurm_due.set()
            case Close(request):
                self.spool.close(request)
            case _:
                self.cloud.submit(action)

    def _safely(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._broken = error
            self.stop()

    def _listen(self) -> None:
        while not self._stopping.is_set():
            if self.spool.wait(TICK_S):
                self._inbox.put(Called())

    def _read_slurm(self) -> None:
        while not self._stopping.is_set():
            self._slurm_due.clear()
            self._release_nodes()
            at = self._clock()
            nodes = self._tried("slurmctld", self.slurm.nodes)
            pause_s = self.pace.retry_s
            if nodes is not None:
                self._inbox.put(NodesRead(at, {node.name: node for node in nodes}))
                pause_s = self.pace.slurm_busy_s if self._busy else self.pace.idle_s
            self._slurm_due.wait(pause_s)

    def _release_nodes(self) -> None:
        """Release nodes; what slurmctld doesn't take is decided anew by the plan."""
        # What comes meanwhile waits: the nodes must be read between.
        for _ in range(self._returns.qsize()):
            action = self._returns.get()
            try:
                self.slurm.release_nodes(action.names, action.reason)
            except SlurmError as error:
                log.error("nodes are not released, which is tried again: %s", error)

    def _read_cloud(self) -> None:
        while not self._stopping.is_set():
            self._cloud_due.clear()
            busy = not self._cloud_was_read() or self._busy
            self._cloud_due.wait(self.pace.cloud_busy_s if busy else self.pace.idle_s)

    def _cloud_was_read(self) -> bool:
        """Read all of it; whether all could be read. One reading is in no other's way."""
        sets = self._tried("the metadata", self.cloud.sets)
        if sets is not None:
            self._sets = sets
            self._inbox.put(SetsRead(sets))
        # Before the VMs: what is in their list and not older than this, the quotas don't count.
        quotas = self._tried("the quotas", lambda: self.cloud.quotas(self._sets.values()))
        at = self._clock()
        vms = self._tried("the cloud", self.cloud.vms)
        if vms is not None:
            # Quotas that can't be read are not known: old ones would still count what has gone.
            self._inbox.put(VmsRead(at, vms, quotas or Quotas()))
        return None not in (sets, quotas, vms)

    def _tried(self, what: str, read: Callable[[], T]) -> T | None:
        """Return what is read; None: it can't be, which is told."""
        try:
            found = read()
        except (SlurmError, CloudError, SetsError) as error:
            why = sentence(of_call(error)) if isinstance(error, CloudError) else str(error)
            log.warning("%s can't be read: %s", what, why)
            self._inbox.put(NotRead(what, self._clock(), why))
            return None
        if what in self.observed.unread:
            self._inbox.put(NotRead(what, self._clock(), ""))
        return found
