import re
from pathlib import Path

import pytest

from muster.autoscaler.model import Market, Unread
from muster.autoscaler.slurm import Queued
from muster.autoscaler.stages import Stage, View
from muster.autoscaler.status import LastError, Returned, Row, Shut, Status
from muster.autoscaler.why import MEANING, lasted, why_job, why_node

NOW = 1000.0
MARKET = Market("europe-west4-a", "n1-standard-2", spot=True)
OTHER = Market("europe-west4-b", "n1-standard-2", spot=False)


def row(stage, since=988.0, reason="", retry=0.0, jobs=()):
    placed = stage is not Stage.WAITING
    return Row(
        View(
            stage,
            "idle",
            MARKET.zone if placed else "",
            MARKET.machine_type if placed else "",
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
        "error": None,
        "unread": {},
    }
    return Status(**facts | more)


def job(state, reason="None", nodes=(), shown="7", number=7):
    return Queued(number, shown, state, reason, "ada", "debug", 2, tuple(nodes), "train")


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
    Stage.ASKED: (
        row(Stage.ASKED, jobs=(7,)),
        "lab-debug-0 was asked of the cloud 12 s ago (n1-standard-2 (spot) in europe-west4-a); it "
        "is for job 7.",
    ),
    Stage.BOOTING: (
        row(Stage.BOOTING, since=700),
        "lab-debug-0 has been booting for 5 min (n1-standard-2 (spot) in europe-west4-a).",
    ),
    Stage.STUCK: (
        row(Stage.STUCK, reason="its VM says: mount /home"),
        "lab-debug-0 boots too long and is given back soon (n1-standard-2 (spot) in "
        "europe-west4-a): its VM says: mount /home.",
    ),
    Stage.LEAVING: (
        row(Stage.LEAVING, reason="muster: Google takes this spot VM back"),
        "lab-debug-0 has taken no more jobs for 12 s, and goes when it has none: muster: Google "
        "takes this spot VM back.",
    ),
    Stage.DRAINED: (
        row(Stage.DRAINED, reason="disk"),
        "lab-debug-0 has been drained for 12 s: disk.",
    ),
    Stage.GIVEN_BACK: (
        row(Stage.GIVEN_BACK, reason="no room"),
        "lab-debug-0 was given back 12 s ago: no room.",
    ),
}


@pytest.mark.parametrize("stage", NODES)
def test_what_is_with_a_node(stage):
    found, sentence = NODES[stage]
    assert why_node(status({"lab-debug-0": found}), "lab-debug-0", NOW) == sentence


@pytest.mark.parametrize("stage", Stage)
def test_every_stage_is_one_sentence(stage):
    said = why_node(status({"n": row(stage)}), "n", NOW)
    assert said and re.fullmatch(r"n (is|has|was|boots) [^\n]+\.", said)


def test_a_node_that_nobody_needs_and_one_that_nobody_knows():
    assert why_node(status(), "lab-debug-9", NOW) == "lab-debug-9 is off: no job needs it."
    assert why_node(status(), "lab-debug-77", NOW) is None


def test_a_node_that_waits_says_what_stands_in_its_way():
    said = why_node(
        status(
            {"n": row(Stage.WAITING)},
            breakers=(
                Shut(MARKET, "ZONE_RESOURCE_POOL_EXHAUSTED", 1030, on_trial=False),
                Shut(OTHER, "ZONE_RESOURCE_POOL_EXHAUSTED", 900, on_trial=True),
            ),
            room={OTHER: 0, MARKET: 5},
            error=LastError(940, "making n", "forbidden", "no right to"),
        ),
        "n",
        NOW,
    )
    assert said == (
        "n has waited for 12 s to be asked for; "
        "there was no room for n1-standard-2 (spot) in europe-west4-a "
        "(ZONE_RESOURCE_POOL_EXHAUSTED), tried again in 30 s; "
        "it is being tried whether there is room for n1-standard-2 in europe-west4-b again; "
        "the quota has no room for n1-standard-2 in europe-west4-b; "
        "making n failed 60 s ago: forbidden: no right to."
    )


@pytest.mark.parametrize(("at", "since"), [(NOW - 200, "for 3 min"), (0, "yet")])
def test_who_has_not_answered_for_long_is_said(at, since):
    found = status({"n": row(Stage.WAITING)}, cloud_read=at)
    assert why_node(found, "n", NOW) == (
        f"n has waited for 12 s to be asked for; the cloud has not answered the daemon {since}."
    )


def test_what_cant_be_read_is_said_with_the_error():
    unread = {"the cloud": Unread(960, "403: Required 'compute.instances.list' permission")}
    found = status({"n": row(Stage.WAITING)}, cloud_read=NOW - 200, unread=unread)
    assert why_node(found, "n", NOW) == (
        "n has waited for 12 s to be asked for; the cloud can't be read since 40 s: "
        "403: Required 'compute.instances.list' permission."
    )


def test_an_error_of_long_ago_explains_nothing():
    old = LastError(300, "making n", "forbidden", "no right to")
    assert why_node(status({"n": row(Stage.WAITING)}, error=old), "n", NOW) == (
        "n has waited for 12 s to be asked for."
    )


def test_a_job_that_waits_for_resources():
    said = why_job(
        status(breakers=(Shut(MARKET, "ZONE_RESOURCE_POOL_EXHAUSTED", 1030, on_trial=False),)),
        "7",
        [job("PENDING", "Resources")],
        NOW,
    )
    assert said == (
        "job 7 waits with the reason Resources: no nodes are free that fit it; there was no room "
        "for n1-standard-2 (spot) in europe-west4-a (ZONE_RESOURCE_POOL_EXHAUSTED), tried again in "
        "30 s."
    )


def test_a_job_whose_nodes_were_given_back():
    said = why_job(
        status(returned={7: Returned(960, "no room")}), "7", [job("PENDING", "BeginTime")], NOW
    )
    assert said == (
        "job 7 waits with the reason BeginTime: its time to begin is not reached; SLURM sets one "
        "when it queues a job again; its nodes were given back 40 s ago: no room."
    )


def test_a_reason_that_nobody_explains_is_said_as_it_is():
    said = why_job(status(), "7", [job("PENDING", "AssocGrpGRES")], NOW)
    assert said == "job 7 waits with the reason AssocGrpGRES."


def test_a_reason_with_more_words_is_explained():
    said = why_job(status(), "7", [job("PENDING", "ReqNodeNotAvail, UnavailableNodes:n3")], NOW)
    assert said and said.endswith(": a node that it asks for by name is not in service.")


def test_a_job_whose_nodes_boot():
    nodes = {f"n{number}": row(Stage.BOOTING) for number in range(5)} | {"n9": row(Stage.BUSY)}
    said = why_job(status(nodes), "7", [job("CONFIGURING", nodes=nodes)], NOW)
    where = "has been booting for 12 s (n1-standard-2 (spot) in europe-west4-a)"
    assert said == (
        f"job 7 waits for 5 of its 6 nodes; n0 {where}; n1 {where}; n2 {where}; and 2 more."
    )


def test_a_job_whose_nodes_are_there():
    nodes = {"n0": row(Stage.BUSY), "n1": row(Stage.BUSY)}
    said = why_job(status(nodes), "7", [job("CONFIGURING", nodes=nodes)], NOW)
    assert said == "job 7 has its nodes, n[0-1], and is about to start."
    said = why_job(status(nodes), "7", [job("RUNNING", nodes=nodes)], NOW)
    assert said == "job 7 is running on n[0-1]."


def test_of_an_array_the_tasks_that_wait_are_meant():
    queue = [
        job("RUNNING", nodes=["n0"], shown="7_1", number=8),
        job("PENDING", "Priority", shown="7_[2-9]"),
    ]
    assert "job 7_[2-9] waits" in (why_job(status(), "7", queue, NOW) or "")
    assert "job 7_1 is running" in (why_job(status(), "7_1", queue, NOW) or "")


def test_a_job_that_is_not_in_the_queue():
    assert why_job(status(), "8", [job("PENDING")], NOW) is None


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
