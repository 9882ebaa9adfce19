"""What the simulated cloud, spool and slurmctld do, where schedules rest on it."""

import math
from dataclasses import dataclass, field

import pytest
from oracle import Oracle
from plankit import choice
from schedules import Faults, Schedule
from simcloud import DEADLINE_S, WITHDRAWN, SimCloud
from simkit import SimulatedRun
from simtime import Agenda, VirtualClock
from slurmctld import Machine

from muster.autoscaler.reconcile.model import (
    Delete,
    Deleted,
    Event,
    Insert,
    Inserted,
    Power,
    Withdraw,
)

NODE = "lab-debug-0"
INSERT = Insert("1", choice("n1 in a"), (NODE,), 1)


@dataclass
class Cloud:
    """A simulated cloud and its driver, with some faults whenever they can occur."""

    faults: Faults
    clock: VirtualClock = field(default_factory=VirtualClock)
    told: list[tuple[float, Event]] = field(default_factory=list)
    """With the seconds since the begin."""

    def __post_init__(self) -> None:
        oracle = Oracle(300, 100)
        none = frozenset[object]().__contains__
        self.sim = SimCloud(self.faults, oracle, self.clock, none, none, Agenda())
        self.begin = self.clock.time
        self.sim.tell = lambda event: self.told.append((self.clock.time - self.begin, event))
        self.sim.send_until = math.inf

    def passes(self, seconds: float) -> None:
        end = self.clock.time + seconds
        while (due := min(self.sim.driver, self.sim.world, key=lambda one: one.next)).next <= end:
            self.clock.time = max(self.clock.time, due.next)
            due.run_next()
        self.clock.time = end


def cloud(rates: dict[str, float], seed: int = 1) -> Cloud:
    return Cloud(Faults(Schedule(seed, rates)))


@pytest.mark.parametrize("kind", ["rate limit", "operation error"])
def test_what_another_call_may_help_is_told_at_the_deadline(kind: str) -> None:
    late = {"unreachable", "notSent", "rateLimitExceeded", "userRateLimitExceeded"}
    for seed in range(40):
        tried = cloud({kind: 1}, seed)
        tried.sim.submit(INSERT)
        tried.passes(2 * DEADLINE_S)
        [(after_s, event)] = tried.told
        assert isinstance(event, Inserted) and event.whole
        assert (after_s > DEADLINE_S) == (event.whole.code in late)


def test_a_deletion_that_has_no_answer_may_be_withdrawn_though_google_does_it() -> None:
    tried = cloud({"deletion refused": 1, "answer lost": 1})
    tried.sim._make(INSERT.choice, INSERT.names)
    [vm] = tried.sim.vms.values()
    tried.sim.submit(Delete(vm, "its node is powered down"))
    tried.passes(1)
    assert [vm.status for vm in tried.sim.vms.values()] == ["STOPPING"]
    tried.sim.submit(Withdraw(vm))
    tried.passes(20)
    assert [event for _, event in tried.told] == [Deleted(vm, WITHDRAWN)]


def test_a_request_that_is_called_late_and_lost_is_not_the_next_one() -> None:
    run = SimulatedRun(Schedule(0))
    run.spool.full_until = math.inf
    run.slurm.asked_at[NODE] = 900
    run.spool.resume((NODE,), (), 880, ())
    assert run.lost == set()
    run.spool.resume((NODE,), (), 900, ())
    assert run.lost == {NODE}


def test_a_node_that_is_asked_for_again_is_not_one_that_slurmctld_forgot() -> None:
    run = SimulatedRun(Schedule(0))
    run.spool.full_until = math.inf
    run.away_until = run.now
    run.slurm.off_again.add(NODE)
    run.slurm.asked_at[NODE] = run.now
    run.oracle.asked(NODE, run.now)
    run._resume((NODE,), ())
    assert run.slurm.off_again == set(), "the next time is another one"
    run.world.run_next()
    assert run.oracle._asked[NODE][2] == math.inf, "it is excused"


def test_a_slurmd_that_could_not_register_is_in_a_pause_when_slurmctld_is_back() -> None:
    """It tries from 20 to 30, 31 to 41, 43 to 53 and 57 to 67."""
    for back_at, registers_at in ((41, 41), (42, 44), (54, 58), (60, 60)):
        run = SimulatedRun(Schedule(0))
        slurm, vm = run.slurm, (NODE, "zone", "1")
        slurm._set(NODE, power=Power.POWERING_UP)
        begin = run.now
        machines = {vm: Machine(begin + 20 - slurm.times.boot_s)}
        slurm.step(begin, machines)
        for second in range(back_at, 70):
            slurm.step(begin + second, machines)
            if slurm.nodes[NODE].power is Power.UP:
                break
        assert second == registers_at, back_at


def test_the_first_answer_of_slurmctld_excuses_nothing() -> None:
    run = SimulatedRun(Schedule(0))
    run.oracle.asked(NODE, run.now - 280)
    before = dict(run.oracle._asked)
    run.start()
    run.scontrol.nodes()
    assert run.oracle._asked == before
