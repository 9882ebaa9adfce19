"""The oracle of the schedules finds each planted bug, and nothing in the same run without it."""

import random
import re
from collections.abc import Callable

import pytest
from planted_bugs import PLANTED, Planted
from schedules import RATES, Schedule
from simkit import FAULTS

from muster.autoscaler import daemon, readers
from muster.autoscaler.reconcile.reconcile import reconcile

pytestmark = pytest.mark.usefixtures("quiet")
WITHIN = 200
"""Schedules within which each planted bug must be found."""


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(
    bug: type[Planted],
    record_property: Callable[[str, object], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The same schedules in each run.
    chance = random.Random(0)  # noqa: S311
    for name, value in bug.constants.items():
        monkeypatch.setattr(readers, name, value)
    for number in range(WITHIN):
        kinds = [kind for kind in FAULTS if kind in bug.needs or chance.random() < 0.5]
        rates = dict.fromkeys(kinds, max(RATES))
        schedule = Schedule(number, rates)
        run = bug(schedule)
        monkeypatch.setattr(daemon, "reconcile", run.plan)
        if not any(re.search(bug.says, said) for said in run.play(600)):
            continue
        # It is the planted bug's, and not of the daemon as it is.
        monkeypatch.setattr(daemon, "reconcile", reconcile)
        if bug.control(schedule).play(600) == []:
            record_property("planted", f"{bug.__name__}: found in schedule {number + 1}")
            return
    pytest.fail(f"not found in {WITHIN} schedules: {bug.__doc__}")
