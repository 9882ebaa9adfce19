"""The plan against a SLURM and a cloud that do what they can to it: random schedules.

MUSTER_SEED=N repeats those of a run; a schedule that fails is printed, made as simple as it can be.
"""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from schedules import SEED, Schedule, schedules
from simkit import FAULTS, Game

from muster.autoscaler.reconcile.model import Action, Delete, Insert, ReleaseNodes

LOTS, EACH = 4, 250
SIMPLER_S = 120
"""After that a schedule that fails is not made simpler any more."""
LEAST = 20
"""How often each class of faults occurs in a lot at least."""


def test_without_faults_all_comes_to_its_end() -> None:
    for number in range(12):
        assert Game(Schedule(number)).play() == []


@pytest.mark.parametrize("lot", range(LOTS))
def test_whatever_happens_the_oracle_finds_nothing_wrong(
    lot: int, record_property: Callable[[str, object], None]
) -> None:
    counts: Counter[str] = Counter()
    failed: dict[str, list[str]] = {}
    begun = time.monotonic()

    @seed(SEED + lot)
    @settings(
        max_examples=EACH,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
        print_blob=True,
    )
    @given(schedules(FAULTS))
    def games(schedule: Schedule) -> None:
        if failed and time.monotonic() > begun + SIMPLER_S:
            # It is simple enough.
            assert failed.get(repr(schedule), []) == []
            return
        game = Game(schedule)
        wrong = game.play()
        if wrong:
            failed[repr(schedule)] = wrong
        counts["games"] += 1
        counts.update(game.faults.counts)
        assert wrong == []

    record_property("games", "the plan, in simulated time")
    record_property("seed", SEED)
    record_property("lots", LOTS)
    try:
        games()
    finally:
        record_property("faults", dict(counts))
    assert {kind: counts[kind] for kind in FAULTS if counts[kind] < LEAST} == {}
    assert counts["games"] >= EACH


# --- the oracle finds what is wrong ---------------------------------------------------------------


class Mistaken(Game):
    """A game with a bug in the daemon: `wrongly` gets each action, and returns what is done."""

    def __init__(self, wrongly: Callable[[Action, int], list[Action]]) -> None:
        super().__init__(Schedule(7, dict.fromkeys(("no room", "boot hangs"), 0.1)))
        self.wrongly = wrongly
        self.number = 0

    def do(self, action: Action) -> None:
        self.number += 1
        for each in self.wrongly(action, self.number):
            super().do(each)


def lost_verdict(action: Action, _number: int) -> list[Action]:
    return [] if isinstance(action, ReleaseNodes) else [action]


def leaked_vm(action: Action, _number: int) -> list[Action]:
    return [] if isinstance(action, Delete) and action.vm.name.endswith("-1") else [action]


def double_insert(action: Action, _number: int) -> list[Action]:
    if not isinstance(action, Insert):
        return [action]
    elsewhere = replace(action.choice, zone="europe-west4-b", machine_type="n1")
    return [action, replace(action, id=f"{action.id}-2", choice=elsewhere)]


@pytest.mark.parametrize(
    ("wrongly", "said"),
    [
        (lost_verdict, "has no verdict after"),
        (leaked_vm, "is left over"),
        (double_insert, "two accepted inserts for one resume"),
    ],
)
def test_a_planted_bug_is_found(wrongly: Callable[[Action, int], list[Action]], said: str) -> None:
    assert any(said in each for each in Mistaken(wrongly).play(600, 600))
