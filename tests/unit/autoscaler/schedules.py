"""Schedules of randomized fault-injection tests: which faults occur, how often; what did occur.

Hypothesis draws them. A schedule determines the whole run: `SimulatedRun(Schedule(seed=...,
rates={...}))` repeats it. Where one fails, hypothesis looks for the fewest classes of faults with
which it still fails.
"""

import os
import random
import secrets
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from hypothesis import strategies as st

_RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID", "") or secrets.token_hex(4)
SEED = int(os.environ.get("MUSTER_SEED") or int(_RUN[:7], 16))
"""Seed of this run's schedules, in all its processes; MUSTER_SEED takes that of another run."""
RATES = (0.02, 0.1)


@dataclass(frozen=True)
class Schedule:
    """`rates`: class of faults -> how probable it is where it may happen; without: never."""

    seed: int
    rates: Mapping[str, float] = field(default_factory=dict)


@dataclass
class Faults:
    """Decides which faults occur, and counts them."""

    schedule: Schedule
    counts: Counter[str] = field(default_factory=Counter)
    ended: bool = False
    """No fault occurs any more."""

    def __post_init__(self) -> None:
        self.random = random.Random(self.schedule.seed)  # noqa: S311

    def strike(self, kind: str, part: float = 1) -> bool:
        """Whether a fault occurs here and now; `part` makes it rarer."""
        rate = self.schedule.rates.get(kind)
        # Asked for in each second; most kinds have no rate.
        if not rate or self.ended or self.random.random() >= rate * part:
            return False
        self.counts[kind] += 1
        return True


def schedules(kinds: Collection[str]) -> st.SearchStrategy[Schedule]:
    """Schedules with any of these classes of faults."""
    rates = {kind: st.sampled_from(RATES) for kind in kinds}
    return st.builds(
        Schedule,
        seed=st.integers(0, 2**32 - 1),
        rates=st.fixed_dictionaries({}, optional=rates),
    )
