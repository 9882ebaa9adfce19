"""Polls operations by lists: per round and scope (zone or region) one call for up to 80 of them.

https://cloud.google.com/compute/docs/api/how-tos/api-requests-responses#handling_api_responses
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from muster.autoscaler.clock import Clock
from muster.autoscaler.compute.api_client import Transport
from muster.autoscaler.compute.rate_limiter import Group
from muster.gcp.api import PAGE, CloudError, scope_of

log = logging.getLogger("muster")

AT_A_TIME = 80
"""Names in one filter: a URL stays below 8 KiB."""
FIELDS = (
    "items(name,status,error/errors(code,message),httpErrorStatusCode,operationGroupId,"
    "instancesBulkInsertOperationMetadata)"
)
LATE_S = 30.0
"""How much later than asked a wait may end."""
IDLE_S = 1.0
"""How long it may take to notice `stop`."""
SLOWER = 1.5
"""Factor from each pause to the next."""

Operation = dict[str, Any]
Ended = Callable[[Operation | None], None]


@dataclass(frozen=True, slots=True)
class _Followed:
    until: float
    ended: Ended


class Operations:
    """Polls operations until they have ended, those of each scope in a thread of its own.

    So a zone that does not answer delays no other. `pauses` are the shortest and the longest
    seconds between two rounds; a new operation resets its scope's pause to the shortest. `urgent`:
    nodes wait for their ends.
    """

    def __init__(
        self,
        transport: Transport,
        project: str,
        pauses: tuple[float, float],
        stop: threading.Event,
        *,
        clock: Clock,
        urgent: bool = True,
    ) -> None:
        self._transport = transport
        self._project = project
        self._pauses = pauses
        self._stop = stop
        self._clock = clock
        self._urgent = urgent
        self._lock = threading.Lock()
        self._scopes: dict[str, _Scope] = {}
        """As `zones/Z`."""

    def follow(self, operation: Operation, until: float, ended: Ended) -> None:
        """Call `ended` with the operation once it is done; with None if it is not by `until`.

        It is called from another thread and must not block.
        """
        if operation.get("status") == "DONE":
            ended(operation)
            return
        if self._stop.is_set():
            ended(None)
            return
        place = scope_of(operation)
        with self._lock:
            if place not in self._scopes:
                self._scopes[place] = _Scope(
                    self._transport,
                    f"projects/{self._project}/{place}",
                    self._pauses,
                    self._stop,
                    clock=self._clock,
                    urgent=self._urgent,
                )
            scope = self._scopes[place]
        scope.follow(operation["name"], _Followed(until, ended))

    def wait(self, operation: Operation, until: float) -> Operation | None:
        """Return the operation when it is done; None: not by `until`."""
        done = threading.Event()
        result: list[Operation | None] = [None]

        def ended(operation: Operation | None) -> None:
            result[0] = operation
            done.set()

        self.follow(operation, until, ended)
        left_s = max(0, until - self._clock.monotonic())
        self._clock.wait(done.wait, left_s + LATE_S)
        return result[0]


class _Scope:
    """Polls the operations of a zone, a region or of the project, in its own thread."""

    def __init__(
        self,
        transport: Transport,
        path: str,
        pauses: tuple[float, float],
        stop: threading.Event,
        *,
        clock: Clock,
        urgent: bool,
    ) -> None:
        self._transport = transport
        self._path = path
        self._shortest, self._longest = pauses
        self._pause = self._shortest
        self._stop = stop
        self._clock = clock
        self._urgent = urgent
        self._changed = threading.Condition()
        self._followed: dict[str, _Followed] = {}
        """By the operation's name."""
        threading.Thread(target=self._run, name=f"operations of {path}", daemon=True).start()

    def follow(self, name: str, followed: _Followed) -> None:
        with self._changed:
            self._followed[name] = followed
            self._pause = self._shortest
            self._changed.notify()

    def _run(self) -> None:
        while not self._stop.is_set():
            with self._changed:
                if not self._followed:
                    self._clock.wait(self._changed.wait, IDLE_S)
                    continue
                pause = self._pause
                self._pause = min(self._pause * SLOWER, self._longest)
            self._clock.wait(self._stop.wait, pause)
            with self._changed:
                names = list(self._followed)
            for at in range(0, len(names), AT_A_TIME):
                try:
                    self._poll(names[at : at + AT_A_TIME])
                except Exception:
                    # All waiting threads depend on this one; the next round polls again.
                    log.exception("unexpected error")
        # Threads that still wait would keep the process from ending.
        with self._changed:
            left = list(self._followed.values())
            self._followed.clear()
        for followed in left:
            followed.ended(None)

    def _poll(self, names: list[str]) -> None:
        now = self._clock.monotonic()
        kind = self._path.split("/")[2].removesuffix("s")
        done: dict[str, Operation] = {}
        try:
            page = self._transport.call(
                f"{kind}Operations.list",
                "GET",
                f"{self._path}/operations",
                # One try: the next round is the retry.
                until=now + self._transport.limits.try_s,
                groups=(Group.LIST,),
                query={
                    "filter": " OR ".join(f"(name={name})" for name in names),
                    "fields": FIELDS,
                    "maxResults": PAGE,
                },
                urgent=self._urgent,
            )
            # One that isn't listed yet is polled again.
            done = {
                operation["name"]: operation
                for operation in page.get("items", [])
                if operation.get("status") == "DONE"
            }
        except CloudError as error:
            message = f"operations of {self._path}: {error.reason} {error}"
            self._transport.refusals.add(self._path, error.reason, message)
        ended: list[tuple[Ended, Operation | None]] = []
        with self._changed:
            for name in names:
                if name in done or self._followed[name].until < now:
                    ended.append((self._followed.pop(name).ended, done.get(name)))
        for call, operation in ended:
            try:
                call(operation)
            except Exception:
                # The others that wait must hear of their ends.
                log.exception("unexpected error")
