"""Randomized fault-injection tests of `reconcile`, with a simulated SLURM and cloud.

MUSTER_SEED=N repeats a run's schedules. One that fails is printed, as simple as it can be made.
"""

import random
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from schedules import RATES, SEED, Schedule, schedules
from simcloud import place
from simkit import FAULTS, SimulatedRun

from muster.autoscaler.reconcile.model import Action, Delete, Insert, Power, ReleaseNodes
from muster.autoscaler.reconcile.observed import ObservedState

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

WITHIN = 200
"""Schedules within which each planted bug must be found."""


class LostVerdict(SimulatedRun):
    """No node is released."""

    says = "has no verdict after"

    def do(self, action: Action) -> None:
        if not isinstance(action, ReleaseNodes):
            super().do(action)


class LeakedVm(SimulatedRun):
    """Some VMs are not deleted."""

    says = "is left over"

    def do(self, action: Action) -> None:
        if not isinstance(action, Delete) or not action.vm.name.endswith("-1"):
            super().do(action)


class DoubleInsert(SimulatedRun):
    """A VM is made in a second zone, too."""

    says = "two accepted inserts for one resume"

    def do(self, action: Action) -> None:
        super().do(action)
        if isinstance(action, Insert):
            elsewhere = replace(action.choice, zone="europe-west4-b", machine_type="n1")
            super().do(replace(action, id=f"{action.id}-2", choice=elsewhere))


class ReleasedInService(SimulatedRun):
    """Now and then a node is released that works."""

    says = "is in service on a sound VM"

    def second(self) -> None:
        super().second()
        busy = [name for name, node in self.slurm.nodes.items() if node.busy]
        up = [name for name in busy if self.slurm.nodes[name].power is Power.UP]
        if up and self.random.random() < 0.02:
            self.do(ReleaseNodes((up[0],), "a mistake", Power.UP))


class DeletedInService(SimulatedRun):
    """Now and then the VM of a node is deleted that works."""

    says = "is in service and its VM"

    def second(self) -> None:
        super().second()
        vms = [vm for vm in self.cloud.vms.values() if self.slurm.works(place(vm))]
        if vms and self.random.random() < 0.02:
            self.do(Delete(vms[0], "a mistake"))


class DeletedInBoot(SimulatedRun):
    """Now and then a VM is deleted that boots."""

    says = "SLURM waits for"

    def second(self) -> None:
        super().second()
        booting = [
            vm
            for vm in self.cloud.vms.values()
            if vm.status == "STAGING" and self.slurm.nodes[vm.name].power is Power.POWERING_UP
        ]
        if booting and self.random.random() < 0.1:
            self.do(Delete(booting[0], "a mistake"))


class ReleasedUnread(SimulatedRun):
    """A node is released when slurmctld answers again, whatever it has become."""

    says = "is in service on a sound VM"

    def release_nodes(self) -> None:
        releases, self.releases = self.releases, []
        for action in releases:
            self.slurm.release_nodes(action.names, self.now)


class DeletedByName(SimulatedRun):
    """The VM that has the name when it is deleted, an answer is late, and lists are old."""

    says = "its VM in|its new VM in"

    def do(self, action: Action) -> None:
        if isinstance(action, Delete):
            there = self.cloud.vms.get((action.vm.name, action.vm.zone))
            action = replace(action, vm=there or action.vm)
        super().do(action)

    def seen(self, observed: ObservedState) -> ObservedState:
        # And what was deleted is forgotten.
        self.tracked.gone.clear()
        return observed


class OldNews(SimulatedRun):
    """Readings count as new, however old they are."""

    says = "is in service on a sound VM|has no verdict|is in service and its VM"

    def seen(self, observed: ObservedState) -> ObservedState:
        return replace(observed, nodes_at=self.now, vms_at=self.now)

    def do(self, action: Action) -> None:
        if isinstance(action, ReleaseNodes):
            self.slurm.release_nodes(action.names, self.now)
        else:
            super().do(action)


PLANTED = (
    LostVerdict,
    LeakedVm,
    DoubleInsert,
    ReleasedInService,
    DeletedInService,
    DeletedInBoot,
    ReleasedUnread,
    DeletedByName,
    OldNews,
)


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(
    bug: type[SimulatedRun], record_property: Callable[[str, object], None]
) -> None:
    chance = random.Random(SEED)  # noqa: S311
    for number in range(WITHIN):
        rates = {kind: max(RATES) for kind in FAULTS if chance.random() < 0.5}
        if any(re.search(bug.says, said) for said in bug(Schedule(number, rates)).play(600)):
            record_property("planted", f"{bug.__name__}: found in schedule {number + 1}")
            return
    pytest.fail(f"not found in {WITHIN} schedules: {bug.__doc__}")
