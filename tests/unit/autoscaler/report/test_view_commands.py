"""`muster nodes`, `muster why`, `muster timeline` as a person types them."""

import json
import re
import time

import pytest
from typer.testing import CliRunner
from viewkit import Watched, cold_start

from muster.autoscaler.slurm import slurmctld
from muster.autoscaler.slurm.slurmctld import Queued
from muster.cli import host_programs
from muster.cli.main import app


@pytest.fixture
def watched(tmp_path):
    """A daemon that has just written."""
    made = Watched(tmp_path)
    now = int(time.time())
    made.round(now - 200, nodes={"debug-[0-11]": "off"}, vms={})
    cold_start(made, "debug-10", at=now - 180)
    made.round(
        now - 50, nodes={"debug-2": "powering_up", "debug-9": "up drained: [red]a\x1b[2Jb <c>"}
    )
    made.round(now)
    yield made
    made.events.close()


def muster(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_nodes_are_a_table(watched):
    shown = muster("nodes", "--status", watched.status_file)
    assert shown.exit_code == 0
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert lines[0] == ["node", "state", "stage", "since", "zone", "type", "$/h", "reason"]
    # By number, and those that are off are only counted.
    assert [line[0] for line in lines[1:4]] == ["lab-debug-2", "lab-debug-9", "lab-debug-10"]
    assert lines[3][1:] == ["busy", "busy", "3", "min", "europe-west4-a", "n1", "-"]
    assert "3 nodes; 9 more are off" in shown.stdout


def test_texts_of_others_are_shown_as_they_are_but_for_what_moves_the_cursor(watched):
    shown = muster("nodes", "--status", watched.status_file)
    assert "[red]a [2Jb <c>" in shown.stdout
    assert "\x1b" not in shown.stdout


def test_what_cant_be_read_is_said_below(watched):
    document = json.loads(watched.status_file.read_text())
    why = "403: Required 'compute.instances.list' \x1b[2J permission"
    document["unread"] = {"the cloud": {"since": document["written"] - 600, "why": why}}
    pool = {"zone": "a", "machine_type": "n1", "spot": False, "gpus": ""}
    breaker = {
        "code": "NO_ROOM",
        "until": document["written"] + 5410,
        "half_open": False,
        "size": 50,
    }
    document["breakers"] = [pool | breaker]
    watched.status_file.write_text(json.dumps(document))
    shown = muster("nodes", "--status", watched.status_file).stdout
    assert "the cloud can't be read since 10 min: 403: Required 'compute.instances.list'" in shown
    assert "\x1b" not in shown
    assert "no room for 50 VMs at once of n1 in a: NO_ROOM, tried again in 90 min" in shown


def test_a_price_is_shown_for_a_vm_that_exists(tmp_path, watched):
    document = json.loads(watched.status_file.read_text())
    for node in document["nodes"].values():
        node["machine_type"] = "n1-standard-2"
        node["zone"] = "europe-west4-a"
    watched.status_file.write_text(json.dumps(document))
    shown = muster("nodes", "--status", watched.status_file).stdout.splitlines()
    inserting, busy = shown[1].split(), shown[3].split()
    assert "0.105" in busy
    assert inserting[2] == "inserting" and "0.105" not in inserting
    assert "0.21 $/h for VMs at list prices of 2026-" in "".join(shown)


def test_of_gpus_that_are_attached_no_price_is_known(tmp_path, watched):
    document = json.loads(watched.status_file.read_text())
    for node in document["nodes"].values():
        node |= {"machine_type": "n1-standard-2", "gpus": "t4:1", "zone": "europe-west4-a"}
    watched.status_file.write_text(json.dumps(document))
    shown = muster("nodes", "--status", watched.status_file).stdout.splitlines()
    assert shown[3].split()[-3:] == ["n1-standard-2", "t4:1", "-"]
    assert "$/h for VMs" not in "".join(shown)


def test_a_node_is_explained(watched):
    shown = muster("why", "lab-debug-10", "--status", watched.status_file)
    assert shown.exit_code == 0
    assert shown.stdout == "lab-debug-10 has had jobs for 3 min (n1 in europe-west4-a).\n"


def test_why_shows_texts_of_others_but_for_what_moves_the_cursor(watched):
    shown = muster("why", "lab-debug-9", "--status", watched.status_file)
    assert "[red]a [2Jb <c>" in shown.stdout
    assert "\x1b" not in shown.stdout


def test_a_node_does_not_say_what_another_set_lacks(tmp_path):
    made, now = Watched(tmp_path), int(time.time())
    asked = {
        "r1": {"at": now - 9, "nodes": "debug-0"},
        "r2": {"at": now - 9, "nodes": "close-0"},
    }
    made.round(
        now - 8, nodes={"debug-0": "powering_up", "close-0": "powering_up"}, requests=asked, vms={}
    )
    shortage = "refused close-0: ZONE_RESOURCE_POOL_EXHAUSTED none"
    made.round(now, events=[shortage, "refused debug-0: rateLimitExceeded slow"])
    made.events.close()
    said = muster("why", "lab-debug-0", "--status", made.status_file).stdout
    # It is tried again after a second, which may be over.
    assert re.fullmatch(
        r"lab-debug-0 has waited for \d+ s to be asked for: rateLimitExceeded: slow"
        r"(, tried again in \d+ s)?\.\n",
        said,
    )


def test_a_node_that_nobody_knows(watched):
    shown = muster("why", "lab-debug-77", "--status", watched.status_file)
    assert (shown.exit_code, shown.stdout) == (2, "")
    assert shown.stderr.startswith("error: no node of lab in the cloud is called lab-debug-77")


def test_a_job_where_there_is_no_slurm(watched, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    shown = muster("why", "7", "--status", watched.status_file)
    assert shown.exit_code == 2
    assert "squeue" in shown.stderr


class Queue:
    """slurmctld with a job that is pending and one that runs."""

    def queue(self):
        alike = {
            "start": 0.0,
            "user": "ada",
            "partition": "debug",
            "count": 1,
            "nodes": (),
            "asked": (),
        }
        return [
            Queued(id=7, shown="7_[1-3]", state="PENDING", reason="AssocGrpGRES", **alike),
            Queued(id=8, shown="8", state="RUNNING", reason="None", **alike),
        ]

    def partitions(self):
        return {}


@pytest.fixture
def muster_job(tmp_path, monkeypatch):
    """muster-job of the host, which repeats its words or fails."""
    monkeypatch.setattr(slurmctld, "Slurm", Queue)
    monkeypatch.setattr(host_programs, "PROGRAMS", tmp_path)

    def write(does):
        program = tmp_path / "muster-job"
        program.write_text(f"#!/bin/sh\n{does}\n")
        program.chmod(0o755)

    return write


def test_of_a_job_that_is_pending_it_says_what_muster_job_says(watched, muster_job):
    muster_job('echo "said of $*"')
    for number, asked in (("7", "7"), ("7_[1-3]", "7"), ("7_2", "7_2")):
        shown = muster("why", number, "--status", watched.status_file)
        first, second = shown.stdout.splitlines()
        assert first.startswith("job 7_[1-3] waits with the reason AssocGrpGRES")
        assert second == f"said of -- {asked}"
    assert "said of" not in muster("why", "8", "--status", watched.status_file).stdout
    assert "7_4 is not in the queue" in muster("why", "7_4", "--status", watched.status_file).stderr


@pytest.mark.parametrize("does", [None, "echo half; exit 1"])
def test_without_muster_job_it_says_its_own(watched, muster_job, does):
    if does:
        muster_job(does)
    shown = muster("why", "7", "--status", watched.status_file)
    assert shown.exit_code == 0
    assert shown.stdout.startswith("job 7_[1-3] waits with the reason AssocGrpGRES")
    assert shown.stdout.count("\n") == 1


@pytest.mark.parametrize("words", [["nodes"], ["why", "lab-debug-0"], ["why", "7"]])
def test_without_a_status_the_place_to_look_is_said(tmp_path, words):
    shown = muster(*words, "--status", tmp_path / "none.json")
    assert (shown.exit_code, shown.stdout) == (2, "")
    assert "no such file; it is on the cluster's controller" in shown.stderr


def test_a_daemon_that_has_stopped_is_said_behind_what_it_said_last(watched):
    document = json.loads(watched.status_file.read_text())
    watched.status_file.write_text(json.dumps(document | {"written": document["written"] - 100}))
    for words in (["nodes"], ["why", "lab-debug-10"]):
        shown = muster(*words, "--status", watched.status_file)
        assert shown.exit_code == 1
        # As it was then.
        assert "50 s" in shown.stdout
        assert "the daemon has stopped or hangs; look at `systemctl status" in shown.stderr


def test_a_timeline_is_written(watched, tmp_path):
    shown = muster("timeline", "--log", watched.log_file, tmp_path / "out.svg")
    assert (shown.exit_code, shown.stdout) == (
        0,
        f"wrote {tmp_path / 'out.svg'}: 3 nodes, 1 jobs\n",
    )
    assert "lab-debug-10" in (tmp_path / "out.svg").read_text()


def test_a_timeline_of_less(watched, tmp_path):
    for since, booting in (("2h", True), ("20s", False)):
        muster("timeline", "--since", since, "--log", watched.log_file, tmp_path / "out.svg")
        assert (">booting<" in (tmp_path / "out.svg").read_text()) is booting
    shown = muster("timeline", "--since", "yesterday", "--log", watched.log_file, "x.svg")
    assert shown.exit_code == 2
    assert "'yesterday' is no time; write 90m" in shown.stderr


def test_a_timeline_without_a_log_or_a_place(watched, tmp_path):
    shown = muster("timeline", "--log", tmp_path / "none" / "log", tmp_path / "out.svg")
    assert shown.exit_code == 2
    assert "No such file or directory; the log is on the cluster's controller" in shown.stderr
    shown = muster("timeline", "--log", watched.log_file, tmp_path / "none" / "out.svg")
    assert shown.exit_code == 2
    assert "can't be written" in shown.stderr


@pytest.mark.parametrize("command", ["nodes", "why", "timeline"])
def test_each_command_says_what_it_does(command):
    shown = muster(command, "--help")
    assert shown.exit_code == 0
    assert command in muster("--help").stdout
