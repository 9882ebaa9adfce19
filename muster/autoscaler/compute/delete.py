"""Deletes thousands of VMs: a few calls in each HTTP request, within the rate limit.

Google has no bulk deletion of VMs outside a managed instance group.

A VM is deleted by its name, and only if the VM of that name has its id when it is read directly
before. Google accepts an id in place of the name; the controller's rights are bound to names, and
whether they hold for an id can't be shown without Google. So there is a window, from that reading
to the deletion (two HTTP requests, mostly below a second), in which the VM would have to end by
itself and another one of its name be made.

A deletion may wait here for minutes. Who asked for it may withdraw it until its call is sent, and
says until when all that wait may be sent (`send_until`): what was decided by older states is not
sent before it is judged again, also after this process was stopped.
"""

import heapq
import logging
import math
import threading
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from muster.autoscaler.clock import Clock
from muster.autoscaler.compute import errors
from muster.autoscaler.compute.api_client import Transport, limited, may_pass, pause_s
from muster.autoscaler.compute.operations import Operation, Operations
from muster.autoscaler.compute.rate_limiter import Bucket, Group, TooLateError
from muster.autoscaler.reconcile.model import Deleted, Failure, Vm
from muster.gcp.api import NOT_FOUND, CloudError

log = logging.getLogger("muster")

THREADS, THREADS_OF_ZONE = 8, 4
"""Requests at the same time, of all zones and of one: one that hangs must not stop the others. One
more is only for those that nodes wait for: the others may all wait for the rate limit."""
IDLE_S = 1.0
"""How long it may take to notice `stop`."""
Answer = dict[str, Any] | CloudError
WITHDRAWN = Failure("withdrawn", "it is not wanted any more")


@dataclass(eq=False)
class _Deletion:
    vm: Vm
    since: float
    """When it was asked for."""
    request_id: uuid.UUID = field(default_factory=uuid.uuid4)
    """The same for each try: the answer to an earlier one may have been lost."""
    urgent: bool = False
    """A node waits for it."""
    queued: bool = False
    """It waits to be sent."""
    when: float = 0
    """When it may be sent."""
    sent: bool = False
    """Google gets its call, or has it."""
    withdrawn: bool = False
    """It is not wanted any more: if Google refuses that call, there is no other one."""
    until: float = 0
    """Deadline, from the first try: thousands may wait before it."""
    tried: int = 0


class _Queue:
    """The deletions of a zone that wait to be sent; of those that are due the oldest comes first.

    So one that is tried again does not wait behind thousands of later ones, past its deadline.
    """

    def __init__(self) -> None:
        self._later: list[tuple[float, int, _Deletion]] = []
        """(when it may be sent, number, deletion)."""
        self._due: dict[bool, list[tuple[float, int, _Deletion]]] = {True: [], False: []}
        """Urgent or not -> (since when it waits, number, deletion)."""
        self._order = count()

    def put(self, when: float, deletion: _Deletion) -> None:
        """Add one; if it is there with another time or urgency, that is passed over."""
        deletion.queued, deletion.when = True, when
        heapq.heappush(self._later, (when, next(self._order), deletion))

    def head(self, now: float) -> tuple[bool, float]:
        """Whether the next one to send is not urgent, and when it was due; inf: there is none."""
        self._sort(now)
        for urgent, heap in self._due.items():
            if heap:
                return not urgent, heap[0][0]
        return True, self._later[0][0] if self._later else math.inf

    def take(self, now: float, most: int) -> list[_Deletion]:
        """Remove those that are due: urgent ones, or if there are none the others."""
        self._sort(now)
        for urgent, heap in self._due.items():
            batch: list[_Deletion] = []
            while heap and len(batch) < most:
                deletion = heapq.heappop(heap)[2]
                if deletion.queued and deletion.urgent is urgent:
                    deletion.queued = False
                    batch.append(deletion)
            if batch:
                return batch
        return []

    def _sort(self, now: float) -> None:
        """Move those that are due; remove what is passed over from the heads."""
        while self._later:
            when, number, deletion = self._later[0]
            valid = deletion.queued and deletion.when == when
            if valid and when > now:
                break
            heapq.heappop(self._later)
            if valid:
                heapq.heappush(self._due[deletion.urgent], (deletion.since, number, deletion))
        for urgent, heap in self._due.items():
            while heap and not (heap[0][2].queued and heap[0][2].urgent is urgent):
                heapq.heappop(heap)


class Deletes:
    """Deletes VMs; calls `say` with the event of each."""

    def __init__(
        self,
        transport: Transport,
        operations: Operations,
        project: str,
        say: Callable[[Deleted], None],
        stop: threading.Event,
        *,
        clock: Clock,
    ) -> None:
        self._transport = transport
        self._bucket = transport.buckets[Group.MUTATE]
        self._reads = transport.buckets[Group.READ]
        self._most = transport.limits.burst
        """Calls in one HTTP request: most of a call's CPU time goes into that."""
        self._operations = operations
        self._project = project
        self._say = say
        self._stop = stop
        self._clock = clock
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._pending: dict[str, _Deletion] = {}
        """VM's id -> its deletion, until that has ended."""
        self._queues: defaultdict[str, _Queue] = defaultdict(_Queue)
        """By zone."""
        self._requests: Counter[str] = Counter()
        """Zone -> requests under way."""
        self._until = -math.inf
        """Until when calls may be sent."""
        self._hurried = threading.Condition(self._lock)
        """As `_changed`, for the thread of urgent ones."""
        for number in range(THREADS + 1):
            threading.Thread(
                target=self._run, args=(number == THREADS,), name=f"delete-{number}", daemon=True
            ).start()

    def submit(self, vm: Vm, *, urgent: bool = False) -> None:
        """Delete a VM, once, before all that are not urgent.

        While an earlier deletion of it has not ended, nothing is done but to make that urgent.
        """
        now = self._clock.monotonic()
        with self._changed:
            deletion = self._pending.get(vm.id)
            if deletion is None:
                deletion = self._pending[vm.id] = _Deletion(vm, now, urgent=urgent)
                self._put(now, deletion)
                return
            deletion.withdrawn = False
            if urgent and not deletion.urgent:
                deletion.urgent = True
                if deletion.queued:
                    self._put(now, deletion)

    def send_until(self, until: float) -> None:
        """Say until when deletions may be sent: all that are not withdrawn are still wanted."""
        with self._changed:
            stood_still = self._clock.monotonic() > self._until
            self._until = until
            if stood_still:
                for deletion in self._pending.values():
                    if deletion.queued:
                        # Its deadline counts from its next try.
                        deletion.until = 0
                self._changed.notify_all()
                self._hurried.notify_all()

    def withdraw(self, vm: Vm) -> None:
        """End the deletion of a VM, unless Google gets its call already, or has it.

        If Google refuses that call, the deletion ends then, and is not tried again.
        One whose call has got no answer, and waits to be sent again, is ended, although Google may
        have it.
        """
        with self._changed:
            deletion = self._pending.get(vm.id)
            if deletion and deletion.sent:
                deletion.withdrawn = True
            elif deletion:
                self._end(deletion, WITHDRAWN)

    def _end(self, deletion: _Deletion, failure: Failure | None) -> None:
        with self._changed:
            if self._pending.get(deletion.vm.id) is not deletion:
                return
            del self._pending[deletion.vm.id]
            deletion.queued = False
        self._say(Deleted(deletion.vm, failure))

    def _put(self, when: float, deletion: _Deletion) -> None:
        with self._changed:
            if self._pending.get(deletion.vm.id) is deletion:
                deletion.sent = False
                self._queues[deletion.vm.zone].put(when, deletion)
                self._changed.notify()
                if deletion.urgent:
                    self._hurried.notify()

    def _run(self, only_urgent: bool) -> None:
        while not self._stop.is_set():
            batch = self._next(only_urgent)
            if not batch:
                continue
            try:
                self._request(batch)
            except TooLateError:
                return
            except Exception as error:
                # Each deletion must get its event, and this thread serves the others too.
                log.exception("unexpected error")
                for deletion in batch:
                    self._end(deletion, errors.unexpected(error))
            finally:
                with self._changed:
                    self._requests[batch[0].vm.zone] -= 1
                    self._changed.notify()

    def _next(self, only_urgent: bool) -> list[_Deletion]:
        """The deletions of a zone that are due, at most one request's; [] after a while without.

        Those that nodes wait for come first.
        """
        with self._lock:
            now = self._clock.monotonic()
            changed = self._hurried if only_urgent else self._changed
            if now > self._until:
                self._clock.wait(changed.wait, IDLE_S)
                return []
            most = THREADS_OF_ZONE + only_urgent
            heads = {
                zone: head
                for zone, queue in self._queues.items()
                if self._requests[zone] < most
                for head in [queue.head(now)]
                if not (only_urgent and head[0])
            }
            zone = min(heads, key=lambda zone: heads[zone], default="")
            due_s = heads[zone][1] - now if zone else IDLE_S
            if due_s > 0:
                self._clock.wait(changed.wait, min(due_s, IDLE_S))
                return []
            self._requests[zone] += 1
            return self._queues[zone].take(now, self._most)

    def _request(self, batch: list[_Deletion]) -> None:
        # All before the reading: nothing waits between it and the deletion.
        for bucket in (self._reads, self._bucket):
            # A node may begin to wait for one of them meanwhile.
            bucket.take(math.inf, urgent=lambda: any(one.urgent for one in batch), count=len(batch))
        self._delete(self._same(self._wanted(batch)))

    def _wanted(self, batch: list[_Deletion]) -> list[_Deletion]:
        """Return those that have not been withdrawn; none if they must be judged again first."""
        with self._changed:
            batch = [one for one in batch if self._pending.get(one.vm.id) is one]
            now = self._clock.monotonic()
            if now <= self._until:
                return batch
            for deletion in batch:
                self._put(now, deletion)
            return []

    def _same(self, batch: list[_Deletion]) -> list[_Deletion]:
        """Return those whose VM is there by its id; end the others, or try them again later."""
        began = self._clock.monotonic()
        for deletion in batch:
            deletion.until = deletion.until or began + self._transport.limits.deadline_s
        there = []
        for deletion, answer in self._batch("instances.get", "GET", batch, lambda _: "fields=id"):
            if isinstance(answer, CloudError):
                self._refused(deletion, "instances.get", answer, self._reads)
            elif answer.get("id") == deletion.vm.id:
                there.append(deletion)
            else:
                # Another VM has its name now.
                self._end(deletion, None)
        return there

    def _delete(self, batch: list[_Deletion]) -> None:
        with self._changed:
            batch = self._wanted(batch)
            for deletion in batch:
                deletion.sent = True
        answers = self._batch(
            "instances.delete", "DELETE", batch, lambda one: f"requestId={one.request_id}"
        )
        for deletion, answer in answers:
            try:
                self._answered(deletion, answer)
            except Exception as error:
                # One bad answer must not fail the other deletions of the request.
                log.exception("unexpected error")
                self._end(deletion, errors.unexpected(error))

    def _batch(
        self, method: str, verb: str, batch: list[_Deletion], query: Callable[[_Deletion], str]
    ) -> Iterable[tuple[_Deletion, Answer]]:
        """Send a call for each, and return them with their answers."""
        if not batch:
            return ()
        calls = [
            (verb, f"{self._project}/zones/{vm.zone}/instances/{vm.name}?{query(one)}")
            for one in batch
            for vm in [one.vm]
        ]
        return zip(batch, self._transport.batch(method, calls), strict=True)

    def _answered(self, deletion: _Deletion, answer: Answer) -> None:
        if isinstance(answer, CloudError):
            self._refused(deletion, "instances.delete", answer, self._bucket)
        else:
            self._operations.follow(
                answer, deletion.until, lambda operation: self._ended(deletion, operation)
            )

    def _ended(self, deletion: _Deletion, operation: Operation | None) -> None:
        try:
            failure = errors.of_operation(operation)
        except Exception as error:
            # As above: each deletion must get its event.
            log.exception("unexpected error")
            failure = errors.unexpected(error)
        self._end(deletion, failure)

    def _refused(self, deletion: _Deletion, method: str, error: CloudError, bucket: Bucket) -> None:
        """Try again later, if that may help; else end a deletion."""
        if limited(error):
            bucket.slow()
        again = self._clock.monotonic() + pause_s(deletion.tried)
        if (limited(error) or may_pass(error)) and again < deletion.until:
            message = f"delete {deletion.vm.name}: {error.reason} {error}"
            self._transport.refusals.add(method, error.reason, message)
            deletion.tried += 1
            with self._changed:
                if deletion.withdrawn:
                    self._end(deletion, WITHDRAWN)
                else:
                    self._put(again, deletion)
        else:
            self._end(deletion, _why(error))


def _why(error: CloudError) -> Failure | None:
    return None if error.status == NOT_FOUND else errors.of_call(error)
