"""Circuit breakers: a capacity pool that had no room is not asked for a while; pure.

After a shortage a pool's breaker is open for FIRST_HOLD_S: no insert passes. Then one insert may
try the pool: the breaker is half open. If there is room it is dropped, and the pool is closed
again; if there is none the hold doubles, up to LONGEST_HOLD_S. Nobody needs to reset it.

A pool without room for 50 VMs at once may have room for one: an insert that needs fewer VMs than
were refused passes, until it is refused too.
"""

from dataclasses import dataclass, replace
from enum import Enum

FIRST_HOLD_S = 60.0
LONGEST_HOLD_S = 960.0
"""Room comes back within a quarter of an hour, or not today."""


class BreakerState(Enum):
    """Whether a pool may be asked for VMs."""

    CLOSED = "closed"
    """Calls pass."""
    HALF_OPEN = "half open"
    """One insert tries it; others wait for its result."""
    OPEN = "open"
    """No call passes until the hold is over."""


@dataclass(frozen=True, slots=True)
class Breaker:
    """A pool that had no room when it was asked last. A pool without one is closed: calls pass."""

    hold_s: float
    until: float
    """When it may be tried again."""
    code: str
    """Google's word for the shortage."""
    trial: str = ""
    """Id of the insert that tries it."""
    size: int = 1
    """The fewest VMs at once for which there was no room."""

    def state(self, now: float, need: int) -> BreakerState:
        """Whether it may be asked now for so many VMs at once.

        After the hold the first insert passes; `provision` makes it the trial.
        """
        if need < self.size:
            return BreakerState.CLOSED
        if self.trial:
            return BreakerState.HALF_OPEN
        return BreakerState.CLOSED if now >= self.until else BreakerState.OPEN


def untried(before: Breaker) -> Breaker:
    """The breaker of a pool whose trial said nothing about its room."""
    return replace(before, trial="")


def after_shortage(
    before: Breaker | None, insert: str, code: str, now: float, size: int
) -> Breaker:
    """The breaker of a pool after an insert of at least `size` VMs at once found no room.

    `insert`: its id.
    Inserts that were under way together count as one: only the trial makes the hold longer.
    """
    if before is None:
        return Breaker(FIRST_HOLD_S, now + FIRST_HOLD_S, code, size=size)
    if size < before.size:
        until = max(before.until, now + FIRST_HOLD_S)
        return replace(before, size=size, until=until, code=code)
    if before.trial != insert:
        return before
    hold_s = min(2 * before.hold_s, LONGEST_HOLD_S)
    return Breaker(hold_s, now + hold_s, code, size=before.size)
