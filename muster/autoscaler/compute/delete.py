"""Deleting VMs by the thousand: a few calls in each HTTP request, at the rate that is allowed.

Google has no bulk deletion of VMs that are in no managed group.
"""

import heapq
import logging
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from muster.autoscaler.compute import errors
from muster.autoscaler.compute.http import Transport, limited, may_pass, pause_s
from muster.autoscaler.compute.operations import Operations
from muster.autoscaler.compute.rate_limiter import Group, TooLateError
from muster.autoscaler.reconcile.model import Deleted, Failure, Vm
from muster.gcp.api import NOT_FOUND, CloudError

log = logging.getLogger("muster")

THREADS = 4
"""Requests under way: one that hangs must not stop the others."""
IDLE_S = 1.0
"""How long the end of everything may go unnoticed."""


@dataclass
class _Deletion:
    vm: Vm
    request_id: uuid.UUID = field(default_factory=uuid.uuid4)
    """The same for each try, which may follow one whose answer was lost."""
    until: float = 0
    """Counts from its first try: thousands may be before it."""
    tried: int = 0


class Deletes:
    """Deletes VMs; `say` is called with each one's event."""

    def __init__(
        self,
        transport: Transport,
        operations: Operations,
        project: str,
        say: Callable[[Deleted], None],
        stop: threading.Event,
    ) -> None:
        self._transport = transport
        self._bucket = transport.buckets[Group.MUTATE]
        self._most = max(1, transport.limits.burst // 2)
        """Calls of one request."""
        self._operations = operations
        self._project = project
        self._say = say
        self._stop = stop
        self._changed = threading.Condition()
        self._pending: set[tuple[str, str]] = set()
        """Name and zone of those that have not ended."""
        self._order = count()
        self._waiting: list[tuple[float, int, _Deletion]] = []
        """(when to try, number, deletion), a heap."""
        for number in range(THREADS):
            threading.Thread(target=self._run, name=f"delete-{number}", daemon=True).start()

    def submit(self, vm: Vm) -> None:
        """Have a VM deleted. One that waits for its turn or its end is not asked for twice.

        A second call could come after the end of the first, and meet a new VM of the name.
        """
        with self._changed:
            if (vm.name, vm.zone) in self._pending:
                return
            self._pending.add((vm.name, vm.zone))
        self._put(0, _Deletion(vm))

    def _end(self, vm: Vm, failure: Failure | None) -> None:
        with self._changed:
            self._pending.discard((vm.name, vm.zone))
        self._say(Deleted(vm.name, vm.zone, failure))

    def _put(self, when: float, deletion: _Deletion) -> None:
        with self._changed:
            heapq.heappush(self._waiting, (when, next(self._order), deletion))
            self._changed.notify()

    def _run(self) -> None:
        while not self._stop.is_set():
            lot = self._next()
            if lot:
                try:
                    self._bucket.take(float("inf"), urgent=False, count=len(lot))
                except TooLateError:
                    return
                try:
                    self._delete(lot)
                except Exception as error:
                    # Whatever it is: each deletion has its event, and this thread serves all.
                    log.exception("not foreseen")
                    for each in lot:
                        self._end(each.vm, errors.unforeseen(error))

    def _next(self) -> list[_Deletion]:
        """Those whose time has come, at most a request full; [] after a while without any."""
        with self._changed:
            now = time.monotonic()
            if not self._waiting or self._waiting[0][0] > now:
                due = self._waiting[0][0] - now if self._waiting else IDLE_S
                self._changed.wait(min(due, IDLE_S))
                now = time.monotonic()
            lot: list[_Deletion] = []
            while self._waiting and self._waiting[0][0] <= now and len(lot) < self._most:
                lot.append(heapq.heappop(self._waiting)[2])
            return lot

    def _delete(self, lot: list[_Deletion]) -> None:
        began = time.monotonic()
        calls = []
        for each in lot:
            each.until = each.until or began + self._transport.limits.deadline_s
            where = f"{self._project}/zones/{each.vm.zone}/instances/{each.vm.name}"
            calls.append(("DELETE", f"{where}?requestId={each.request_id}"))
        for each, found in zip(lot, self._transport.batch("instances.delete", calls), strict=True):
            try:
                self._answered(each, found)
            except Exception as error:
                # What one answer holds must not be laid on the others of the request.
                log.exception("not foreseen")
                self._end(each.vm, errors.unforeseen(error))

    def _answered(self, deletion: _Deletion, found: dict[str, Any] | CloudError) -> None:
        vm = deletion.vm
        if not isinstance(found, CloudError):
            self._operations.follow(
                found,
                deletion.until,
                lambda operation: self._end(vm, errors.of_operation(operation)),
            )
            return
        if limited(found):
            self._bucket.slow()
        again = time.monotonic() + pause_s(deletion.tried)
        if (limited(found) or may_pass(found)) and again < deletion.until:
            log.warning("delete %s: %s %s", vm.name, found.reason, found)
            deletion.tried += 1
            self._put(again, deletion)
        else:
            self._end(vm, _why(found))


def _why(error: CloudError) -> Failure | None:
    return None if error.status == NOT_FOUND else errors.of_call(error)
