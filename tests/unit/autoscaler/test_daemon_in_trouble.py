"""Randomized fault-injection tests of the real daemon: many runs of a minute at once.

Their clock is fifteen times as fast as the real one. MUSTER_SEED=N repeats the schedules of another
session; what happens in the same millisecond is not repeated.
"""

import logging
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fault_injection import FAULTS, FaultRun, Metadata, Unexpected
from faulty_cloud import watch_operations
from schedules import RATES, SEED, Schedule

from muster.autoscaler.reconcile.model import Delete, Insert, Probe

pytestmark = pytest.mark.proof(
    "the real daemon waits in real time, five minutes in all, and the machine must not be busy"
)

SHARDS, EACH = 8, 12
"""More at once would be late on a busy machine: all of a shard share one interpreter."""


@pytest.fixture(autouse=True)
def unexpected(monkeypatch: pytest.MonkeyPatch) -> Iterator[Unexpected]:
    """Keep what daemons log of exceptions, and nothing else."""
    watch_operations(monkeypatch)
    monkeypatch.setenv("GOOGLE_COMPUTE_CUSTOM_ENDPOINT", "")
    handler = Unexpected()
    loggers = [logging.getLogger(name) for name in ("muster", "uvicorn.error")]
    loggers[0].addHandler(handler)
    for logger in loggers:
        # Without thousands of warnings, and errors of calls that end with their server.
        logger.setLevel(logging.CRITICAL if logger is loggers[1] else logging.ERROR)
    yield handler
    loggers[0].removeHandler(handler)
    for logger in loggers:
        logger.setLevel(logging.NOTSET)


def random_schedules(shard: int) -> list[Schedule]:
    """Schedules of a shard: half of them have each kind of fault, a quarter has it often."""
    chance = random.Random(SEED + shard)  # noqa: S311
    rates: list[dict[str, float]] = [{} for _ in range(EACH)]
    for kind in FAULTS:
        for place, schedule_rates in enumerate(chance.sample(rates, EACH // 2)):
            schedule_rates[kind] = RATES[place % len(RATES)]
    first = SEED + shard * EACH
    return [Schedule(seed, schedule_rates) for seed, schedule_rates in enumerate(rates, first)]


def run_all(runs: Iterable[FaultRun]) -> dict[FaultRun, list[str]]:
    """Do all runs at the same time; return what is wrong in each."""
    wrong: dict[FaultRun, list[str]] = {}

    def do(run: FaultRun) -> None:
        try:
            wrong[run] = run.run()
        except BaseException as error:
            # An exception in a thread would not fail the test.
            wrong[run] = [f"the run itself: {error!r}"]

    threads = [threading.Thread(target=do, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return wrong


def report(wrong: dict[FaultRun, list[str]]) -> str:
    """What is wrong, run by run; "" if nothing is."""
    return "".join(
        f"\n{run}:\n  " + "\n  ".join(problems) for run, problems in wrong.items() if problems
    )


@pytest.mark.parametrize("shard", range(SHARDS))
def test_whatever_happens_the_oracle_finds_nothing_wrong(
    shard: int,
    tmp_path: Path,
    unexpected: Unexpected,
    record_property: Callable[[str, object], None],
) -> None:
    wrong = run_all(
        [FaultRun(schedule, tmp_path / str(schedule.seed)) for schedule in random_schedules(shard)]
    )
    counts: Counter[str] = Counter(runs=len(wrong))
    for run in wrong:
        counts.update(run.faults.counts)
    record_property("fault_runs", "the daemon, in real time")
    record_property("seed", SEED)
    record_property("shards", SHARDS)
    record_property("faults", {kind: counts[kind] for kind in ("runs", *FAULTS)})
    assert report(wrong) == ""
    # tests/unit/conftest.py has how many of each are needed in all shards together.
    assert unexpected.messages == []


# --- the oracle finds what is wrong ---------------------------------------------------------------


class LostVerdict(FaultRun):
    def release_nodes(self, names: Iterable[str], reason: str, *, in_service: bool) -> None:
        """Claim that it is done."""


class Mistaken(FaultRun):
    """A run whose fleet does something else than it should."""

    def wrongly(self, fleet: Metadata, action: Insert | Delete | Probe) -> None:
        raise NotImplementedError

    def fleet(self) -> Metadata:
        fleet = super().fleet()
        fleet.submit = lambda action: self.wrongly(fleet, action)  # type: ignore[method-assign]
        return fleet


class LeakedVm(Mistaken):
    def wrongly(self, fleet: Metadata, action: Insert | Delete | Probe) -> None:
        if not isinstance(action, Delete) or action.vm.name.endswith("-1"):
            fleet.google.submit(action)


class DoubleInsert(Mistaken):
    def wrongly(self, fleet: Metadata, action: Insert | Delete | Probe) -> None:
        fleet.google.submit(action)
        if isinstance(action, Insert) and "-debug-" in action.names[0]:
            elsewhere = fleet.node_sets["debug"].choices[1]
            fleet.google.submit(replace(action, id=f"{action.id}-2", choice=elsewhere))


PLANTED = {
    LostVerdict: "has no verdict",
    LeakedVm: "is left over",
    DoubleInsert: "two accepted inserts for one resume",
}


def test_planted_bugs_are_found(tmp_path: Path) -> None:
    schedule = Schedule(11, {"boot hangs": 0.1, "no room": 0.1})
    wrong = run_all([kind(schedule, tmp_path / kind.__name__) for kind in PLANTED])
    for run, problems in wrong.items():
        expected = PLANTED[type(run)]
        assert any(expected in problem for problem in problems), (type(run).__name__, problems)
