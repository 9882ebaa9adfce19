"""A faster clock for tests that wait: the product's own seconds pass in a part of a second."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from muster.autoscaler.clock import Clock
from muster.autoscaler.compute.api_client import Limits
from muster_sandbox.fakecloud.clock import LoopClock, Task

SPEED = 15
DRIVER_LIMITS = Limits(try_s=30)
"""A busy machine doesn't answer faster."""
T = TypeVar("T")


def since_boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Start(NamedTuple):
    """The real time from which a clock is fast."""

    monotonic: float
    now: float


def start_now() -> Start:
    return Start(since_boot(), time.time())


@dataclass
class FastClock(Clock):
    """A clock that runs `speed` times as fast as the machine's, from its `start` on.

    Clocks with the same start show the same time, in other processes too.
    """

    start: Start = field(default_factory=start_now)
    speed: float = SPEED
    set_s: float = 0
    """By how much the system clock was set forward."""
    suspended_s: float = 0
    """How long the machine was suspended: these seconds have passed at once."""

    def now(self) -> float:
        return self.start.now + self._passed() + self.set_s

    def monotonic(self) -> float:
        return self.start.monotonic + self._passed()

    def wait(self, waits: Callable[[float], T], seconds: float) -> T:
        return super().wait(waits, seconds / self.speed)

    def sleep(self, seconds: float) -> None:
        self.wait(time.sleep, seconds)

    def _passed(self) -> float:
        return (since_boot() - self.start.monotonic) * self.speed + self.suspended_s


class FastCloudClock(LoopClock):
    """A fakecloud's clock that is as fast as another."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: FastClock) -> None:
        super().__init__(loop)
        self.clock = clock

    def now(self) -> float:
        return self.clock.now()

    def later(self, seconds: float, task: Task) -> None:
        super().later(seconds / self.clock.speed, task)
