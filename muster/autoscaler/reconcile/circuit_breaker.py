"""Circuit breakers: a market that had no room is left alone for a while; pure.

After a shortage a market is shut for FIRST_HOLD_S; then one ask may try it. Has it room, the
breaker is forgotten; has it none, the hold doubles, up to LONGEST_HOLD_S. Nobody needs to clear it.

A market that had no room for 50 VMs at once may have some for one: who needs fewer than were
refused may ask all the same, until that is refused too.
"""

from dataclasses import dataclass, replace
from enum import Enum

FIRST_HOLD_S = 60.0
LONGEST_HOLD_S = 960.0
"""Room comes back within a quarter of an hour, or not today."""


class Gate(Enum):
    """Whether a market may be asked."""

    OPEN = "open"
    ON_TRIAL = "an ask is trying it"
    SHUT = "shut"


@dataclass(frozen=True, slots=True)
class Breaker:
    """A market that had no room when it was asked last. A market without one is open."""

    hold_s: float
    until: float
    """When it may be tried again."""
    code: str
    """Google's word for the shortage."""
    trial: str = ""
    """The ask that tries it."""
    size: int = 1
    """The fewest VMs at once for which there was no room."""

    def gate(self, now: float, need: int) -> Gate:
        """Whether it may be asked now for so many VMs at once."""
        if need < self.size:
            return Gate.OPEN
        if self.trial:
            return Gate.ON_TRIAL
        return Gate.OPEN if now >= self.until else Gate.SHUT


def untried(before: Breaker) -> Breaker:
    """The breaker of a market whose trial said nothing about its room."""
    return replace(before, trial="")


def after_shortage(before: Breaker | None, ask: str, code: str, now: float, size: int) -> Breaker:
    """The breaker of a market after an ask for at least `size` VMs at once found no room.

    Asks that were under way together count as one: only the trial makes the hold longer.
    """
    if before is None:
        return Breaker(FIRST_HOLD_S, now + FIRST_HOLD_S, code, size=size)
    if size < before.size:
        until = max(before.until, now + FIRST_HOLD_S)
        return replace(before, size=size, until=until, code=code)
    if before.trial != ask:
        return before
    hold_s = min(2 * before.hold_s, LONGEST_HOLD_S)
    return Breaker(hold_s, now + hold_s, code, size=before.size)
