"""Deletes thousands of VMs: a few calls in each HTTP request, within the rate limit.

Google has no bulk deletion of VMs outside a managed instance group.

A VM is deleted by its name, and only if the VM of that name has its id when it is read directly
before. Google accepts an id in place of the name; the controller's rights are bound to names, and
whether they hold for an id can't be shown without Google. So there is a window, from that reading
to the deletion (two HTTP requests, mostly below a second), in which the VM would have to end by
itself and another one of its name be made.
"""

import heapq
import logging
import threading
import uuid
from collections.abc import Callable
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

THREADS = 4
"""Requests at the same time: one that hangs must not stop the others."""
IDLE_S = 1.0
"""How long it may take to notice `stop`."""


@dataclass
class _Deletion:
    vm: Vm
    request_id: uuid.UUID = field(default_factory=uuid.uuid4)
    """The same for each try: the answer to an earlier one may have been lost."""
    urgent: bool = False
    """A node waits for it."""
    queued: bool = False
    """It waits to be sent."""
    until: float = 0
    """Deadline, from the first try: thousands may wait before it."""
    tried: int = 0


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
        self._most = max(1, transport.limits.burst // 2)
        """Calls in one HTTP request."""
        self._operations = operations
        self._project = project
        self._say = say
        self._stop = stop
        self._clock = clock
        self._changed = threading.Condition()
        self._reads = transport.buckets[Group.READ]
        self._pending: dict[str, _Deletion] = {}
        """VM's id -> its deletion, until that has ended."""
        self._order = count()
        self._waiting: dict[bool, list[tuple[float, int, _Deletion]]] = {True: [], False: []}
        """Urgent or not -> (when to try, number, deletion), a heap."""
        for number in range(THREADS):
            threading.Thread(target=self._run, name=f"delete-{number}", daemon=True).start()

    def submit(self, vm: Vm, *, urgent: bool = False) -> None:
        """Delete a VM, once, before all that are not urgent.

        While an earlier deletion of it has not ended, nothing is done but to make that urgent.
        """
        with self._changed:
            deletion = self._pending.get(vm.id)
            if deletion is None:
                deletion = self._pending[vm.id] = _Deletion(vm, urgent=urgent)
                self._put(0, deletion)
            elif urgent and not deletion.urgent:
                deletion.urgent = True
                if deletion.queued:
                    # What is in the other heap is passed over.
                    self._put(0, deletion)

    def _end(self, vm: Vm, failure: Failure | None) -> None:
        with self._changed:
            if vm.id not in self._pending:
                return
            del self._pending[vm.id]
        self._say(Deleted(vm, failure))

    def _put(self, when: float, deletion: _Deletion) -> None:
        with self._changed:
            deletion.queued = True
            heapq.heappush(self._waiting[deletion.urgent], (when, next(self._order), deletion))
            self._changed.notify()

    def _run(self) -> None:
        while not self._stop.is_set():
            lot = self._next()
            if lot:
                try:
                    # Both before the reading: nothing waits between it and the deletion.
                    urgent = lot[0].urgent
                    self._reads.take(float("inf"), urgent=urgent, count=len(lot))
                    self._bucket.take(float("inf"), urgent=urgent, count=len(lot))
                except TooLateError:
                    return
                try:
                    self._delete(self._same(lot))
                except Exception as error:
                    # Each deletion must get its event, and this thread serves the others too.
                    log.exception("unexpected error")
                    for deletion in lot:
                        self._end(deletion.vm, errors.unexpected(error))

    def _next(self) -> list[_Deletion]:
        """The deletions that are due, at most one request's; [] after a while without any.

        Those that nodes wait for come first.
        """
        with self._changed:
            heads = [heap[0][0] for heap in self._waiting.values() if heap]
            due = min(heads, default=float("inf")) - self._clock.monotonic()
            if due > 0:
                self._clock.wait(self._changed.wait, min(due, IDLE_S))
            now = self._clock.monotonic()
            lot: list[_Deletion] = []
            for urgent, heap in self._waiting.items():
                while heap and heap[0][0] <= now and len(lot) < self._most:
                    deletion = heapq.heappop(heap)[2]
                    if deletion.queued and deletion.urgent is urgent:
                        deletion.queued = False
                        lot.append(deletion)
            return lot

    def _same(self, lot: list[_Deletion]) -> list[_Deletion]:
        """Return those whose VM is there by its id; end the others, or try them again later."""
        began = self._clock.monotonic()
        for deletion in lot:
            deletion.until = deletion.until or began + self._transport.limits.deadline_s
        answers = self._transport.batch(
            "instances.get", [("GET", f"{self._path(one.vm)}?fields=id") for one in lot]
        )
        there = []
        for deletion, answer in zip(lot, answers, strict=True):
            if isinstance(answer, CloudError):
                self._refused(deletion, answer, self._reads)
            elif answer.get("id") == deletion.vm.id:
                there.append(deletion)
            else:
                # Another VM has its name now.
                self._end(deletion.vm, None)
        return there

    def _delete(self, lot: list[_Deletion]) -> None:
        if not lot:
            return
        answers = self._transport.batch(
            "instances.delete",
            [("DELETE", f"{self._path(one.vm)}?requestId={one.request_id}") for one in lot],
        )
        for deletion, answer in zip(lot, answers, strict=True):
            try:
                self._answered(deletion, answer)
            except Exception as error:
                # One bad answer must not fail the other deletions of the request.
                log.exception("unexpected error")
                self._end(deletion.vm, errors.unexpected(error))

    def _path(self, vm: Vm) -> str:
        return f"{self._project}/zones/{vm.zone}/instances/{vm.name}"

    def _answered(self, deletion: _Deletion, answer: dict[str, Any] | CloudError) -> None:
        vm = deletion.vm
        if isinstance(answer, CloudError):
            self._refused(deletion, answer, self._bucket)
        else:
            self._operations.follow(
                answer, deletion.until, lambda operation: self._ended(vm, operation)
            )

    def _ended(self, vm: Vm, operation: Operation | None) -> None:
        try:
            failure = errors.of_operation(operation)
        except Exception as error:
            log.exception("unexpected error")
            failure = errors.unexpected(error)
        self._end(vm, failure)

    def _refused(self, deletion: _Deletion, error: CloudError, bucket: Bucket) -> None:
        """Try again later, if that may help; else end a deletion."""
        if limited(error):
            bucket.slow()
        again = self._clock.monotonic() + pause_s(deletion.tried)
        if (limited(error) or may_pass(error)) and again < deletion.until:
            log.warning("delete %s: %s %s", deletion.vm.name, error.reason, error)
            deletion.tried += 1
            self._put(again, deletion)
        else:
            self._end(deletion.vm, _why(error))


def _why(error: CloudError) -> Failure | None:
    return None if error.status == NOT_FOUND else errors.of_call(error)
