"""What the oracle of the schedules excuses, and no more."""

import pytest
import simcloud
from oracle import Oracle
from schedules import Schedule
from simkit import SimulatedRun
from slurmctld import Machine

from muster.autoscaler.reconcile.model import Insert, Power
from muster.autoscaler.reconcile.observed import STALE_S


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
            oracle.listed({vm: "STAGING"}, time_asked, time_asked)
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


@pytest.mark.parametrize(
    ("read_again_at", "due_at"),
    [
        # The 10 s without slurmctld alone.
        (100, 310),
        (150, 310),
        # 120 s to register, and 30 s more as at the end of each start.
        (161, 311),
        (259, 409),
        # Its start may be another one.
        (270, 570),
    ],
)
def test_after_slurmctld_was_not_read_a_node_has_its_time_to_register(
    read_again_at: float, due_at: float
) -> None:
    for late_s in (0, 1):
        oracle = Oracle(300, 100)
        oracle.asked("debug-0", 0)
        oracle.excuse(10)
        oracle.unread(read_again_at, 270, 120, {})
        oracle.waits(due_at + late_s)
        assert oracle.wrong == ["debug-0 has no verdict after 301.0 s"] * late_s


def test_a_daemon_that_starts_counts_from_the_call_of_a_late_request() -> None:
    for called_at, says in ((60, []), (0, ["debug-0 has no verdict after 350.0 s"])):
        oracle = Oracle(300, 100)
        oracle.asked("debug-0", 0)
        oracle.restarted(100, (), {"debug-0": called_at})
        oracle.released("debug-0", 350)
        assert oracle.wrong == says


@pytest.mark.parametrize(
    ("restarts", "says"),
    [((310, 500), []), ((310,), ["debug-0 has no verdict after 480.0 s"])],
)
def test_each_daemon_that_restarts_must_guess_whose_a_request_older_than_resume_timeout_is(
    restarts: tuple[float, ...], says: list[str]
) -> None:
    oracle = Oracle(300, 100)
    oracle.asked("debug-0", 0)
    for restart in restarts:
        oracle.restarted(restart, (), {"debug-0": 0})
    oracle.released("debug-0", 790)
    assert oracle.wrong == says


@pytest.mark.parametrize(
    ("answers_at", "says"), [(310, []), (290, ["debug-0 has no verdict after 500.0 s"])]
)
def test_a_daemon_guesses_when_slurmctld_answers_it_first(
    answers_at: float, says: list[str]
) -> None:
    oracle = Oracle(300, 100)
    oracle.asked("debug-0", 0)
    oracle.restarted(280, (), {"debug-0": 0})
    oracle.guesses(answers_at)
    oracle.released("debug-0", 500)
    assert oracle.wrong == says


@pytest.mark.parametrize(
    ("counted", "charged", "excused"),
    [
        ("lab-calm-1", "", True),
        # Its insert runs; or it was the released node's own.
        ("lab-calm-1", "lab-calm-1", False),
        ("lab-calm-0", "", False),
    ],
)
def test_quotas_that_counted_a_failed_insert_of_another_node_excuse_a_release(
    counted: str, charged: str, excused: bool
) -> None:
    run, name = SimulatedRun(Schedule(0)), "lab-calm-0"
    run.oracle.asked(name, run.now)
    run.counted = frozenset({counted})
    run.clock.time += 10
    run.cloud.charged_until = {charged: run.now + 5}
    run.slurm.release_nodes = lambda names, *_: run.oracle.released_together(names, run.now)
    run.scontrol.release_nodes([name], "QUOTA_EXCEEDED of n2", in_service=False)
    assert (run.oracle.wrong == []) == excused


@pytest.mark.parametrize(
    ("asked", "now", "says"),
    [
        (150, 240, []),
        (99, 240, ["lab-debug-0 has a VM in a and gets another one"]),
        (150, 250, ["lab-debug-0 has a VM in a and gets another one"]),
    ],
)
def test_a_daemon_that_was_stopped_may_believe_one_list(
    asked: float, now: float, says: list[str]
) -> None:
    run, name = SimulatedRun(Schedule(0)), "lab-debug-0"
    run.stop_times = 100, 200
    run.slurm.asked_at[name] = asked
    run.clock.time = now
    run.oracle.born((name, "a", "1"), 50)
    run.oracle.listed({(name, "a", "1"): "RUNNING"}, now - 1, now)
    run.cloud.submit = lambda _: None
    run.submit(Insert("i", simcloud.SETS["debug"].choices[0], (name,), 1))
    assert run.oracle.wrong == says


@pytest.mark.parametrize(
    ("listed_after", "begun"),
    [
        # An idle daemon: a list may come later. Or its first list of all zones came late.
        (0, True),
        (34, False),
        (14, True),
    ],
)
def test_a_daemon_has_begun_when_lists_of_all_zones_lack_a_vm_for_long(
    listed_after: float, begun: bool
) -> None:
    run = SimulatedRun(Schedule(0))
    run.cloud.away_until[simcloud.ZONES["c"]] = run.now + 33
    run.listed_at = run.now + listed_after if listed_after else 0
    run.clock.time += 40
    run._may_have_begun()
    assert (run.begins_until <= run.now) == begun


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


@pytest.mark.parametrize(
    ("told_at", "says"),
    [
        (97, ["lab-calm-0 is healthy and is released after 120.0 s"]),
        # Nobody can know yet that it is older than SLURM's request.
        (98, []),
        (None, []),
    ],
)
def test_a_vm_that_ran_before_slurm_asked_is_excused_while_no_list_has_said_so(
    told_at: float | None, says: list[str]
) -> None:
    vm = "lab-calm-0", "a", "1"
    oracle = Oracle(300, 100, boot_s=90, made_s=140, runs_s=160, told_s=3)
    oracle.born(vm, 80)
    oracle.ran(vm, 90)
    if told_at is not None:
        oracle.listed({vm: "RUNNING"}, told_at - 1, told_at)
    oracle.asked("lab-calm-0", 100)
    # slurmctld was away. It refuses the VM all the same, so there is no use in waiting longer.
    oracle.back(200)
    oracle.released_together(["lab-calm-0"], 220)
    oracle.released("lab-calm-0", 220)
    assert oracle.wrong == says


@pytest.mark.parametrize(
    ("sent_after", "busy", "is_gone", "says"),
    [
        (30, True, True, []),
        # Longer than slurmctld takes for an answer, of a node that had no job, or that has its VM.
        (40, True, True, ["lab-debug-0 is held by somebody and is released"]),
        (30, False, True, ["lab-debug-0 is held by somebody and is released"]),
        (30, True, False, ["lab-debug-0 is held by somebody and is released"]),
    ],
)
def test_the_job_of_a_held_node_may_end_while_slurmctld_is_slow(
    sent_after: float, busy: bool, is_gone: bool, says: list[str]
) -> None:
    run, name = SimulatedRun(Schedule(0)), "lab-debug-0"
    vm = run.slurm.home[name] = name, "a", "1"
    run.slurm._set(name, power=Power.UP, busy=busy)
    run.slurm.hold(name, down=False)
    run.scontrol.nodes()
    run.slurm._is_idle(name)
    run.slurm.machines = {} if is_gone else {vm: Machine(run.now)}
    run.clock.time += 50
    run.scontrol.apply((name,), run.scontrol.asked_at + sent_after, run.slurm.set_down)
    assert run.oracle.wrong == says


@pytest.mark.parametrize(
    ("began", "says"),
    [
        (210, ["lab-calm-0: healthy, boots, and is released too early"]),
        (240, []),
    ],
)
def test_a_daemon_that_began_shortly_before_slurmctld_was_back_can_not_know_that_it_was_away(
    began: float, says: list[str]
) -> None:
    vm, oracle = ("lab-calm-0", "a", "1"), Oracle(300, 100, boot_s=120, made_s=140, unread_s=45)
    oracle.asked("lab-calm-0", 0)
    oracle.born(vm, 1)
    oracle.ran(vm, 10)
    oracle.restarted(began, (), {})
    oracle.back(271)
    oracle.released_together(["lab-calm-0"], 272)
    assert oracle.wrong == says
