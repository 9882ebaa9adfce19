"""Randomized fault-injection tests of `reconcile`, with a simulated SLURM and cloud.

MUSTER_SEED=N repeats a run's schedules. One that fails is printed, as simple as it can be made.
"""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from schedules import SEED, Schedule, schedules
from simkit import FAULTS, SimulatedRun

from muster.autoscaler.reconcile.model import Action, Delete, Insert, ReleaseNodes

LOTS, EACH = 4, 250
SIMPLER_S = 120
"""After that a schedule that fails is not made simpler any more."""
LEAST = 20
"""How often each class of faults occurs in a lot at least."""


def test_without_faults_all_jobs_end_and_nothing_is_left() -> None:
    for number in range(12):
        assert SimulatedRun(Schedule(number)).play() == []


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
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
        print_blob=True,
    )
    @given(schedules(FAULTS))
    def play(schedule: Schedule) -> None:
        if failed and time.monotonic() > begun + SIMPLER_S:
            # It is simple enough.
            assert failed.get(repr(schedule), []) == []
            return
        run = SimulatedRun(schedule)
        wrong = run.play()
        if wrong:
            failed[repr(schedule)] = wrong
        counts["runs"] += 1
        counts.update(run.faults.counts)
        assert wrong == []

    record_property("fault_runs", "reconcile, in simulated time")
    record_property("seed", SEED)
    record_property("lots", LOTS)
    try:
        play()
    finally:
        record_property("faults", dict(counts))
    assert {kind: counts[kind] for kind in FAULTS if counts[kind] < LEAST} == {}
    assert counts["runs"] >= EACH


# --- the oracle finds what is wrong ---------------------------------------------------------------


class Mistaken(SimulatedRun):
    """A test with a bug in the daemon: `wrongly` gets each action, and returns what is done."""

    def __init__(self, wrongly: Callable[[Action, int], list[Action]]) -> None:
        super().__init__(Schedule(7, dict.fromkeys(("no room", "boot hangs"), 0.1)))
        self.wrongly = wrongly
        self.number = 0

    def do(self, action: Action) -> None:
        self.number += 1
        for wrong_action in self.wrongly(action, self.number):
            super().do(wrong_action)


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
    assert any(said in sentence for sentence in Mistaken(wrongly).play(600, 600))
