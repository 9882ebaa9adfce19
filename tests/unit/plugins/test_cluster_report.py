"""How long verify waits for nodes: for those that may come up by themselves."""

import importlib.util
from pathlib import Path

import pytest

PATH = Path(__file__).parents[3] / "ansible/plugins/modules/cluster_report.py"
SPEC = importlib.util.spec_from_file_location("cluster_report", PATH)
cluster_report = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(cluster_report)

PARAMETERS = {"settle_seconds": 30, "answer_seconds": 120}


class Module:
    params = PARAMETERS


@pytest.mark.parametrize(
    ("state", "seconds"),
    [
        ("idle", 0),
        ("mixed", 0),
        ("completing", 0),
        ("idle*", 120),
        ("completing*", 120),
        ("unknown", 120),
        ("down", 30),
        ("down*", 30),
        # Switched off for a repair: nobody waits for it.
        ("drained*", 0),
        ("draining", 0),
    ],
)
def test_patience(state, seconds):
    cluster = cluster_report.Cluster(Module())
    assert cluster.patience({"name": "lab-cpu-01", "state": state}) == seconds


class Programs:
    """Answers of SLURM's programs, by name; `error` is that of all."""

    def __init__(self, accounting=True, error="", **said):
        self.params = {
            **PARAMETERS,
            "accounting": accounting,
            "ping_seconds": 0,
            "job_seconds": 1,
            "max_job_nodes": 64,
            "jobs": {},
        }
        self.said, self.error = said, error
        self.commands = []

    def run_command(self, command):
        self.commands.append(command)
        program = command[2] if command[0] == "timeout" else command[0]
        return int(bool(self.error)), self.said[program], self.error


@pytest.mark.parametrize(
    "said",
    [
        "0: 17 lab-cpu-01\n",
        "1: 17 lab-cpu-02\n0: 17 lab-cpu-01\n",
        " 0: 17 lab-cpu-01\n10: 17 lab-cpu-10\n",
        "plugin: loaded\n0: /etc/profile: 3 files\n0: 17 lab-cpu-01\n",
        "0: 17\n",
    ],
)
def test_the_job_is_found_in_what_srun_prints(said):
    programs = Programs(srun=said, sacct=" COMPLETED\n")
    job = cluster_report.Cluster(programs).job("cpu", ["lab-cpu-01"], cluster_report.SMALL)
    assert (job["code"], job["accounted"]) == (0, True)
    assert "--jobs=17" in programs.commands[1]


@pytest.mark.parametrize("accounting", [True, False])
@pytest.mark.parametrize("said", ["", "\n", "0:\n", "0: no job here\n", "17\n"])
def test_a_job_that_does_not_print_its_number_has_failed(said, accounting):
    programs = Programs(accounting, srun=said)
    job = cluster_report.Cluster(programs).job("cpu", ["lab-cpu-01"], cluster_report.SMALL)
    assert job["code"] == 1
    assert "did not print its number but: " in job["output"]
    assert "accounted" not in job


@pytest.mark.parametrize(
    ("asked", "nodes"),
    [
        ({}, ["a,b,c,d,e"]),
        ({"most": 2}, ["a,b", "c,d", "e"]),
        # The last node is not enough for a job: another one runs two.
        ({"most": 2, "least": 2}, ["a,b", "c,d", "d,e"]),
        ({"least": 6}, []),
        ({"most": 0}, []),
    ],
)
def test_there_are_as_many_jobs_as_limits_want(asked, nodes):
    programs = Programs(srun="0: 17 a\n", sacct=" COMPLETED\n")
    small = {**cluster_report.SMALL, "options": ["--gpus-per-node=1"]}
    programs.params["jobs"] = {"cpu": {**small, **asked}}
    jobs = cluster_report.Cluster(programs).jobs_on("cpu", list("abcde"))
    runs = [command for command in programs.commands if "srun" in command]
    assert [f"--nodelist={names}" in run for names, run in zip(nodes, runs, strict=True)] == [
        True for _ in nodes
    ]
    assert all("--gpus-per-node=1" in run for run in runs)
    assert [",".join(job["nodes"]) for job in jobs] == nodes


@pytest.mark.parametrize(
    ("error", "shared", "limited"),
    [
        (f"srun: error: QOSMaxBillingPerUser\nJob {cluster_report.LIMITED} (...)", False, True),
        (f"srun: error: {cluster_report.WAITED}", True, True),
        # Without a limit that others use too, a scheduler that starts nothing is broken.
        (f"srun: error: {cluster_report.WAITED}", False, None),
        ("srun: error: Unable to confirm allocation", True, None),
    ],
)
def test_a_job_that_a_limit_keeps_from_running_is_the_last_of_its_partition(error, shared, limited):
    programs = Programs(error=error, srun="")
    asked = {**cluster_report.SMALL, "most": 1, "shared": shared}
    programs.params["jobs"] = {"cpu": asked}
    jobs = cluster_report.Cluster(programs).jobs_on("cpu", ["a", "b"])
    assert [job.get("limited") for job in jobs] == ([True] if limited else [None, None])


def test_a_ping_without_a_word_is_no_answer():
    assert (
        cluster_report.Cluster(Programs(scontrol="")).unanswered() == "scontrol ping said nothing"
    )


def test_a_reason_of_several_lines_is_that_of_one_node():
    programs = Programs(sinfo="lab-0|cpu|drained|ada|look\nat it\nlab-1|cpu|idle|root|none\n")
    nodes = cluster_report.Cluster(programs).nodes([])
    assert [node["name"] for node in nodes] == ["lab-0", "lab-1"]
    assert [node["reason"] for node in nodes] == ["look", "none"]
