"""Virtual time: what is due when, and a clock for the daemon that shows it."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import TypeVar

from muster.autoscaler.clock import Clock

T = TypeVar("T")
EPOCH = 1_790_000_000.0
"""Date of the time 0."""


@dataclass
class Agenda:
    """What is to be done, by time; what was put first comes first."""

    entries: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    numbers: "count[int]" = field(default_factory=count)

    def at(self, when: float, do: Callable[[], None]) -> None:
        """Do something at a time."""
        heapq.heappush(self.entries, (when, next(self.numbers), do))

    @property
    def next(self) -> float:
        """When something is due."""
        return self.entries[0][0] if self.entries else float("inf")

    def run_next(self) -> None:
        """Do what is due first."""
        heapq.heappop(self.entries)[2]()


@dataclass
class VirtualClock(Clock):
    """The clock of a run; `skew_s`: how far the system clock was set forward."""

    time: float = 1000.0
    skew_s: float = 0.0

    def now(self) -> float:
        return EPOCH + self.time + self.skew_s

    def monotonic(self) -> float:
        return self.time

    def wait(self, waits: Callable[[float], T], seconds: float) -> T:  # noqa: ARG002 (Clock's)
        """Wait for nothing: a run makes the daemon's steps when they are due."""
        return waits(0)
