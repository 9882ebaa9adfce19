"""The daemon: reads SLURM and the cloud, reconciles, and starts the actions.

Threads make all calls that can block, and put the answers into one inbox. One loop takes all
messages out, reconciles with the latest state, and passes each action to its driver. The loop never
blocks on a call. It reconciles a request of SLURM as soon as it comes, with the state that it
knows then.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from muster.autoscaler.reconcile.records import Phase, TrackedState
from muster.autoscaler.slurm.slurmctld import SlurmError
from muster.autoscaler.slurm.spool import SpoolError
from muster.autoscaler.systemd import ALIVE, READY, notify
from muster.gcp.api import CloudError

log = logging.getLogger(__name__)


class Slurm(Protocol):
    """slurmctld: `muster.autoscaler.slurm.slurmctld`."""

    def nodes(self) -> list[Node]:
        """Return the nodes in the cloud; SlurmError: they can't be read."""

    def release_nodes(self, names: Iterable[str], reason: str) -> None:
        """Take nodes out of their jobs and power them down; SlurmError: it failed."""


class Spool(Protocol):
    """Files that SLURM's programs wrote: `muster.autoscaler.slurm.spool`."""

    def requests(self) -> list[Request]:
        """Return the requests that are not closed."""

    def forget_calls(self) -> None:
        """Remove the files of the other programs."""

    def close(self, request: str) -> None:
        """Remove a request; SpoolError: it can't be removed now."""

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds` until SLURM runs a program; return whether it ran one."""


class Cloud(Protocol):
    """The cluster's VMs: `muster.autoscaler.compute.fleet`. CloudError: it can't be read."""

    def vms(self) -> list[Vm]:
        """Return the nodes' VMs."""

    def sets(self) -> dict[str, NodeSet]:
        """Return the node sets from the controller's metadata."""

    def quotas(self, node_sets: Iterable[NodeSet]) -> Quotas:
        """Return what is left of the quotas."""

    def submit(self, action: Insert | Delete | Probe) -> None:
        """Start an action; it puts exactly one event into the inbox."""


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


@dataclass(frozen=True, slots=True)
class NodesRead:
    """slurmctld's answer; `at` is the time of the question."""

    at: float
    nodes: dict[str, Node]


@dataclass(frozen=True, slots=True)
class VmsRead:
    """The cloud's answer; `at` is the time of the question."""

    at: float
    vms: list[Vm]
    quotas: Quotas
    """The daemon reads them just before the VMs."""


@dataclass(frozen=True, slots=True)
class SetsRead:
    """The metadata's answer."""

    sets: dict[str, NodeSet]


@dataclass(frozen=True, slots=True)
class NotRead:
    """Something can't be read, or can be read again (`why` is empty)."""

    what: str
    at: float
    why: str
    verb: str = "read"
    """The spool can't be `written`."""


@dataclass(frozen=True, slots=True)
class Called:
    """One of SLURM's programs has written a file into the spool."""


Message = NodesRead | VmsRead | SetsRead | NotRead | Called | Event
Inbox = queue.SimpleQueue[Message]
T = TypeVar("T")
Observer = Callable[[ObservedState, TrackedState, Sequence[Action]], None]
SET_BACK_S = 5.0
"""If the clock goes back by less, it is only corrected in small steps."""
FRESH_S = 2.0
"""So long after they were read nodes may be released."""
TICK_S = 1.0
"""The next reconcile pass comes after this time at the latest, to notice deadlines."""


class Daemon:
    """The autoscaler of one cluster.

    The cloud puts its events into `inbox`. The daemon calls `observe` after each reconcile pass,
    for metrics, logs and `muster nodes`.
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
        self._releases: queue.SimpleQueue[ReleaseNodes] = queue.SimpleQueue()
        self._slurm_due = threading.Event()
        self._cloud_due = threading.Event()
        self._stopping = threading.Event()
        self._settled: list[str] = []
        """Requests that need no more, whose files are there still."""
        self._sets: dict[str, NodeSet] = {}
        self._busy = True
        self._broken: BaseException | None = None

    def stop(self) -> None:
        """End `run` soon. Operations in the cloud continue; the next start reads their results."""
        self._stopping.set()
        self._slurm_due.set()
        self._cloud_due.set()

    def run(self) -> None:
        """Work until `stop`.

        Raises:
            BaseException: an unexpected error in a thread; systemd restarts the daemon.

        """
        work = (self._listen, self._read_slurm, self._read_cloud)
        threads = [
            threading.Thread(target=self._safely, args=(function,), daemon=True)
            for function in work
        ]
        for thread in threads:
            thread.start()
        try:
            self._inbox.put(Called())
            notify(READY)
            while not self._stopping.is_set():
                self._reconcile(self._messages())
                notify(ALIVE)
        finally:
            self.stop()
            for thread in threads:
                # Some threads may still wait for slurmctld or Google: nothing depends on them.
                thread.join(TICK_S)
        if self._broken:
            raise self._broken

    def _messages(self) -> list[Message]:
        """Wait for an urgent message, at most TICK_S; return all messages."""
        messages: list[Message] = []
        end = time.monotonic() + TICK_S
        with suppress(queue.Empty):
            while not messages or not self._urgent(messages[-1]):
                messages.append(self._inbox.get(timeout=max(0.0, end - time.monotonic())))
            while True:
                messages.append(self._inbox.get_nowait())
        return messages

    def _urgent(self, message: Message) -> bool:
        """Whether to reconcile now. A deletion that ends is urgent only if its node powers up."""
        return not isinstance(message, Deleted) or self.tracked.node(message.vm.name).start is not None

    def _reconcile(self, messages: list[Message]) -> None:
        now = self._clock()
        if now < self.observed.now - SET_BACK_S:
            self._set_back(now)
        events: list[Event] = []
        news: dict[str, Any] = {}
        for message in messages:
            match message:
                case NodesRead() | VmsRead() if message.at > now:
                    # This reading is from before the clock went back: its time is in the future.
                    self._read_soon()
                case NodesRead(at, nodes):
                    news |= {"nodes": nodes, "nodes_at": at}
                case VmsRead(at, vms, quotas):
                    news |= {"vms": vms, "vms_at": at, "quotas": quotas}
                case SetsRead(sets):
                    news |= {"sets": sets}
                case NotRead(what, at, why, verb):
                    before = news.get("unread", self.observed.unread)
                    others = {name: unread for name, unread in before.items() if name != what}
                    since = before[what].since if what in before else at
                    failed = {what: Unread(since, why, verb)} if why else {}
                    news |= {"unread": others | failed}
                case Called():
                    requests = self.spool.requests()
                    left = [request for request in requests if request.id not in self._settled]
                    news |= {"requests": left}
                    # These files say no more than the nodes' states: read those soon.
                    self.spool.forget_calls()
                    self._read_soon()
                case event:
                    events.append(event)
        self.observed = replace(self.observed, now=now, events=events, **news)
        actions, self.tracked = reconcile(self.observed, self.tracked)
        for action in actions:
            self._do(action)
        self._remove_settled()
        tracked = self.tracked
        idle = not self._busy
        self._busy = bool(tracked.inserts) or any(
            record.phase is not Phase.SETTLED or record.preempted_at
            for record in tracked.nodes.values()
        )
        if idle and self._busy:
            # A reader that has just read, while the daemon was idle, would sleep too long.
            self._read_soon()
        # `observed` still has the requests that this pass closes: they name its nodes.
        self.observe(self.observed, tracked, actions)
        closed = {action.request for action in actions if isinstance(action, Close)}
        if closed:
            left = [request for request in self.observed.requests if request.id not in closed]
            self.observed = replace(self.observed, requests=left)

    def _set_back(self, now: float) -> None:
        """Forget all state with a time in the future: it would block everything until that time.

        As after a restart, the daemon knows nothing until the next readings, which have the new
        time.
        """
        log.warning(
            "system clock stepped back %.0f s; re-reading all state", self.observed.now - now
        )
        self.tracked = self.tracked.set_back(now)
        self.observed = replace(self.observed, nodes={}, nodes_at=0, vms=(), vms_at=0, unread={})
        self._read_soon()

    def _read_soon(self) -> None:
        self._slurm_due.set()
        self._cloud_due.set()

    def _do(self, action: Action) -> None:
        match action:
            case ReleaseNodes():
                self._releases.put(action)
                self._slurm_due.set()
            case Close(request):
                self._settled.append(request)
            case _:
                self.cloud.submit(action)

    def _remove_settled(self) -> None:
        """Remove the files of settled requests; where that fails, the next pass tries again."""
        try:
            while self._settled:
                self.spool.close(self._settled[0])
                del self._settled[0]
                self._works("the spool")
        except SpoolError as error:
            self._failed("the spool", str(error), "written")

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
            # Of the actions so far: for later ones the nodes must be read again.
            releases = [self._releases.get() for _ in range(self._releases.qsize())]
            at, begun = self._clock(), time.monotonic()
            nodes = self._tried("slurmctld", self.slurm.nodes)
            pause_s = self.pace.retry_s
            if nodes is not None:
                by_name = {node.name: node for node in nodes}
                self._inbox.put(NodesRead(at, by_name))
                self._release_nodes(releases, by_name, begun + FRESH_S)
                pause_s = self.pace.slurm_busy_s if self._busy else self.pace.idle_s
            self._slurm_due.wait(pause_s)

    def _release_nodes(
        self, releases: Iterable[ReleaseNodes], nodes: Mapping[str, Node], until: float
    ) -> None:
        """Release the nodes that are still as they were when it was decided.

        `nodes` were read directly before: a node may have come into service since the decision.
        SLURM has no update with a condition, so the time from that reading to a call of scontrol
        remains. After `until`, by time.monotonic(), the nodes are read again for the other actions.
        What is refused the next reconcile pass decides again.
        """
        for number, action in enumerate(releases):
            # One of them in any case: slurmctld may be slow to answer each time.
            if number and time.monotonic() > until:
                self._releases.put(action)
                self._slurm_due.set()
                continue
            names = [
                name for name in action.names if name in nodes and nodes[name].power is action.power
            ]
            if not names:
                continue
            try:
                self.slurm.release_nodes(names, action.reason)
            except SlurmError as error:
                log.error("nodes can't be released, retrying: %s", error)
            # The next reading shows it.
            self._slurm_due.set()

    def _read_cloud(self) -> None:
        while not self._stopping.is_set():
            self._cloud_due.clear()
            busy = not self._read_all_of_cloud() or self._busy
            self._cloud_due.wait(self.pace.cloud_busy_s if busy else self.pace.idle_s)

    def _read_all_of_cloud(self) -> bool:
        """Read metadata, quotas and VMs, even if one fails; return whether all could be read."""
        sets = self._tried("the metadata", self.cloud.sets)
        if sets is not None:
            self._sets = sets
            self._inbox.put(SetsRead(sets))
        # Quotas are read before VMs: VMs in the list may be newer, and then quotas miss them.
        quotas = self._tried("the quotas", lambda: self.cloud.quotas(self._sets.values()))
        at = self._clock()
        vms = self._tried("the cloud", self.cloud.vms)
        if vms is not None:
            # After a failure quotas are unknown: old ones would still count VMs that are gone.
            self._inbox.put(VmsRead(at, vms, quotas or Quotas()))
        return None not in (sets, quotas, vms)

    def _tried(self, what: str, read: Callable[[], T]) -> T | None:
        """Return the answer; None after a failure, which the log and the inbox get."""
        try:
            answer = read()
        except (SlurmError, CloudError, SetsError) as error:
            why = sentence(of_call(error)) if isinstance(error, CloudError) else str(error)
            self._failed(what, why)
            return None
        self._works(what)
        return answer

    def _failed(self, what: str, why: str, verb: str = "read") -> None:
        """Say that something can't be read, once for each error: it is tried again and again."""
        before = self.observed.unread.get(what)
        if before is None or before.why != why:
            log.warning("%s can't be %s: %s", what, verb, why)
            self._inbox.put(NotRead(what, self._clock(), why, verb))

    def _works(self, what: str) -> None:
        if what in self.observed.unread:
            log.info("%s works again", what)
            self._inbox.put(NotRead(what, self._clock(), ""))
