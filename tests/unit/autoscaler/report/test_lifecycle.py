import pytest
from plankit import CLUSTER, REGION, Rounds

from muster.autoscaler.report.lifecycle import Stage, View, stages


def seen(*rounds: dict) -> View:
    """The view of debug-0 after reconcile passes, a second apart unless they say when."""
    played = Rounds()
    for at, given in enumerate(rounds, 100):
        played.round({"at": at, "nodes": {}, "vms": {}, **given})
    return stages(played.observed, played.tracked, {})[f"{CLUSTER}-debug-0"]


def node(text: str, vm: str = "", **more: object) -> dict:
    return {"nodes": {"debug-0": text}, "vms": {"debug-0": vm} if vm else {}, **more}


REQUEST = {"requests": {"r1": {"at": 99, "nodes": "debug-0"}}}
NO_ROOM = "refused debug-0: ZONE_RESOURCE_POOL_EXHAUSTED no room"
LISTS = [{"at": 100 + 21 * n, **node("up busy")} for n in range(3)]

CASES = {
    "off": ([node("off")], Stage.OFF),
    "asked of the cloud at once": ([node("powering_up", **REQUEST)], Stage.INSERTING),
    "asked by the spool before SLURM's states say so": (
        [node("off", nodes_at=98), node("off", nodes_at=98, **REQUEST)],
        Stage.INSERTING,
    ),
    "refused for its rate": (
        [
            node("powering_up", **REQUEST),
            node("powering_up", events=["refused debug-0: rateLimitExceeded"]),
        ],
        Stage.WAITING,
    ),
    "made, says Google, and the list is older": (
        [node("powering_up", **REQUEST), node("powering_up", events=["made debug-0"], vms_at=100)],
        Stage.CREATED,
    ),
    "in the list": ([node("powering_up", "STAGING in a since 99", **REQUEST)], Stage.CREATED),
    "its VM runs": ([node("powering_up", "RUNNING in a since 99", **REQUEST)], Stage.BOOTING),
    "a VM from before is deleted first": (
        [
            {"at": 50, **node("up", "RUNNING in a since 5")},
            node("powering_up", "RUNNING in a since 5", **REQUEST),
        ],
        Stage.WAITING,
    ),
    "boots too long": (
        [
            node("powering_up", "RUNNING in a since 99", **REQUEST),
            {"at": 225, **node("powering_up", "RUNNING in a since 99")},
        ],
        Stage.STUCK,
    ),
    "idle": ([node("up", "RUNNING in a since 9")], Stage.IDLE),
    "busy": ([node("up busy", "RUNNING in a since 9")], Stage.BUSY),
    "to be powered down without a job": (
        [node("up busy drained leaving: x", "RUNNING in a since 9")],
        Stage.LEAVING,
    ),
    "drained": ([node("up drained: look at its disk", "RUNNING in a since 9")], Stage.DRAINED),
    "down by hand": ([node("up down: broken", "RUNNING in a since 9")], Stage.DOWN),
    "not responding": (
        [node("up down: Not responding", "RUNNING in a since 9")],
        Stage.NOT_RESPONDING,
    ),
    "its VM is in no list": (LISTS[:1], Stage.VERIFYING),
    "a list has its VM as stopped": ([node("up busy", "TERMINATED in a since 9")], Stage.VERIFYING),
    "its VM was taken back": (
        [
            node("up busy", "TERMINATED in a since 9 spot"),
            {"events": ["found debug-0 in a: TERMINATED", "absent debug-0 in b"]},
        ],
        Stage.RELEASED,
    ),
    "powered down": ([node("powering_down", "RUNNING in a since 9")], Stage.GOING),
    "off, and its VM still there": ([node("off", "STOPPING in a since 9")], Stage.GOING),
    "off for SLURM, until SuspendTimeout": ([node("powering_down")], Stage.GOING),
}


@pytest.mark.parametrize("case", CASES)
def test_a_stage(case):
    rounds, stage = CASES[case]
    assert seen(*rounds).stage is stage


def test_every_stage_has_a_case_here():
    orphan = {Stage.ORPHAN}
    assert {stage for _, stage in CASES.values()} | orphan == set(Stage)


def test_a_vm_without_a_node_is_shown():
    rounds = Rounds()
    vms = {"debug-9": "RUNNING in a since 99"}
    rounds.round({"at": 100, "nodes": {"debug-0": "off"}, "vms": vms})
    assert stages(rounds.observed, rounds.tracked, {})["lab-debug-9"].stage is Stage.ORPHAN


def test_before_slurmctld_is_read_no_vm_is_called_an_orphan():
    rounds = Rounds()
    rounds.round({"at": 100, "nodes_at": 0, "vms": {"debug-9": "RUNNING in a since 99"}})
    assert stages(rounds.observed, rounds.tracked, {}) == {}


def test_a_node_says_where_it_is_or_is_to_be():
    asked = seen(node("powering_up", **REQUEST))
    running = seen(node("up", "RUNNING in b since 9 spot"))
    assert (asked.zone, asked.machine_type, asked.spot) == (f"{REGION}a", "n1", False)
    assert (running.zone, running.spot) == (f"{REGION}b", True)


def test_a_node_says_which_gpus_are_attached_to_it():
    asked = seen(node("powering_up", sets={"debug": ["n1 t4:2 in a"]}, **REQUEST))
    assert (asked.machine_type, asked.gpus) == ("n1", "t4:2")
    assert str(asked.pool) == f"n1 t4:2 in {REGION}a"


def test_a_node_that_waits_says_for_what_and_how_long():
    view = seen(
        node("powering_up", **REQUEST),
        node("powering_up", events=["refused debug-0: rateLimitExceeded slow"]),
    )
    assert (view.reason, view.retry) == ("rateLimitExceeded: slow", 102)


def test_a_node_that_was_refused_is_asked_for_elsewhere_and_says_why():
    view = seen(node("powering_up", **REQUEST), node("powering_up", events=[NO_ROOM]))
    assert (view.stage, view.zone) == (Stage.INSERTING, f"{REGION}b")
    assert view.reason == f"ZONE_RESOURCE_POOL_EXHAUSTED: no room (n1 in {REGION}a)"


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("off", "idle~"),
        ("powering_up busy", "busy#"),
        ("powering_down down", "down%"),
        ("up not_responding", "idle*"),
        ("up busy leaving", "busy!"),
        ("up drained", "drained"),
        ("up busy drained", "draining"),
        ("up busy drained leaving", "draining!"),
    ],
)
def test_a_state_is_written_as_sinfo_does(text, state):
    assert seen(node(text)).state == state
