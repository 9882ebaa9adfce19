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
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, Protocol

from muster.autoscaler.clock import Clock
from muster.autoscaler.messages import (
    Called,
    Inbox,
    Message,
    NodesRead,
    NotRead,
    SetsRead,
    VmsRead,
)
from muster.autoscaler.readers import (
    CloudReader,
    CloudReadings,
    Failures,
    Pace,
    Slurm,
    SlurmReader,
)
from muster.autoscaler.reconcile.model import (
    Action,
    Close,
    Delete,
    Deleted,
    Event,
    Insert,
    Probe,
    ReleaseNodes,
    Request,
    Unread,
    Withdraw,
)
from muster.autoscaler.reconcile.observed import STALE_S, ObservedState
from muster.autoscaler.reconcile.reconcile import reconcile, track
from muster.autoscaler.reconcile.records import Phase, TrackedState
from muster.autoscaler.slurm.spool import SpoolError
from muster.autoscaler.systemd import ALIVE, READY, notify

log = logging.getLogger(__name__)


class Spool(Protocol):
    """Files that SLURM's programs wrote: `muster.autoscaler.slurm.spool`."""

    def requests(self) -> list[Request]:
        """Return the requests that are not closed; SpoolError: they can't be read now."""

    def forget_calls(self) -> None:
        """Remove the files of the other programs."""

    def close(self, request: str) -> None:
        """Remove a request; SpoolError: it can't be removed now."""

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds` until SLURM runs a program; return whether it ran one."""


class Cloud(CloudReadings, Protocol):
    """The cluster's VMs: `muster.autoscaler.compute.fleet`."""

    def submit(self, action: Insert | Delete | Withdraw | Probe) -> None:
        """Start an action; each but Withdraw puts exactly one event into the inbox."""

    def send_deletions_until(self, time: float) -> None:
        """Say that all deletions that wait, and are not withdrawn, may be sent until a time."""


Observer = Callable[[ObservedState, TrackedState, Sequence[Action]], None]
TICK_S = 1.0
"""The next reconcile pass comes after this time at the latest, to notice deadlines."""
CALM_S = 5.0
"""While VMs are only deleted, and nothing comes that matters, a decision follows the last one after
this time, or when a deletion that failed is due again: thousands of records take some time."""
GAP_S = 5.0
"""After so long without a pass this process was stopped, or the machine was suspended."""
DATE_S = 0.01
"""A smaller difference in the date of the boot is ignored: two clocks are read, one after the
other."""


class Daemon:
    """The autoscaler of one cluster.

    The cloud puts its events into `inbox`. The daemon calls `observe` after each reconcile pass,
    for metrics, logs and `muster nodes`.

    After a gap between two passes (the process was stopped, or the machine suspended) nothing is
    decided until slurmctld and the cloud have been read again. If one of them can't be read, the
    daemon waits STALE_S. If it is slurmctld, no node is released and no VM is deleted then, as
    always when slurmctld does not answer.

    What was decided before a gap and is done after it does no harm. A release is dropped when it is
    old, and follows a new reading. A deletion names a VM's id, and is sent only while the states by
    which it was judged last are younger than STALE_S: SLURM accepts a VM from before its request if
    that has booted since. An insert whose node is not needed any more makes a VM that is deleted. A
    probe's answer is as new as the answer.
    """

    def __init__(
        self,
        observed: ObservedState,
        inbox: Inbox,
        *,
        slurm: Slurm,
        cloud: Cloud,
        spool: Spool,
        pace: Pace | None = None,
        observe: Observer = lambda *_: None,
        clock: Clock = Clock(),
    ) -> None:
        self.observed = observed
        self._clock = clock
        self.tracked = TrackedState()
        self.cloud = cloud
        self.spool = spool
        self.observe = observe
        self._inbox = inbox
        self._failures = Failures(inbox, self._clock)
        pace = pace or Pace()
        self.slurm_reader = SlurmReader(slurm, inbox, self._failures, pace, self._clock)
        self.cloud_reader = CloudReader(cloud, inbox, self._failures, pace, self._clock)
        self._readers = (self.slurm_reader, self.cloud_reader)
        self._stopping = threading.Event()
        self._closed: list[str] = []
        """Closed requests whose files are there still."""
        self._events: list[Event] = []
        """Results that no decision has seen yet."""
        self._due_at = 0.0
        """When the next decision is due."""
        self._pass_at = self._clock.monotonic()
        """When the last pass was, or would have been."""
        self._gap_until = 0.0
        """The end of the last gap between two passes."""
        self._blind_from = 0.0
        """The end of the gap for which nothing is decided, the first one of several; 0: there is
        none."""
        self._broken: BaseException | None = None

    def stop(self) -> None:
        """End `run` soon. Operations in the cloud continue; the next start reads their results."""
        self._stopping.set()
        for reader in self._readers:
            reader.due.set()

    def run(self) -> None:
        """Work until `stop`.

        Raises:
            BaseException: an unexpected error in a thread; systemd restarts the daemon.

        """
        threads = [
            threading.Thread(target=self._again_and_again, args=(step,), daemon=True)
            for step in (self.listen, *(partial(self._read, reader) for reader in self._readers))
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
            while not messages or not self.urgent(messages[-1]):
                left_s = end - self._clock.monotonic()
                messages.append(self._clock.wait(lambda s: self._inbox.get(timeout=s), left_s))
            while True:
                messages.append(self._inbox.get_nowait())
        return messages

    def urgent(self, message: Message) -> bool:
        """Whether to reconcile now. A deletion that ends is urgent only if its node powers up."""
        return (
            not isinstance(message, Deleted) or self.tracked.node(message.vm.name).start is not None
        )

    def _matters(self, message: Message) -> bool:
        """Whether a decision may follow from it, if only when to try a deletion again."""
        return self.urgent(message) or (isinstance(message, Deleted) and bool(message.failure))

    def reconcile_pass(self, messages: list[Message]) -> None:
        """Take messages, decide what is due, and start it."""
        if news := self._news(messages):
            self.observed = replace(self.observed, **news)
        # The last call to the outside was before: what is decided now is decided by this time.
        now = self._clock.monotonic()
        if now > self._pass_at + TICK_S + GAP_S:
            log.warning("no pass for %.0f s; re-reading all state", now - self._pass_at)
            if not self._blind_from or now > self._pass_at + STALE_S:
                self._blind_from = now
            self._gap_until = now
            self._inbox.put(Called())
        self._pass_at = now
        if any(map(self._matters, messages)):
            self._due_at = now
        if self._blind(now):
            self._begin_pass(now)
            self.tracked = track(self.observed, self.tracked)
            self.observe(self.observed, self.tracked, ())
            return
        self._blind_from = 0.0
        if now >= self._due_at:
            self._begin_pass(now)
            self._decide()

    def _blind(self, now: float) -> bool:
        """Whether what is known is from before a gap, and new readings may come soon.

        Where each pass takes so long that it seems a gap, the first one counts: a slow daemon
        decides once in STALE_S.
        """
        read_at = min(self.observed.nodes_at, self.observed.vms_at)
        return read_at < self._gap_until and now < self._blind_from + STALE_S

    def _news(self, messages: list[Message]) -> dict[str, Any]:
        """Return what messages change in the observed state; keep the events for a decision."""
        news: dict[str, Any] = {}
        for message in messages:
            match message:
                case NodesRead(at, nodes, not_released):
                    # With the requests of the nodes that it shows as powering up.
                    news |= {"nodes": nodes, "nodes_at": at, "requests": self._requests()}
                    self._events += not_released
                case VmsRead(at, vms, quotas):
                    news |= {"vms": vms, "vms_at": at, "quotas": quotas}
                case SetsRead(at, sets):
                    news |= {"sets": sets, "sets_at": at}
                case NotRead(what, at, why, verb):
                    before = news.get("unread", self.observed.unread)
                    others = {name: unread for name, unread in before.items() if name != what}
                    since = before[what].since if what in before else at
                    failed = {what: Unread(since, why, verb)} if why else {}
                    news |= {"unread": others | failed}
                case Called():
                    news |= {"requests": self._requests()}
                    # These files say no more than the nodes' states: read those soon.
                    self.spool.forget_calls()
                    self._read_soon()
                case event:
                    self._events.append(event)
        return news

    def _requests(self) -> list[Request]:
        """Return the requests that are not closed; those that are known, if they can't be read."""
        what = "the spool's requests"
        try:
            requests = self.spool.requests()
            self._failures.works(what)
        except SpoolError as error:
            requests = error.requests
            self._failures.failed(what, str(error))
        return [request for request in requests if request.id not in self._closed]

    def _begin_pass(self, now: float) -> None:
        events, self._events = self._events, []
        started = self._clock.now() - now
        if abs(started - self.observed.started) < DATE_S:
            started = self.observed.started
        self.observed = replace(self.observed, now=now, started=started, events=events)

    def _decide(self) -> None:
        actions, self.tracked = reconcile(self.observed, self.tracked)
        for action in actions:
            self._do(action)
        # After those that are withdrawn: the others are as good as slurmctld's states are.
        self.cloud.send_deletions_until(self.observed.nodes_at + STALE_S)
        self._remove_closed()
        tracked = self.tracked
        busy = bool(tracked.inserts) or any(
            record.phase is not Phase.SETTLED or record.preempted_at
            for record in tracked.nodes.values()
        )
        for reader in self._readers:
            if busy and not reader.busy:
                # One that has just read, while the daemon was idle, would sleep too long.
                reader.due.set()
            reader.busy = busy
        deletions = (record.deletions.values() for record in tracked.nodes.values())
        now = self.observed.now
        # What is due already waits for something else: its VM is stopping.
        retries = (one.again for one in chain.from_iterable(deletions) if one.again > now)
        self._due_at = now if busy else min(now + CALM_S, min(retries, default=math.inf))
        # `observed` still has the requests that this pass closes: they name its nodes.
        self.observe(self.observed, tracked, actions)
        closed = {action.request for action in actions if isinstance(action, Close)}
        if closed:
            left = [request for request in self.observed.requests if request.id not in closed]
            self.observed = replace(self.observed, requests=left)

    def _read_soon(self) -> None:
        for reader in self._readers:
            reader.due.set()

    def _do(self, action: Action) -> None:
        match action:
            case ReleaseNodes():
                self.slurm_reader.release(self.observed.now, action)
            case Close(request):
                self._closed.append(request)
            case _:
                self.cloud.submit(action)

    def _remove_closed(self) -> None:
        """Remove the files of closed requests; where that fails, the next pass tries again."""
        try:
            while self._closed:
                self.spool.close(self._closed[0])
                del self._closed[0]
                self._failures.works("the spool")
        except SpoolError as error:
            self._failures.failed("the spool", str(error), "written")

    def _again_and_again(self, step: Callable[[], None]) -> None:
        try:
            while not self._stopping.is_set():
                step()
        except BaseException as error:
            self._broken = error
            self.stop()

    def _read(self, reader: SlurmReader | CloudReader) -> None:
        self._clock.wait(reader.due.wait, reader.read())

    def listen(self) -> None:
        """Wait a moment for SLURM's programs; tell the loop of their calls."""
        if self._clock.wait(self.spool.wait, TICK_S):
            self._inbox.put(Called())
