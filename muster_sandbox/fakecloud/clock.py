"""Time and scheduled tasks: on the event loop, or by hand in tests."""

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Protocol

# Compute Engine writes times with California's offset.
PACIFIC = timezone(timedelta(hours=-8))

Task = Callable[[], None]


class Clock(Protocol):
    """The time, and tasks that run later."""

    def now(self) -> float:
        """Seconds since the epoch."""

    def later(self, seconds: float, task: Task) -> None:
        """Run `task` on the cloud's thread in `seconds`."""

    def report(self, task: Task) -> None:
        """Run `task` on the cloud's thread soon; may be called from any thread."""


class LoopClock:
    """The system's time; tasks run on an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def later(self, seconds: float, task: Task) -> None:
        """Run `task` in `seconds`."""
        self.loop.call_later(seconds, task)

    def report(self, task: Task) -> None:
        """Run `task` soon."""
        self.loop.call_soon_threadsafe(task)


class ManualClock:
    """A time that only `advance` changes: tests see each state without waiting."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self._now = now
        self._order = itertools.count()
        self._tasks: list[tuple[float, int, Task]] = []

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._now

    def later(self, seconds: float, task: Task) -> None:
        """Run `task` when the time has advanced by `seconds`."""
        heapq.heappush(self._tasks, (self._now + seconds, next(self._order), task))

    def report(self, task: Task) -> None:
        """Run `task` with the next `advance`."""
        self.later(0, task)

    def advance(self, seconds: float) -> None:
        """Advance the time; tasks that are due run in order."""
        end = self._now + seconds
        while self._tasks and self._tasks[0][0] <= end:
            self._now, _, task = heapq.heappop(self._tasks)
            task()
        self._now = end


def timestamp(seconds: float) -> str:
    """RFC 3339 with milliseconds, as in creationTimestamp: 2026-11-21T09:40:29.123-08:00."""
    return datetime.fromtimestamp(seconds, PACIFIC).isoformat(timespec="milliseconds")


def utc_timestamp(seconds: float) -> str:
    """RFC 3339 in UTC, as the other services write it: 2026-11-21T17:40:29.123000Z."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
