import re
from pathlib import Path

import pytest

from muster.autoscaler.reconcile.model import CapacityPool, Unread
from muster.autoscaler.report.lifecycle import Stage, View
from muster.autoscaler.report.status_file import BreakerStatus, LastError, Returned, Row, Status
from muster.autoscaler.report.why import MEANING, lasted, why_job, why_node
from muster.autoscaler.slurm.slurmctld import Queued

NOW = 1000.0
POOL = CapacityPool("europe-west4-a", "n1-standard-2", spot=True)
OTHER = CapacityPool("europe-west4-b", "n1-standard-2", spot=False)
GPU = CapacityPool("europe-west4-a", "g2-standard-8", spot=False)
BREAKER = BreakerStatus(POOL, "ZONE_RESOURCE_POOL_EXHAUSTED", 1030, half_open=False)
GPU_BREAKER = BreakerStatus(GPU, "ZONE_RESOURCE_POOL_EXHAUSTED", 1060, half_open=False)
NODE, GPU_NODE = "lab-debug-0", "lab-gpu-0"
PARTITIONS = {
    "debug": (NODE, "lab-debug-1"),
    "all": (NODE, GPU_NODE, "metal-0"),
    "metal": ("metal-0",),
}


def row(stage, since=988.0, reason="", retry=0.0, jobs=()):
    placed = stage is not Stage.WAITING
    return Row(
        View(
            stage,
            "idle",
            POOL.zone if placed else "",
            POOL.machine_type if placed else "",
            placed,
            reason,
            retry,
        ),
        since,
        jobs,
    )


def status(nodes=None, **more):
    facts = {
        "cluster": "lab",
        "written": NOW,
        "slurm_read": NOW,
        "cloud_read": NOW,
        "nodes": nodes or {},
        "off": frozenset({"lab-debug-9"}),
        "jobs": {},
        "returned": {},
        "breakers": (),
        "room": {},
        "sets": {"debug": (POOL, OTHER), "gpu": (GPU, OTHER)},
        "errors": {},
        "unread": {},
    }
    return Status(**facts | more)


def job(state, reason="None", nodes=(), **more):
    facts = {
        "id": 7,
        "shown": "7",
        "state": state,
        "reason": reason,
        "start": 0,
        "user": "ada",
        "partition": "debug",
        "count": 2,
        "nodes": tuple(nodes),
        "asked": (),
    }
    return Queued(**facts | more)


def why(current, queued):
    return why_job(current, "7", [queued], PARTITIONS, NOW)


NODES = {
    Stage.OFF: (
        row(Stage.OFF, reason="muster: no room"),
        "lab-debug-0 is off: muster: no room.",
    ),
    Stage.WAITING: (
        row(Stage.WAITING, reason="rateLimitExceeded: slow", retry=1004, jobs=(7, 8)),
        "lab-debug-0 has waited for 12 s to be asked for: rateLimitExceeded: slow, tried again in "
        "4 s; it is for job 7, 8.",
    ),
    Stage.INSERTING: (
        row(Stage.INSERTING, jobs=(7,)),
        "lab-debug-0 was requested from the cloud 12 s ago (n1-standard-2 (spot) in "
        "europe-west4-a); it is for job 7.",
    ),
    Stage.BOOTING: (
        row(Stage.BOOTING, since=700),
        "lab-debug-0 has been booting for 5 min (n1-standard-2 (spot) in europe-west4-a).",
    ),
    Stage.STUCK: (
        row(Stage.STUCK, reason="its VM says: mount /home"),
        "lab-debug-0 boots too long and is released soon (n1-standard-2 (spot) in "
        "europe-west4-a): its VM says: mount /home.",
    ),
    Stage.LEAVING: (
        row(Stage.LEAVING, reason="muster: Google takes this spot VM back"),
        "lab-debug-0 has taken no more jobs for 12 s, and is powered down when it has none: "
        "muster: Google takes this spot VM back.",
    ),
    Stage.DRAINED: (
        row(Stage.DRAINED, reason="disk"),
        "lab-debug-0 has been drained for 12 s: disk.",
    ),
    Stage.RELEASED: (
        row(Stage.RELEASED, reason="no room"),
        "lab-debug-0 was released 12 s ago: no room.",
    ),
}


@pytest.mark.parametrize("stage", NODES)
def test_what_state_a_node_is_in(stage):
    shown, sentence = NODES[stage]
    assert why_node(status({"lab-debug-0": shown}), "lab-debug-0", NOW) == sentence


@pytest.mark.parametrize("stage", Stage)
def test_every_stage_is_one_sentence(stage):
    said = why_node(status({"n": row(stage)}), "n", NOW)
    assert said and re.fullmatch(r"n (is|has|was|boots) [^\n]+\.", said)


def test_a_node_that_nobody_needs_and_one_that_nobody_knows():
    assert why_node(status(), "lab-debug-9", NOW) == "lab-debug-9 is off: no job needs it."
    assert why_node(status(), "lab-debug-77", NOW) is None


def test_a_node_that_waits_says_what_blocks_it():
    said = why_node(
        status(
            {NODE: row(Stage.WAITING)},
            breakers=(
                BREAKER,
                BreakerStatus(OTHER, "ZONE_RESOURCE_POOL_EXHAUSTED", 900, half_open=True),
            ),
            room={OTHER: 0, POOL: 5},
            errors={"debug": LastError(940, "making n", "forbidden", "no right to")},
        ),
        NODE,
        NOW,
    )
    assert said == (
        "lab-debug-0 has waited for 12 s to be asked for; "
        "there was no room for n1-standard-2 (spot) in europe-west4-a "
        "(ZONE_RESOURCE_POOL_EXHAUSTED), tried again in 30 s; "
        "it is being tried whether there is room for n1-standard-2 in europe-west4-b again; "
        "the quota has no room for n1-standard-2 in europe-west4-b; "
        "making n failed 60 s ago: forbidden: no right to."
    )


@pytest.mark.parametrize(("at", "since"), [(NOW - 200, "for 3 min"), (0, "yet")])
def test_what_has_not_answered_for_long_is_said(at, since):
    unanswered = status({"n": row(Stage.WAITING)}, cloud_read=at)
    assert why_node(unanswered, "n", NOW) == (
        f"n has waited for 12 s to be asked for; the cloud has not answered the daemon {since}."
    )


def test_what_cant_be_read_is_said_with_the_error():
    unread = {"the cloud": Unread(960, "403: Required 'compute.instances.list' permission")}
    unreadable = status({"n": row(Stage.WAITING)}, cloud_read=NOW - 200, unread=unread)
    assert why_node(unreadable, "n", NOW) == (
        "n has waited for 12 s to be asked for; the cloud can't be read since 40 s: "
        "403: Required 'compute.instances.list' permission."
    )


def test_an_error_of_long_ago_explains_nothing():
    old = {"debug": LastError(300, "making n", "forbidden", "no right to")}
    assert why_node(status({NODE: row(Stage.WAITING)}, errors=old), NODE, NOW) == (
        "lab-debug-0 has waited for 12 s to be asked for."
    )


LACKING = {
    "breakers": (BREAKER, GPU_BREAKER),
    "room": {POOL: 3, OTHER: 0, GPU: 0},
    "errors": {
        "debug": LastError(940, "making lab-debug-1", "forbidden", "no right to"),
        "gpu": LastError(950, "making lab-gpu-1", "gone", "no template"),
    },
}
OF_DEBUG = (
    "there was no room for n1-standard-2 (spot) in europe-west4-a (ZONE_RESOURCE_POOL_EXHAUSTED), "
    "tried again in 30 s; the quota has no room for n1-standard-2 in europe-west4-b; "
    "making lab-debug-1 failed 60 s ago: forbidden: no right to."
)
OF_GPU = (
    "there was no room for g2-standard-8 in europe-west4-a (ZONE_RESOURCE_POOL_EXHAUSTED), tried "
    "again in 60 s; the quota has no room for n1-standard-2 in europe-west4-b; the quota has no "
    "room for g2-standard-8 in europe-west4-a; making lab-gpu-1 failed 50 s ago: gone: no template."
)
OF_BOTH = (
    "set debug: there was no room for n1-standard-2 (spot) in europe-west4-a "
    "(ZONE_RESOURCE_POOL_EXHAUSTED), tried again in 30 s; "
    "set gpu: there was no room for g2-standard-8 in europe-west4-a (ZONE_RESOURCE_POOL_EXHAUSTED),"
    " tried again in 60 s; "
    "sets debug, gpu: the quota has no room for n1-standard-2 in europe-west4-b; "
    "set gpu: the quota has no room for g2-standard-8 in europe-west4-a; "
    "making lab-debug-1 failed 60 s ago: forbidden: no right to; "
    "making lab-gpu-1 failed 50 s ago: gone: no template."
)


@pytest.mark.parametrize(("node", "lacks"), [(NODE, OF_DEBUG), (GPU_NODE, OF_GPU)])
def test_a_node_that_waits_says_what_its_own_set_lacks(node, lacks):
    lacking = status({node: row(Stage.WAITING)}, **LACKING)
    assert why_node(lacking, node, NOW) == f"{node} has waited for 12 s to be asked for; {lacks}"


@pytest.mark.parametrize(
    ("asks", "lacks"),
    [
        ({"partition": "debug"}, OF_DEBUG),
        ({"partition": "all"}, OF_BOTH),
        ({"partition": "debug,all"}, OF_BOTH),
        ({"partition": "all", "asked": (GPU_NODE,), "count": 1}, OF_GPU),
        # Its second node may be any of the partition.
        ({"partition": "all", "asked": (GPU_NODE,)}, OF_BOTH),
        ({"partition": "metal"}, ""),
        ({"partition": "made-a-moment-ago"}, OF_BOTH),
    ],
)
def test_a_job_that_waits_says_what_the_sets_lack_that_it_may_get_nodes_of(asks, lacks):
    said = why(status(**LACKING), job("PENDING", "Resources", **asks))
    waits = "job 7 waits with the reason Resources: no nodes are free that fit it"
    assert said == (f"{waits}; {lacks}" if lacks else f"{waits}.")


def test_a_job_that_has_its_nodes_says_what_those_lack_that_wait():
    nodes = {NODE: row(Stage.WAITING), GPU_NODE: row(Stage.BOOTING)}
    said = why(status(nodes, **LACKING), job("CONFIGURING", nodes=nodes))
    assert said and said.endswith(f"(n1-standard-2 (spot) in europe-west4-a); {OF_DEBUG}")


def test_a_job_that_waits_for_resources():
    said = why(status(breakers=(BREAKER,)), job("PENDING", "Resources"))
    assert said == (
        "job 7 waits with the reason Resources: no nodes are free that fit it; there was no room "
        "for n1-standard-2 (spot) in europe-west4-a (ZONE_RESOURCE_POOL_EXHAUSTED), tried again in "
        "30 s."
    )


BEGIN = (
    "job 7 waits with the reason BeginTime: its time to begin is not reached; SLURM sets one "
    "when it queues a job again"
)


def test_a_job_whose_nodes_were_released_says_when_it_may_start_again():
    queued_again = status(returned={7: Returned(974, "no room")})
    assert why(queued_again, job("PENDING", "BeginTime", start=1095)) == (
        f"{BEGIN}; it may start again in 95 s; its nodes were released 26 s ago: no room."
    )
    # SLURM gives this reason at first, for some seconds.
    assert why(queued_again, job("PENDING", "None", start=1121)) == (
        "job 7 waits with the reason None: SLURM has not looked at it yet; it may start again in "
        "2 min; its nodes were released 26 s ago: no room."
    )


def test_a_job_that_is_not_to_begin_yet_says_when_it_may_start():
    assert (
        why(status(), job("PENDING", "BeginTime", start=11800)) == f"{BEGIN}; it may start in 3 h."
    )
    assert why(status(), job("PENDING", "BeginTime", start=999)) == f"{BEGIN}."


def test_when_slurm_expects_that_there_is_room_is_not_said():
    """It does not know whether the cloud has any."""
    said = why(status(), job("PENDING", "Resources", start=4600))
    assert said == "job 7 waits with the reason Resources: no nodes are free that fit it."


def test_a_reason_that_nobody_explains_is_said_as_it_is():
    said = why(status(), job("PENDING", "AssocGrpGRES"))
    assert said == "job 7 waits with the reason AssocGrpGRES."


def test_a_reason_with_more_words_is_explained():
    said = why(status(), job("PENDING", "ReqNodeNotAvail, UnavailableNodes:n3"))
    assert said and said.endswith(": a node that it asks for by name is not in service.")


def test_a_job_whose_nodes_boot():
    nodes = {f"n{number}": row(Stage.BOOTING) for number in range(5)} | {"n9": row(Stage.BUSY)}
    said = why(status(nodes), job("CONFIGURING", nodes=nodes))
    where = "has been booting for 12 s (n1-standard-2 (spot) in europe-west4-a)"
    assert said == (
        f"job 7 waits for 5 of its 6 nodes; n0 {where}; n1 {where}; n2 {where}; and 2 more."
    )


def test_a_job_whose_nodes_are_there():
    nodes = {"n0": row(Stage.BUSY), "n1": row(Stage.BUSY)}
    said = why(status(nodes), job("CONFIGURING", nodes=nodes))
    assert said == "job 7 has its nodes, n[0-1], and is about to start."
    said = why(status(nodes), job("RUNNING", nodes=nodes))
    assert said == "job 7 is running on n[0-1]."


def test_of_an_array_the_tasks_that_wait_are_meant():
    queue = [
        job("RUNNING", nodes=["n0"], shown="7_1", id=8),
        job("PENDING", "Priority", shown="7_[2-9]"),
    ]
    assert "job 7_[2-9] waits" in (why_job(status(), "7", queue, PARTITIONS, NOW) or "")
    assert "job 7_1 is running" in (why_job(status(), "7_1", queue, PARTITIONS, NOW) or "")


MEANT = f"Priority: {MEANING['Priority']}."


@pytest.mark.parametrize(
    ("shown", "task", "waits"),
    [
        ("7_[3-9%2]", "7_3", True),
        ("7_[3-9%2]", "7_2", False),
        ("7_[3-9%2]", "8_3", False),
        ("7_[3-9:2]", "7_5", True),
        ("7_[3-9:2]", "7_4", False),
        ("7_[1,3-4,8%10]", "7_8", True),
        ("7_[1,3-4,8%10]", "7_10", False),
        # squeue shows 64 characters: https://slurm.schedmd.com/squeue.html#OPT_SLURM_BITSTR_LEN
        ("7_[1,3,5,...]", "7_77", True),
        ("7_[1,3,5,...]", "77_7", False),
        ("7", "7_0", False),
        ("7_1", "7_0", False),
    ],
)
def test_a_task_is_found_among_those_that_squeue_shows_together(shown, task, waits):
    queue = [job("RUNNING", nodes=["n0"], shown="6_1", id=8)]
    queue.append(job("PENDING", "Priority", shown=shown))
    said = why_job(status(), task, queue, PARTITIONS, NOW)
    assert said == (f"job {shown} waits with the reason {MEANT}" if waits else None)


def test_a_job_that_is_not_in_the_queue():
    assert why_job(status(), "8", [job("PENDING")], PARTITIONS, NOW) is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-3, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (2 * 86400, "2 d")],
)
def test_a_time_is_short(seconds, text):
    assert lasted(seconds) == text


def test_reasons_are_explained_as_slurm_spells_them():
    """Recorded by squeue of both releases."""
    for queue in (Path(__file__).parent / "data").glob("*/queue"):
        waits = [line.split("|")[3] for line in queue.read_text().splitlines() if "PENDING" in line]
        assert waits and set(waits) <= set(MEANING)
