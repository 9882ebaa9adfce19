"""Randomized fault-injection tests of the real daemon, in virtual time.

MUSTER_SEED=N repeats a run's schedules. One that fails is printed, as simple as it can be made.
"""

import logging
import math
import random
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from oracle import Oracle
from schedules import RATES, SEED, Schedule, schedules
from simcloud import BETWEEN, CODES, NO_TOKEN, OPERATION_ERRORS, SimCloud, place
from simkit import FAULTS, STOPPED, STOPPED_WITH_STATES, SimSpool, SimulatedRun
from simtime import VirtualClock

from muster.autoscaler import daemon, readers
from muster.autoscaler.reconcile import retry_policy
from muster.autoscaler.reconcile.jobs_over import UNUSED
from muster.autoscaler.reconcile.model import (
    Action,
    Close,
    Delete,
    Failure,
    Insert,
    Inserted,
    Job,
    Power,
    Probe,
    Released,
    ReleaseNodes,
    Vm,
    Withdraw,
)
from muster.autoscaler.reconcile.observed import STALE_S, ObservedState
from muster.autoscaler.reconcile.reconcile import reconcile
from muster.autoscaler.reconcile.records import TrackedState

pytestmark = pytest.mark.usefixtures("quiet")
SHARDS, EACH = 4, 250
PROOF_SEEDS, PROOF_SHARDS = 3, 14
"""Of `make proof`: 10,500 schedules."""
SIMPLER_S = 120
"""After that a schedule that fails is not made simpler any more."""
OCCURS = 0.5
"""How probable a class of faults is in a schedule of `make test`; `make proof` draws any."""


KINDS = (*FAULTS, *CODES, *BETWEEN)
"""What must occur."""


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Don't keep what thousands of daemons log."""
    caplog.set_level(logging.CRITICAL)


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


@pytest.mark.parametrize(
    ("seen", "asked", "says"),
    [
        # Nobody has seen it coming.
        ([], 160, []),
        ([], 159, ["SLURM waits for debug-0 and its new VM in a is deleted"]),
        ([200], 360, []),
        # It was not running so late, or after SLURM asked.
        ([200], 359, ["SLURM waits for debug-0 and its new VM in a is deleted"]),
        ([200, 380], 360, ["SLURM waits for debug-0 and its new VM in a is deleted"]),
    ],
)
def test_only_a_daemon_that_could_not_know_may_delete_a_vm_that_came_late(
    seen: list[float], asked: float, says: list[str]
) -> None:
    vm = "debug-0", "a", "1"
    for restarts in (False, True):
        oracle = Oracle(300, 100, runs_s=160)
        oracle.born(vm, 0)
        oracle.asked("debug-0", asked)
        for time_asked in seen:
            oracle.listed([vm], time_asked)
        oracle.ran(vm, 400)
        if restarts:
            oracle.restarted(400, (), {})
        oracle.deleted(vm, works=False)
        assert oracle.wrong == ([] if restarts and asked >= 160 else says)


@pytest.mark.parametrize(
    ("now", "known_at", "called", "unnoticed"),
    [
        (120, 99, False, True),
        # Its states are from after SLURM asked, or stale; or the request is there.
        (120, 101, False, False),
        (98 + STALE_S + 1, 99, False, False),
        (120, 99, True, False),
    ],
)
def test_a_daemon_can_not_know_a_late_request_for_as_long_as_its_states_are_not_stale(
    now: float, known_at: float, called: bool, unnoticed: bool
) -> None:
    run, name = SimulatedRun(Schedule(0)), "lab-debug-0"
    run.slurm.asked_at[name] = 100
    run.scontrol.asked_at, run.scontrol.known_at = 98, known_at
    run.clock.time = now
    if called:
        run.spool.resume((name,), (), 100, ())
    assert run._unnoticed(name) is unnoticed
    run.oracle.born((name, "a", "1"), 50)
    run.oracle.asked(name, 100)
    run.oracle.ran((name, "a", "1"), 110)
    run.oracle.deleted((name, "a", "1"), works=False, unnoticed=run._unnoticed(name))
    assert bool(run.oracle.wrong) is not unnoticed


def test_a_daemon_that_starts_counts_from_the_call_of_a_late_request() -> None:
    for called_at, says in ((60, []), (0, ["debug-0 has no verdict after 350.0 s"])):
        oracle = Oracle(300, 100)
        oracle.asked("debug-0", 0)
        oracle.restarted(100, (), {"debug-0": called_at})
        oracle.released("debug-0", 350)
        assert oracle.wrong == says


def test_a_lost_request_that_is_called_late_excuses_no_node_that_has_its_verdict() -> None:
    oracle = Oracle(300, 100)
    oracle.asked("calm-0", 0)
    oracle.in_service("calm-0", 50)
    oracle.unnoticed("calm-0")
    assert oracle.end(60) == []


@pytest.mark.parametrize(
    ("order", "excused"),
    [
        (("asked", "lost", "first answer"), True),
        (("asked", "first answer", "lost"), True),
        (("first answer", "asked", "lost"), False),
    ],
)
def test_a_request_that_is_lost_while_the_daemon_begins_does_not_say_since_when(
    order: tuple[str, ...], excused: bool
) -> None:
    run, name = SimulatedRun(Schedule(0)), "lab-calm-0"
    run.spool.full_until = run.now + 100
    for what in order:
        match what:
            case "asked":
                asked = run.slurm.asked_at[name] = run.now
                run.oracle.asked(name, asked)
            case "lost":
                run.spool.resume((name,), (), asked, ())
            case _:
                run.scontrol.nodes()
    run.oracle.released(name, asked + 150)
    assert (run.oracle.wrong == []) is excused


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
        max_examples=EACH,
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
    assert counts["runs"] >= EACH


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
        if said := run.play():
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


# --- the oracle finds what is wrong ---------------------------------------------------------------

SOUND = (Power.UP, False, False, False, False)
"""State of a node in service."""
WITHIN = 200
"""Schedules within which each planted bug must be found."""


class Planted(SimulatedRun):
    """A run with a bug. The daemon decides by `plan`."""

    says: ClassVar[str]
    """What the oracle says, as a regular expression."""
    needs: ClassVar[tuple[str, ...]] = ()
    control: ClassVar[type[SimulatedRun]] = SimulatedRun
    """The same trouble, and the daemon as it is: nothing is wrong there."""
    """Faults without which it does no harm: all its schedules have them."""
    constants: ClassVar[dict[str, float]] = {}
    """Other values of constants of `readers`."""

    def plan(
        self, observed: ObservedState, tracked: TrackedState
    ) -> tuple[list[Action], TrackedState]:
        return reconcile(observed, tracked)

    def delete(self, vm: Vm | None) -> None:
        """Delete a VM, whatever it is for."""
        if vm is not None:
            self.cloud.delete(vm)

    def there(self, name: str, zone: str) -> Vm | None:
        """The VM that has a name now."""
        return self.cloud.vms.get((name, zone))


class LostVerdict(Planted):
    """No node is released."""

    says = "has no verdict after"

    def plan(
        self, observed: ObservedState, tracked: TrackedState
    ) -> tuple[list[Action], TrackedState]:
        actions, after = reconcile(observed, tracked)
        return [action for action in actions if not isinstance(action, ReleaseNodes)], after


class LeakedVm(Planted):
    """Some VMs are not deleted."""

    says = "is left over"

    def submit(self, action: Insert | Delete | Withdraw | Probe) -> None:
        if not isinstance(action, Delete) or not action.vm.name.endswith("-1"):
            super().submit(action)


class DoubleInsert(Planted):
    """A VM is made in a second zone, too."""

    says = "two accepted inserts for one resume"

    def submit(self, action: Insert | Delete | Withdraw | Probe) -> None:
        super().submit(action)
        if isinstance(action, Insert):
            elsewhere = replace(action.choice, zone="europe-west4-b", machine_type="n1")
            super().submit(replace(action, id=f"{action.id}-2", choice=elsewhere))


class ReleasedInService(Planted):
    """Now and then a node is released that works."""

    says = "is in service on a sound VM"

    def second(self) -> None:
        super().second()
        busy = [name for name, node in self.slurm.nodes.items() if node.busy]
        up = [name for name in busy if self.slurm.nodes[name].power is Power.UP]
        if up and self.random.random() < 0.02:
            self.slurm.release_nodes((up[0],), self.now)


class LostJob(ReleasedInService):
    """The same, as the job sees it."""

    says = "runs on sound VMs and is lost"


class DeletedInService(Planted):
    """Now and then the VM of a node is deleted that works."""

    says = "is in service and its VM"

    def second(self) -> None:
        super().second()
        vms = [vm for vm in self.cloud.vms.values() if self.slurm.works(place(vm))]
        if vms and self.random.random() < 0.02:
            self.delete(vms[0])


class DeletedInBoot(Planted):
    """Now and then a VM is deleted that boots."""

    says = "SLURM waits for .* its new VM"

    def second(self) -> None:
        super().second()
        booting = [
            vm
            for vm in self.cloud.vms.values()
            if vm.status == "STAGING" and self.slurm.nodes[vm.name].power is Power.POWERING_UP
        ]
        if booting and self.random.random() < 0.1:
            self.delete(booting[0])


class ReleasedUnread(Planted):
    """A node is released when slurmctld answers again, whatever it has become."""

    says = "is in service on a sound VM"
    needs = ("runs late", "scontrol hangs", "scontrol slow")

    def plan(
        self, observed: ObservedState, tracked: TrackedState
    ) -> tuple[list[Action], TrackedState]:
        actions, after = reconcile(observed, tracked)
        for action in actions:
            if isinstance(action, ReleaseNodes):
                self._when_it_answers(action)
        return [action for action in actions if not isinstance(action, ReleaseNodes)], after

    def _when_it_answers(self, action: ReleaseNodes) -> None:
        when = max(self.now, self.away_until, self.hangs_until, self.slow_until) + 1

        def release() -> None:
            self.slurm.release_nodes(action.names, self.now)
            self.tell(Released(action, action.names))

        self.world.at(when, release)


class DeletedByName(Planted):
    """A deletion that waited is sent by name, and ends the VM that has the name then."""

    says = "a later VM|its VM in"
    needs = ("answer lost", "deletion refused", "deletions wait", "gone and is in lists")
    needs += ("list late", "preempted and gone", "request lost", "stale list", "stopped")
    needs += ("works and is in no list", "zone unreachable")

    def start(self) -> None:
        super().start()
        self.cloud.there = lambda vm: self.there(vm.name, vm.zone)  # type: ignore[method-assign]


@dataclass
class SendsAllDeletions(SimCloud):
    """A driver that sends deletions whenever it can."""

    @property
    def send_until(self) -> float:  # type: ignore[override]
        return math.inf

    @send_until.setter
    def send_until(self, time: float) -> None: ...


class DeletionExpires(DeletedByName):
    """A deletion of which nothing was heard for 180 s is sent again."""

    says = "is in service and its VM"

    def submit(self, action: Insert | Delete | Withdraw | Probe) -> None:
        super().submit(action)
        if isinstance(action, Delete):
            self.world.at(self.now + 180, lambda: self.cloud.delete(action.vm))


class StoppedWhileDeletionsWait(SimulatedRun):
    """The daemon is stopped where it matters: SLURM may ask again for a node whose VM is late."""

    def called(self, stopped: float = STOPPED) -> None:
        waiting = [deletion.vm for deletion in self.cloud.waiting.values()]
        if any(vm.id in self.cloud.runs_at for vm in waiting) and self.random.random() < 0.1:
            self.stop(300)
        super().called(stopped)


class DeletionNotJudgedAgain(StoppedWhileDeletionsWait, Planted):
    """A deletion that waits is sent when it can be, however long ago it was judged."""

    says = "is in service and its VM"
    needs = ("deletions wait", "runs late", "stopped")
    control = StoppedWhileDeletionsWait

    def new_cloud(self, kind: type[SimCloud] = SendsAllDeletions) -> SimCloud:
        return super().new_cloud(kind)


class GoneForgotten(DeletedByName):
    """When the next VM is made, it is forgotten that the one before is gone; lists have it."""

    says = "is in service and its VM|a later VM|its new VM"

    def plan(
        self, observed: ObservedState, tracked: TrackedState
    ) -> tuple[list[Action], TrackedState]:
        actions, after = reconcile(observed, tracked)
        for vm in observed.vms:
            old = vm.created < observed.asked.get(vm.name, 0) - 10
            if old and vm.id in after.node(vm.name).gone and not after.node(vm.name).insert:
                actions.append(Delete(vm, "it is from before SLURM asked", urgent=True))
        return actions, after


class LateIsOlder(Planted):
    """A VM that runs is taken for one from before SLURM asked, though lists had it as coming."""

    says = "its new VM"
    needs = ("deletions wait", "request late", "runs late")

    def plan(
        self, observed: ObservedState, tracked: TrackedState
    ) -> tuple[list[Action], TrackedState]:
        actions, after = reconcile(observed, tracked)
        for vm in observed.vms:
            start = after.node(vm.name).start
            if start and vm.status == "RUNNING" and vm.created + 150 <= start.accepted_from:
                actions.append(Delete(vm, "it is from before SLURM asked", urgent=True))
        return actions, after


class OldNews(ReleasedUnread):
    """Readings count as new, however old they are."""

    says = "is in service on a sound VM|has no verdict|is in service and its VM"

    def plan(
        self, observed: ObservedState, tracked: TrackedState
    ) -> tuple[list[Action], TrackedState]:
        return super().plan(replace(observed, nodes_at=observed.now, vms_at=observed.now), tracked)


class DeadlinesByNow(ReleasedUnread):
    """Deadlines are judged by the time of the pass, not of the reading."""

    says = "is in service on a sound VM|healthy, (boots, )?and"

    def plan(
        self, observed: ObservedState, tracked: TrackedState
    ) -> tuple[list[Action], TrackedState]:
        return super().plan(
            replace(
                observed,
                nodes_at=observed.nodes_at and observed.now,
                vms_at=observed.vms_at and observed.now,
            ),
            tracked,
        )


class StoppedInOldList(Planted):
    """A node in service is released where any list has a VM of its name as stopped."""

    says = "is in service on a sound VM"
    needs = ("gone and is in lists", "preempted", "stopped in boot")

    def plan(
        self, observed: ObservedState, tracked: TrackedState
    ) -> tuple[list[Action], TrackedState]:
        actions, after = reconcile(observed, tracked)
        names = dict.fromkeys(
            vm.name
            for vm in observed.vms
            if vm.status == "TERMINATED"
            and vm.name in observed.nodes
            and observed.nodes[vm.name].power is Power.UP
        )
        if names:
            actions.append(ReleaseNodes(tuple(names), "its VM is TERMINATED", SOUND))
        return actions, after


class HeldIsGivenUp(Planted):
    """A node that somebody set down is released as one that SLURM gave up."""

    says = "is held by somebody"
    needs = ("held by hand",)

    def plan(
        self, observed: ObservedState, tracked: TrackedState
    ) -> tuple[list[Action], TrackedState]:
        held = {
            name: replace(node, reason="ResumeTimeout reached")
            for name, node in observed.nodes.items()
            if node.down and node.by_hand
        }
        return reconcile(replace(observed, nodes={**observed.nodes, **held}), tracked)


class PreemptedByOneList(Planted):
    """A node that says that Google takes its VM back is released by one list that lacks the VM."""

    says = "runs on sound VMs and is lost"
    needs = ("list with a gap", "preempted with notice", "works and is in no list")

    def plan(
        self, observed: ObservedState, tracked: TrackedState
    ) -> tuple[list[Action], TrackedState]:
        actions, after = reconcile(observed, tracked)
        for name, node in observed.nodes.items():
            if node.drained and node.leaving and node.busy and name not in observed.vms.by_name:
                actions.append(ReleaseNodes((name,), "its VM was taken back (spot)", node.state))
        return actions, after


@dataclass
class TakesBack(SimCloud):
    """An insert whose end is unknown deletes what it has made."""

    def _report(self, action: Insert, *, lost: bool) -> None:
        super()._report(action, lost=lost)
        for name in action.names if lost else ():
            vm = self.vms.get((name, action.choice.zone))
            if vm is not None:
                self.delete(vm)


class InsertTakesBack(Planted):
    """A single insert whose end is unknown deletes its VM, though its node may be in service."""

    says = "is in service and its VM"

    def new_cloud(self, kind: type[SimCloud] = TakesBack) -> SimCloud:
        return super().new_cloud(kind)


class LooksInCurrentZones(Planted):
    """A node whose VM is in no list is looked for in the zones that its set has now."""

    says = "is in service on a sound VM"

    def start(self) -> None:
        super().start()
        self.lacking: dict[str, float] = {}

    def plan(
        self, observed: ObservedState, tracked: TrackedState
    ) -> tuple[list[Action], TrackedState]:
        actions, after = reconcile(observed, tracked)
        listed = {vm.name for vm in observed.vms}
        for name, node in observed.nodes.items():
            if node.power is not Power.UP or node.down or name in listed:
                self.lacking.pop(name, None)
            elif observed.vms_at >= self.lacking.setdefault(name, observed.vms_at) + 20:
                node_set = observed.set_of(name)
                zones = {choice.zone for choice in node_set.choices} if node_set else set()
                if not any(self.there(name, zone) for zone in zones):
                    actions.append(ReleaseNodes((name,), "its VM is gone", SOUND))
        return actions, after


class ClosedByDate(Planted):
    """Requests have the date at which they were written: one from after a step back seems old."""

    says = "its request is closed"

    def plan(
        self, observed: ObservedState, tracked: TrackedState
    ) -> tuple[list[Action], TrackedState]:
        requests = [
            replace(request, asked=request.asked + self.spool.files[request.id][2])
            for request in observed.requests
            if request.id in self.spool.files
        ]
        return reconcile(replace(observed, requests=requests), tracked)


class ClosedWithoutVerdict(Planted):
    """A request is closed when its VMs are made."""

    says = "its request is closed"

    def plan(
        self, observed: ObservedState, tracked: TrackedState
    ) -> tuple[list[Action], TrackedState]:
        actions, after = reconcile(observed, tracked)
        listed = {vm.name for vm in observed.vms}
        made = [request for request in observed.requests if listed.issuperset(request.nodes)]
        return [*actions, *(Close(request.id) for request in made)], after


@dataclass
class FrailSpool(SimSpool):
    """A file that can't be removed is an error that nobody expects."""

    def close(self, request: str) -> None:
        if self.run.now < self.read_only_until:
            raise OSError("Read-only file system")
        super().close(request)


class EndsWithReadOnlySpool(Planted):
    """A spool that is read-only ends the daemon."""

    says = "the daemon ended by itself"

    def new_spool(self) -> SimSpool:
        return FrailSpool(self)


class TemporaryIsPermanent(Planted):
    """An operation's temporary error counts as one that no other try helps."""

    says = "healthy, and released"

    def plan(
        self, observed: ObservedState, tracked: TrackedState
    ) -> tuple[list[Action], TrackedState]:
        def lasting(event: object) -> object:
            if isinstance(event, Inserted) and event.whole:
                return replace(event, whole=Failure("invalid", event.whole.message, 400))
            return event

        events = [lasting(event) for event in observed.events]
        return reconcile(replace(observed, events=events), tracked)


@dataclass
class SystemClock(VirtualClock):
    """Intervals are counted by the system clock."""

    def monotonic(self) -> float:
        return self.time + self.skew_s


class IntervalsBySystemClock(Planted):
    """A step of the system clock makes everything older, or younger."""

    says = "healthy|has no verdict|in service on a sound VM"

    def new_clock(self) -> VirtualClock:
        return SystemClock()


class ReleasedAfterStop(Planted):
    """A node is released by a reading from before the process was stopped."""

    says = "is in service on a sound VM"
    constants: ClassVar = {"FRESH_S": 1e9, "RELEASE_S": 1e9}
    decided = 0.0

    def plan(
        self, observed: ObservedState, tracked: TrackedState
    ) -> tuple[list[Action], TrackedState]:
        actions, after = reconcile(observed, tracked)
        if any(isinstance(action, ReleaseNodes) for action in actions):
            self.decided = self.now
        return actions, after

    def called(self, stopped: float = STOPPED) -> None:
        # Stopped where it matters: it has the states for a release.
        if stopped == STOPPED_WITH_STATES and 0 < self.now - self.decided < 5:
            self.stop(self.random.choice([20, 60]))
        super().called(stopped)


class DeletesByOldStates(DeletedByName):
    """A VM is deleted whose node was powered down by the states before the last ones."""

    says = "is in service and its VM|its new VM|a later VM"

    def start(self) -> None:
        super().start()
        self.before: ObservedState | None = None

    def plan(
        self, observed: ObservedState, tracked: TrackedState
    ) -> tuple[list[Action], TrackedState]:
        actions, after = reconcile(observed, tracked)
        before = self.before
        if before is None or observed.nodes_at > before.nodes_at + 40:
            self.before = before = before or observed
            for vm in observed.vms:
                node = before.nodes.get(vm.name)
                if node and node.power is Power.OFF:
                    actions.append(Delete(vm, "its node is powered down"))
            self.before = observed
        return actions, after


class DecidesByOldQuotas(Planted):
    """Quotas that still count the VM of an insert that has failed release its node."""

    says = "healthy, and released"

    def plan(
        self, observed: ObservedState, tracked: TrackedState
    ) -> tuple[list[Action], TrackedState]:
        quotas = replace(observed.quotas, at=observed.now)
        return reconcile(replace(observed, quotas=quotas), tracked)


@dataclass
class SeldomToken(SimCloud):
    """A driver that asks for a token again ten minutes after an outage."""

    def insert(self, action: Insert, until: float = math.inf) -> None:
        if self.no_token_until < self.now < self.no_token_until + 600:
            self._tell_at(self.now + 1, Inserted(action.id, whole=NO_TOKEN))
        else:
            super().insert(action, until)


class AwayWhileNodesBoot(SimulatedRun):
    """Slurmctld is away where it matters."""

    def _resume(self, names: tuple[str, ...], jobs: tuple[Job, ...]) -> None:
        super()._resume(names, jobs)
        if self.random.random() < 0.5:
            self.away_until = self.now + 120


class BootsThroughGap(AwayWhileNodesBoot, Planted):
    """A boot has its time while slurmctld is away, though no slurmd can register."""

    says = "healthy, boots, and is released too early"
    control = AwayWhileNodesBoot

    def plan(
        self, observed: ObservedState, tracked: TrackedState
    ) -> tuple[list[Action], TrackedState]:
        return reconcile(observed, replace(tracked, back_at=0))


class ReleasedUnderAnotherJob(Planted):
    """When a node is released, the other nodes of its job are too, also if another job has them."""

    says = "is released as no job has it"
    needs = ("job cancelled",)

    def plan(
        self, observed: ObservedState, tracked: TrackedState
    ) -> tuple[list[Action], TrackedState]:
        actions, after = reconcile(observed, tracked)
        released = [
            action
            for action in actions
            if isinstance(action, ReleaseNodes) and action.state[0] is Power.POWERING_UP
        ]
        for action in released:
            for job in (job for request in observed.requests for job in request.jobs):
                names = [name for name in job.nodes if observed.is_powering_up(name)]
                others = tuple(name for name in names if name not in action.names)
                if others and len(others) < len(names):
                    actions.append(ReleaseNodes(others, UNUSED + action.reason, action.state))
        return actions, after


class NoTokenForLong(Planted):
    """After an outage of the token endpoint there is no token for ten minutes."""

    says = "is healthy and (came|is released)"
    needs = ("no token",)

    def new_cloud(self, kind: type[SimCloud] = SeldomToken) -> SimCloud:
        return super().new_cloud(kind)


class InsertsBehindDeletions(Planted):
    """New requests wait until all deletions are sent."""

    says = "is healthy and (came|is released)"
    needs = ("deletions wait",)

    def submit(self, action: Insert | Delete | Withdraw | Probe) -> None:
        if isinstance(action, Insert) and self.cloud.waiting:
            self.cloud.driver.at(self.now + 1, lambda: self.submit(action))
        else:
            super().submit(action)


PLANTED = (
    LostVerdict,
    LeakedVm,
    DoubleInsert,
    ReleasedInService,
    LostJob,
    DeletedInService,
    DeletedInBoot,
    ReleasedUnread,
    DeletedByName,
    DeletionExpires,
    DeletionNotJudgedAgain,
    GoneForgotten,
    LateIsOlder,
    OldNews,
    DeadlinesByNow,
    StoppedInOldList,
    HeldIsGivenUp,
    PreemptedByOneList,
    InsertTakesBack,
    LooksInCurrentZones,
    ClosedByDate,
    ClosedWithoutVerdict,
    EndsWithReadOnlySpool,
    TemporaryIsPermanent,
    IntervalsBySystemClock,
    ReleasedAfterStop,
    DeletesByOldStates,
    BootsThroughGap,
    ReleasedUnderAnotherJob,
    DecidesByOldQuotas,
    NoTokenForLong,
    InsertsBehindDeletions,
)


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(
    bug: type[Planted],
    record_property: Callable[[str, object], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The same schedules in each run, as above.
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
