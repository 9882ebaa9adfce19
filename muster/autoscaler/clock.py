"""The daemon's clock: all its parts get one, and tests hand over another.

Intervals, ages and deadlines are counted by `monotonic`, which nobody sets. `now` is only for what
people read, and for times that come from another machine.
"""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Clock:
    """The clock of the machine."""

    def now(self) -> float:
        """Seconds since the epoch; somebody, or NTP, may set it forward or back."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds since the boot, also those for which the machine was suspended.

        It goes on when the daemon restarts: https://man7.org/linux/man-pages/man2/clock_gettime.2.html
        """
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def wait(self, waits: Callable[[float], T], seconds: float) -> T:
        """Let `waits`, such as an event's `wait`, wait for at most so many seconds."""
        return waits(max(0.0, seconds))
