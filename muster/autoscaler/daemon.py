"""The daemon: reads SLURM and the cloud, reconciles, and starts the actions.

Threads make all calls that can block, and put the answers into one inbox. One loop takes all
messages out, reconciles with the latest state, and passes each action to its driver. The loop never
blocks on a call. It reconciles a request of SLURM as soon as it comes, with the state that it
knows then.
"""

import logging
import math
import queue
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from muster.autoscaler.clock import Clock
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
    Withdraw,
)
from muster.autoscaler.reconcile.observed import STALE_S, ObservedState
from muster.autoscaler.reconcile.reconcile import reconcile
from muster.autoscaler.reconcile.retry_policy import sentence
from muster.autoscaler.reconcile.tracked import TrackedState
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

    def submit(self, action: Insert | Delete | Withdraw | Probe) -> None:
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
FRESH_S = 2.0
"""So long after they were read nodes may be released."""
SLOW_S = 30.0
"""After so long of slow answers nodes are released by those, too."""
RELEASE_S = 60.0
"""So long after it was decided a node may be released: SLURM needs longer (SuspendTimeout) to power
a node down and ask for it again."""
TICK_S = 1.0
"""The next reconcile pass comes after this time at the latest, to notice deadlines."""
GAP_S = 5.0
"""After so long without a pass this process was stopped, or the machine was suspended."""
DATE_S = 0.01
"""By less the date of the boot is not corrected: it is computed from two clocks, one after the
other."""


class Daemon:
    """The autoscaler of one cluster.

    The cloud puts its events into `inbox`. The daemon calls `observe` after each reconcile pass,
    for metrics, logs and `muster nodes`.

    After a gap between two passes (the process was stopped, or the machine suspended) nothing is
    decided until slurmctld and the cloud have been read again. If one of them can't be read, the
    daemon waits STALE_S: then it releases no node, as always when slurmctld does not answer.

    What was decided before a gap and is done after it does no harm. A release is dropped when it is
    old, and follows a new reading. A deletion names a VM's id, and a VM that nobody needed is never
    needed again: SLURM accepts none from before its request. An insert whose node is not needed any
    more makes a VM that is deleted. A probe's answer is as new as the answer.
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
        clock: Clock | None = None,
    ) -> None:
        self.observed = observed
        self._clock = clock or Clock()
        self.tracked = TrackedState()
        self.slurm = slurm
        self.cloud = cloud
        self.spool = spool
        self.pace = pace
        self.observe = observe
        self._inbox = inbox
        self._releases: queue.SimpleQueue[tuple[float, ReleaseNodes]] = queue.SimpleQueue()
        """With the time of the pass that decided them."""
        self._slurm_due = threading.Event()
        self._cloud_due = threading.Event()
        self._stopping = threading.Event()
        self._settled: list[str] = []
        """Requests that need no more, whose files are there still."""
        self._sets: dict[str, NodeSet] = {}
        self._busy = True
        self._events: list[Event] = []
        """Results that no pass has seen yet."""
        self._pass_at = self._clock.monotonic()
        """When the last pass was, or would have been."""
        self._gap_until = 0.0
        """The end of the last gap between two passes."""
        self._slow_since = math.inf
        """Since when all answers of slurmctld have been slow."""
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
        threads = [
            threading.Thread(target=self._again_and_again, args=(step,), daemon=True)
            for step in (self.listen, self._slurm_step, self._cloud_step)
        ]
        for thread in threads:
            thread.start()
        try:
            self._inbox.put(Called())
            notify(READY)
            while not self._stopping.is_set():
                self.reconcile_pass(self.messages())
                notify(ALIVE)
        finally:
            self.stop()
            for thread in threads:
                # Some threads may still wait for slurmctld or Google: nothing depends on them.
                thread.join(TICK_S)
        if self._broken:
            raise self._broken

    def messages(self) -> list[Message]:
        """Wait for an urgent message, at most TICK_S; return all messages."""
        messages: list[Message] = []
        end = self._clock.monotonic() + TICK_S
        with suppress(queue.Empty):
            while not messages or not self._urgent(messages[-1]):
                left_s = end - self._clock.monotonic()
                messages.append(self._clock.wait(lambda s: self._inbox.get(timeout=s), left_s))
            while True:
                messages.append(self._inbox.get_nowait())
        return messages

    def _urgent(self, message: Message) -> bool:
        """Whether to reconcile now. A deletion that ends is urgent only if its node powers up."""
        return not isinstance(message, Deleted) or message.vm.name in self.tracked.powering_up

    def reconcile_pass(self, messages: list[Message]) -> None:
        """Take messages, decide what is due, and start it."""
        self.observed = replace(self.observed, **self._news(messages))
        # The last call to the outside was before: what is decided now is decided by this time.
        now = self._clock.monotonic()
        if now > self._pass_at + TICK_S + GAP_S:
            log.warning("no pass for %.0f s; re-reading all state", now - self._pass_at)
            self._gap_until = now
            self._inbox.put(Called())
        self._pass_at = now
        if not self._blind(now):
            self._decide(now)

    def _blind(self, now: float) -> bool:
        """Whether what is known is from before a gap, and new readings may come soon."""
        read_at = min(self.observed.nodes_at, self.observed.vms_at)
        return read_at < self._gap_until and now < self._gap_until + STALE_S

    def _news(self, messages: list[Message]) -> dict[str, Any]:
        """Return what messages change in the observed state; keep the events for the next pass."""
        news: dict[str, Any] = {}
        for message in messages:
            match message:
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
                    self._events.append(event)
        return news

    def _decide(self, now: float) -> None:
        events, self._events = self._events, []
        started = self._clock.now() - now
        if abs(started - self.observed.started) < DATE_S:
            started = self.observed.started
        self.observed = replace(self.observed, now=now, started=started, events=events)
        actions, self.tracked = reconcile(self.observed, self.tracked)
        for action in actions:
            self._do(action)
        self._remove_settled()
        tracked = self.tracked
        idle = not self._busy
        self._busy = any((tracked.powering_up, tracked.asks, tracked.released, tracked.preempted))
        if idle and self._busy:
            # A reader that has just read, while the daemon was idle, would sleep too long.
            self._read_soon()
        # `observed` still has the requests that this pass closes: they name its nodes.
        self.observe(self.observed, tracked, actions)
        closed = {action.request for action in actions if isinstance(action, Close)}
        if closed:
            left = [request for request in self.observed.requests if request.id not in closed]
            self.observed = replace(self.observed, requests=left)

    def _read_soon(self) -> None:
        self._slurm_due.set()
        self._cloud_due.set()

    def _do(self, action: Action) -> None:
        match action:
            case ReleaseNodes():
                self._releases.put((self.observed.now, action))
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

    def _again_and_again(self, step: Callable[[], None]) -> None:
        try:
            while not self._stopping.is_set():
                step()
        except BaseException as error:
            self._broken = error
            self.stop()

    def listen(self) -> None:
        """Wait a moment for SLURM's programs; tell the loop of their calls."""
        if self._clock.wait(self.spool.wait, TICK_S):
            self._inbox.put(Called())

    def _slurm_step(self) -> None:
        self._slurm_due.clear()
        self._clock.wait(self._slurm_due.wait, self.read_slurm())

    def _cloud_step(self) -> None:
        self._cloud_due.clear()
        self._clock.wait(self._cloud_due.wait, self.read_cloud())

    def read_slurm(self) -> float:
        """Read the nodes and release those that are to be released; return the seconds to pause."""
        # Of the actions so far: for later ones the nodes must be read again.
        releases = [self._releases.get() for _ in range(self._releases.qsize())]
        at = self._clock.monotonic()
        nodes = self._tried("slurmctld", self.slurm.nodes)
        if nodes is None:
            return self.pace.retry_s
        by_name = {node.name: node for node in nodes}
        self._inbox.put(NodesRead(at, by_name))
        self._release_nodes(releases, by_name, self._fresh_until(at))
        return self.pace.slurm_busy_s if self._busy else self.pace.idle_s

    def _fresh_until(self, at: float) -> float:
        """Until when nodes may be released by a reading that began at a time.

        By one that took longer than FRESH_S none are, but it is read again. If slurmctld has been
        so slow for SLOW_S, a reading counts from its end, or no node would ever be released.
        """
        answered = self._clock.monotonic()
        if answered <= at + FRESH_S:
            self._slow_since = math.inf
            return at + FRESH_S
        self._slow_since = min(self._slow_since, at)
        return answered + FRESH_S if self._slow() else at

    def _slow(self) -> bool:
        """Whether slurmctld has been slow for long."""
        return self._clock.monotonic() > self._slow_since + SLOW_S

    def _release_nodes(
        self,
        releases: Iterable[tuple[float, ReleaseNodes]],
        nodes: Mapping[str, Node],
        until: float,
    ) -> None:
        """Release the nodes that are still as they were when it was decided.

        `nodes` were read directly before: a node may have come into service since the decision.
        SLURM has no update with a condition, so the time from that reading to a call of scontrol
        remains. After `until` the nodes are read again for the other actions. What is refused, or
        was decided long ago, a later reconcile pass decides again.
        """
        for decided, action in releases:
            now = self._clock.monotonic()
            if now > decided + RELEASE_S:
                self._slurm_due.set()
                continue
            if now > until:
                self._releases.put((decided, action))
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
            if self._slow():
                # One for each reading.
                until = -math.inf

    def read_cloud(self) -> float:
        """Read metadata, quotas and VMs, even if one fails; return the seconds to pause."""
        sets = self._tried("the metadata", self.cloud.sets)
        if sets is not None:
            self._sets = sets
            self._inbox.put(SetsRead(sets))
        # Quotas are read before VMs: VMs in the list may be newer, and then quotas miss them.
        quotas = self._tried("the quotas", lambda: self.cloud.quotas(self._sets.values()))
        at = self._clock.monotonic()
        vms = self._tried("the cloud", self.cloud.vms)
        if vms is not None:
            # After a failure quotas are unknown: old ones would still count VMs that are gone.
            self._inbox.put(VmsRead(at, vms, quotas or Quotas()))
        busy = self._busy or None in (sets, quotas, vms)
        return self.pace.cloud_busy_s if busy else self.pace.idle_s

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
            self._inbox.put(NotRead(what, self._clock.monotonic(), why, verb))

    def _works(self, what: str) -> None:
        if what in self.observed.unread:
            log.info("%s works again", what)
            self._inbox.put(NotRead(what, self._clock.monotonic(), ""))
