"""Operations are followed by lists: one call a round and place for up to 80 of them.

https://cloud.google.com/compute/docs/api/how-tos/api-requests-responses#handling_api_responses
"""

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from muster.autoscaler.compute.http import Transport
from muster.autoscaler.compute.rate_limiter import Group
from muster.gcp.api import PAGE, CloudError, last

log = logging.getLogger("muster")

AT_A_TIME = 80
"""Names in one filter: an address stays below 8 KiB."""
FIELDS = (
    "items(name,status,error/errors(code,message),httpErrorStatusCode,operationGroupId,"
    "instancesBulkInsertOperationMetadata)"
)
LATE_S = 30.0
"""How much later than asked the end of a wait may be told."""
IDLE_S = 1.0
"""How long the end of everything may go unnoticed."""
SLOWER = 1.5
"""How much longer each pause is than the one before."""

Operation = dict[str, Any]
Ended = Callable[[Operation | None], None]


@dataclass(frozen=True, slots=True)
class _Followed:
    until: float
    ended: Ended


class Operations:
    """Looks at operations until they have ended.

    `pauses` are the shortest and the longest seconds between two rounds; a new operation makes
    them short again.
    """

    def __init__(
        self,
        transport: Transport,
        project: str,
        pauses: tuple[float, float],
        stop: threading.Event,
    ) -> None:
        self._transport = transport
        self._project = project
        self._shortest, self._longest = pauses
        self._pause = self._shortest
        self._stop = stop
        self._changed = threading.Condition()
        self._followed: dict[str, dict[str, _Followed]] = defaultdict(dict)
        """Place, as `zones/Z` -> name -> who waits."""
        threading.Thread(target=self._run, name="operations", daemon=True).start()

    def follow(self, operation: Operation, until: float, ended: Ended) -> None:
        """Call `ended` with the operation once it is done; None: not by `until`.

        It is called from another thread and must not wait for anything.
        """
        if operation.get("status") == "DONE":
            ended(operation)
            return
        if self._stop.is_set():
            ended(None)
            return
        with self._changed:
            self._followed[place(operation)][operation["name"]] = _Followed(until, ended)
            self._pause = self._shortest
            self._changed.notify()

    def wait(self, operation: Operation, until: float) -> Operation | None:
        """Return the operation when it is done; None: not by `until`."""
        done = threading.Event()
        found: list[Operation | None] = [None]

        def ended(operation: Operation | None) -> None:
            found[0] = operation
            done.set()

        self.follow(operation, until, ended)
        done.wait(max(0, until - time.monotonic()) + LATE_S)
        return found[0]

    def _run(self) -> None:
        while not self._stop.is_set():
            with self._changed:
                if not any(self._followed.values()):
                    self._changed.wait(IDLE_S)
                    continue
                pause = self._pause
                self._pause = min(self._pause * SLOWER, self._longest)
            self._stop.wait(pause)
            with self._changed:
                rounds = [
                    (where, names[at : at + AT_A_TIME])
                    for where, followed in self._followed.items()
                    for names in [list(followed)]
                    for at in range(0, len(names), AT_A_TIME)
                ]
            for where, names in rounds:
                try:
                    self._look(where, names)
                except Exception:
                    # All who wait depend on this thread; the next round looks again.
                    log.exception("not foreseen")
        # Whoever waits would keep the process from ending.
        with self._changed:
            left = [each.ended for places in self._followed.values() for each in places.values()]
            self._followed.clear()
        for call in left:
            call(None)

    def _look(self, where: str, names: list[str]) -> None:
        now = time.monotonic()
        done: dict[str, Operation] = {}
        try:
            page = self._transport.call(
                f"{where.partition('s/')[0]}Operations.list",
                "GET",
                f"projects/{self._project}/{where}/operations",
                # One try: the next round is the other one.
                until=now + self._transport.limits.try_s,
                groups=(Group.LIST,),
                query={
                    "filter": " OR ".join(f"(name={name})" for name in names),
                    "fields": FIELDS,
                    "maxResults": PAGE,
                },
            )
            found = page.get("items", [])
            # One that isn't listed yet is looked for again.
            done = {each["name"]: each for each in found if each.get("status") == "DONE"}
        except CloudError as error:
            log.warning("operations in %s: %s", where, error)
        ended: list[tuple[Ended, Operation | None]] = []
        with self._changed:
            followed = self._followed[where]
            for name in names:
                if name in done or followed[name].until < now:
                    ended.append((followed.pop(name).ended, done.get(name)))
        for call, operation in ended:
            call(operation)


def place(operation: Operation) -> str:
    """Where an operation is found: `zones/Z` or `regions/R`."""
    for collection in ("zone", "region"):
        if collection in operation:
            return f"{collection}s/{last(operation[collection])}"
    return "global"
