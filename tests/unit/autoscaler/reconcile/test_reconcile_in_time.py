"""Randomized fault-injection tests of the real daemon, in virtual time.

MUSTER_SEED=N repeats a run's schedules. One that fails is printed, as simple as it can be made.
"""

import random
import time
from collections import Counter
from collections.abc import Callable

import pytest
import simcloud
from hypothesis import HealthCheck, Phase, given, seed, settings
from schedules import RATES, SEED, Schedule, schedules
from simcloud import BETWEEN, CODES, OPERATION_ERRORS
from simkit import CALM_S, FAULTS, SimulatedRun

from muster.autoscaler.reconcile import retry_policy

pytestmark = pytest.mark.usefixtures("quiet")
SHARDS, EACH = 4, 175
LENGTH_S = 600
"""So long faults occur in each schedule of `make test`, twice ResumeTimeout; else 900 s."""
PROOF_SEEDS, PROOF_SHARDS, PROOF_EACH = 3, 14, 250
"""Of `make proof`: 10,500 schedules."""
SIMPLER_S = 120
"""After that a schedule that fails is not made simpler any more."""
OCCURS = 0.5
"""How probable a class of faults is in a schedule of `make test`; `make proof` draws any."""

KINDS = (*FAULTS, *CODES, *BETWEEN)
"""What must occur."""


def test_without_faults_all_jobs_end_and_nothing_is_left() -> None:
    for number in range(12):
        assert SimulatedRun(Schedule(number)).play() == []


def test_a_schedule_determines_all() -> None:
    rates = dict.fromkeys(FAULTS, RATES[0])
    first, second = (SimulatedRun(Schedule(7, rates)) for _ in range(2))
    assert first.play() == second.play()
    assert (first.now, first.faults.counts) == (second.now, second.faults.counts)


def test_what_a_zone_keeps_from_a_daemon_that_begins_is_no_delay() -> None:
    """It begins with slurmctld's first answer, and a zone is unreachable before all are listed."""
    often = ("killed", "no room", "operation late", "preempted", "rate limit", "scontrol hangs")
    often += ("slurmctld restarts", "stale list", "zone unreachable")
    seldom = ("answer lost", "clock back", "gone and is in lists", "list late", "made by hand")
    seldom += ("request lost", "scontrol fails", "sets change", "spool read-only")
    seldom += ("stopped in boot",)
    rates = dict.fromkeys(often, RATES[1]) | dict.fromkeys(seldom, RATES[0])
    assert SimulatedRun(Schedule(3839, rates)).play() == []


@pytest.mark.parametrize(("no_list_from", "begins_s"), [(10, 200), (30, 20)])
def test_a_daemon_begins_with_lists_of_all_zones_20_s_apart(
    no_list_from: float, begins_s: float
) -> None:
    """A zone that is unreachable before delays that, and one that is unreachable later does not."""
    run = SimulatedRun(Schedule(0))
    begin = run.now
    while run.now < begin + no_list_from:
        run.second()
    run.cloud.no_list_until = begin + 60
    run.cloud.away_until[simcloud.ZONES["a"]] = begin + 200
    while run.now < begin + 250:
        run.second()
    assert begins_s < run.begins_until - begin < begins_s + 3 * CALM_S


@pytest.mark.parametrize("trouble", ["stopped", "no answers"])
def test_a_deletion_that_waited_does_not_end_a_vm_that_slurm_has_accepted_since(
    trouble: str,
) -> None:
    """The VM takes 300 s until it runs: its node was given up, and is asked for again meanwhile."""
    run = SimulatedRun(Schedule(0))
    run.slurm.submit("debug", 11, 9000)
    for _ in range(100):
        run.second()
    run.slurm.submit("debug", 1, 200)
    begin = run.now
    run.cloud.runs_at["12"] = begin + 300
    while run.now < begin + 160:
        run.second()
        # From a while after the node's release on.
        run.cloud.deletions_wait_until = begin + 200 if trouble == "stopped" else begin + 345
    if trouble == "stopped":
        run.stop(170)
    else:
        while run.now < begin + 270:
            run.second()
        run.hangs_until = begin + 400
        run.cloud.no_token_until = begin + 340
    while run.now < begin + 620:
        run.second()
    assert run.oracle.wrong == []
    assert run.slurm.done == [2]
    assert run.cloud.born == 12, "the node has the VM that was made first"


def test_a_daemon_that_restarts_can_not_know_that_a_vm_came_late() -> None:
    """The VM runs 360 s after it was made, just before the daemon is killed: another one is made.

    The one that was killed knew that it did not run when SLURM asked again, and kept it.
    """
    run = SimulatedRun(Schedule(0))
    # Its job has no other node to go to.
    run.slurm.submit("debug", 11, 9000)
    for _ in range(100):
        run.second()
    run.slurm.submit("debug", 1, 200)
    begin = run.now
    run.cloud.runs_at["12"] = begin + 360
    run.cloud.deletions_wait_until = begin + 500
    while "12" not in run.cloud.booted:
        run.second()
    assert run.slurm.asked_at["lab-debug-11"] > begin + 250, "SLURM has asked again"
    for _ in range(3):
        # Until lists have it running.
        run.second()
    run._killed()
    while run.now < begin + 1000:
        run.second()
    assert run.oracle.wrong == []
    assert run.slurm.done == [2]
    assert run.cloud.born == 13, "the node has another VM"


def test_operations_fail_with_each_code_that_the_retry_policy_names() -> None:
    named = {*retry_policy._NO_ROOM, *retry_policy._NO_QUOTA, *retry_policy._TEMPORARY}
    # The driver's own words for calls that never had an answer are other faults.
    assert named - {"timeout", "noToken", "stillStopping"} <= {
        error.code for error in OPERATION_ERRORS
    }


def play_shard(
    shard: int,
    shards: int,
    own_seed: int,
    record_property: Callable[[str, object], None],
) -> None:
    counts: Counter[str] = Counter()
    failed: dict[str, list[str]] = {}
    begun = time.monotonic()

    @seed(own_seed + shard)
    @settings(
        max_examples=PROOF_EACH,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
        print_blob=True,
    )
    @given(schedules(FAULTS))
    def play(schedule: Schedule) -> None:
        # One place for all failures: to hypothesis two places are two errors.
        assert outcome(schedule) == []

    def outcome(schedule: Schedule) -> list[str]:
        if failed and time.monotonic() > begun + SIMPLER_S:
            # It is simple enough.
            return failed.get(repr(schedule), [])
        run = SimulatedRun(schedule)
        wrong = run.play()
        if wrong:
            failed[repr(schedule)] = wrong
        counts["runs"] += 1
        counts.update(run.faults.counts)
        return wrong

    record_property("fault_runs", f"the daemon, in virtual time (shards of seed {own_seed})")
    record_property("seed", SEED)
    record_property("shards", shards)
    try:
        play()
    finally:
        record_property("faults", {kind: counts[kind] for kind in KINDS})
    assert counts["runs"] >= PROOF_EACH


@pytest.mark.parametrize("shard", range(SHARDS))
def test_whatever_happens_the_oracle_finds_nothing_wrong(
    shard: int, record_property: Callable[[str, object], None]
) -> None:
    """The same schedules in each run: only a change changes a result."""
    counts: Counter[str] = Counter()
    wrong: dict[str, list[str]] = {}
    for number in range(shard * EACH, (shard + 1) * EACH):
        chance = random.Random(number)  # noqa: S311
        kinds = [kind for kind in FAULTS if chance.random() < OCCURS]
        schedule = Schedule(number, {kind: chance.choice(RATES) for kind in kinds})
        run = SimulatedRun(schedule)
        if said := run.play(LENGTH_S):
            wrong[str(schedule)] = said
        counts.update(run.faults.counts, runs=1)
    record_property("fault_runs", "the daemon, in virtual time")
    record_property("seed", 0)
    record_property("shards", SHARDS)
    record_property("faults", {kind: counts[kind] for kind in KINDS})
    assert wrong == {}


@pytest.mark.proof("ten thousand schedules take an hour and more")
@pytest.mark.parametrize("number", range(PROOF_SEEDS), ids="seed{}".format)
@pytest.mark.parametrize("shard", range(PROOF_SHARDS))
def test_whatever_happens_often_the_oracle_finds_nothing_wrong(
    number: int, shard: int, record_property: Callable[[str, object], None]
) -> None:
    # Seeds that nobody chose: all follow from the run's.
    own_seed = random.Random(SEED + number).getrandbits(28)  # noqa: S311
    play_shard(shard, PROOF_SHARDS, own_seed, record_property)
