"""Logs what goes wrong again and again, within bounds: each kind once, then its number."""

import logging
import threading
from dataclasses import dataclass

from muster.autoscaler.clock import Clock

log = logging.getLogger("muster")

EVERY_S = 600.0
"""How long a kind is only counted after it was logged."""


@dataclass
class _Kind:
    logged_at: float
    more: int = 0
    """How often it has come since."""


class Refusals:
    """Log of calls that Google refuses or leaves without an answer; thread-safe.

    A kind has at most 144 lines a day, and there are as many kinds as methods times reasons.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._kinds: dict[tuple[str, str], _Kind] = {}

    def add(self, method: str, reason: str, message: str) -> None:
        """Log one of a kind, if none was logged lately; `message`: which call, and why."""
        now = self._clock.monotonic()
        with self._lock:
            kind = self._kinds.get((method, reason))
            if kind and now < kind.logged_at + EVERY_S:
                kind.more += 1
                return
            self._kinds[method, reason] = _Kind(now)
        if kind and kind.more:
            message = f"{message} ({kind.more} more such errors in {now - kind.logged_at:.0f} s)"
        log.warning("%s", message)
