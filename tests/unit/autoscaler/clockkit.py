"""A clock that a test sets."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from muster.autoscaler.clock import Clock

T = TypeVar("T")


@dataclass
class SetClock(Clock):
    """`since_boot` and `date` are what it shows."""

    since_boot: float = 1000.0
    date: float = 1_790_000_000.0

    def now(self) -> float:
        return self.date

    def monotonic(self) -> float:
        return self.since_boot

    def passes(self, seconds: float) -> None:
        """Let time pass."""
        self.since_boot += seconds
        self.date += seconds

    def wait(self, waits: Callable[[float], T], seconds: float) -> T:  # noqa: ARG002 (Clock's)
        """Wait for nothing: what is to come is there."""
        return waits(0)
