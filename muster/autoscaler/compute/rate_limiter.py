"""Rate limits of calls to Google: token buckets, which slow down when Google refuses a call.

https://cloud.google.com/compute/api-quota: each group of methods has its own limit per minute.
Calls above it get 403 rateLimitExceeded until the next minute begins.
"""

import threading
from collections.abc import Callable
from enum import StrEnum
from functools import partial

from muster.autoscaler.clock import Clock

LEAST_PACE = 1 / 8
RECOVERY_S = 60.0
"""Seconds from zero to the full pace: Google refills each minute."""
LOOK_S = 1.0
"""How long it may take to notice that a call is urgent by now, or that the driver stops."""


class Group(StrEnum):
    """Methods that share a limit."""

    MUTATE = "mutate"
    READ = "read"
    LIST = "list"
    BULK = "bulk"
    """In addition to MUTATE: at most 20 a second.
    https://cloud.google.com/compute/docs/troubleshooting/troubleshooting-bulk-vm-creation"""


class TooLateError(Exception):
    """There was no token in time."""


class Bucket:
    """A token bucket; each call takes one token, also if many are in one HTTP request.

    Calls that jobs wait for are urgent. Others leave half of the bucket to them, so that thousands
    of deletions don't delay an insert.
    """

    def __init__(
        self,
        per_second: float,
        burst: int,
        stop: threading.Event,
        *,
        clock: Clock,
    ) -> None:
        self.per_second = per_second
        self.burst = burst
        self.waited_s = 0.0
        """Seconds that all calls together have waited here."""
        self._stop = stop
        self._clock = clock
        self._tokens = float(burst)
        self._pace = 1.0
        """Part of the rate in use now."""
        self._counted = self._slowed = clock.monotonic()
        self._lock = threading.Lock()
        # One thread of each kind waits for a token, the others for this lock: to wake a thread
        # that gets no token costs more than the call.
        self._turn = {True: threading.Lock(), False: threading.Lock()}

    def take(
        self, until: float, *, urgent: bool | Callable[[], bool] = True, count: int = 1
    ) -> None:
        """Wait for tokens; `until` by Clock.monotonic. Many are taken in parts.

        Those of one call of this function are taken together: two that wait don't end at once.
        `urgent` is a function where one that is not urgent may become it meanwhile.

        Raises:
            TooLateError: there are none by then, or the driver stops.

        """
        began = self._clock.monotonic()
        is_urgent = urgent if callable(urgent) else partial(bool, urgent)
        turn = self._wait_for_turn(until, is_urgent)
        try:
            # Less than the half that may be taken: what comes while a thread is late is not lost.
            most = max(1, self.burst // 2 - 1)
            for taken in range(0, count, most):
                part = min(most, count - taken)
                while missing := self._missing(part, 0 if is_urgent() else self.burst // 2):
                    late = self._clock.monotonic() + missing > until
                    if late or self._clock.wait(self._stop.wait, min(missing, LOOK_S)):
                        raise TooLateError
        finally:
            self.waited_s += self._clock.monotonic() - began
            turn.release()

    def _wait_for_turn(self, until: float, is_urgent: Callable[[], bool]) -> threading.Lock:
        """Return the lock of those that are as urgent, when this thread has it."""
        while True:
            turn = self._turn[is_urgent()]
            left_s = until - self._clock.monotonic()
            if self._acquire(turn, min(left_s, LOOK_S)):
                return turn
            if left_s <= LOOK_S or self._stop.is_set():
                raise TooLateError

    def _acquire(self, turn: threading.Lock, seconds: float) -> bool:
        return self._clock.wait(lambda seconds: turn.acquire(timeout=seconds), seconds)

    def _missing(self, count: int, leave: int) -> float:
        """Seconds until there may be tokens; 0: the tokens are taken."""
        with self._lock:
            self._refill()
            short = count + leave - self._tokens
            if short > 0:
                return short / (self.per_second * self._pace)
            self._tokens -= count
            return 0

    def _refill(self) -> None:
        now = self._clock.monotonic()
        passed, self._counted = now - self._counted, now
        self._pace = min(1.0, self._pace + passed / RECOVERY_S)
        grown = self._tokens + passed * self.per_second * self._pace
        self._tokens = min(float(self.burst), grown)

    def slow(self) -> None:
        """Halve the pace, as Google refused a call for its rate; it recovers within a minute."""
        with self._lock:
            self._refill()
            self._tokens = min(self._tokens, 0)
            # Calls that were sent together are refused together: they count once.
            if self._counted - self._slowed > 1 or self._pace == 1:
                self._slowed = self._counted
                self._pace = max(LEAST_PACE, self._pace / 2)

    @property
    def left(self) -> int:
        """How many calls may be sent now without waiting."""
        with self._lock:
            self._refill()
            return max(0, int(self._tokens))

    @property
    def pace(self) -> float:
        """The part of its rate that it allows now."""
        with self._lock:
            self._refill()
            return self._pace
