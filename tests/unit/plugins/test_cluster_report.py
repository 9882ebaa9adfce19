"""How long verify waits for nodes, and what it says of its test jobs."""

import importlib.util
import os
import subprocess
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
            "credentials": {},
            "jobs": {},
        }
        self.said, self.error = said, error
        self.commands = []

    def fail_json(self, msg):
        raise SystemExit(msg)

    def run(self, command, **_):
        self.commands.append(command)
        program = next(word for word in command if word in self.said)
        said = self.said[program]
        if isinstance(said, list):
            said = said.pop(0) if len(said) > 1 else said[0]
        return int(bool(self.error)), said, self.error


@pytest.fixture
def cluster(answered_by):
    """Return what makes a Cluster of the answers of programs."""

    def make(programs):
        answered_by(programs.run, cluster_report)
        return cluster_report.Cluster(programs)

    return make


@pytest.fixture
def tried(cluster):
    """Return what runs a job where programs answer so."""

    def run(programs, **asked):
        small = {**cluster_report.SMALL, **asked}
        return cluster(programs).job("cpu", ["lab-cpu-01"], small)

    return run


@pytest.mark.parametrize("said", ["17\n", "17;lab\n", "plugin: loaded 3\n17\n"])
def test_the_job_is_found_in_what_sbatch_prints(tried, said):
    states = ["PENDING|Priority|(null)\n", "RUNNING|None|\n", "COMPLETED|None|(null)\n"]
    programs = Programs(sbatch=said, squeue=states, sacct=" COMPLETED\n")
    job = tried(programs)
    assert (job["code"], job["accounted"]) == (0, True)
    assert "--jobs=17" in programs.commands[-1]


@pytest.mark.parametrize("said", ["", "\n", "no job here\n", "0: 17\n"])
def test_a_job_without_a_number_has_failed(tried, said):
    job = tried(Programs(sbatch=said))
    assert job["code"] == 1
    assert "did not print the job's number but: " in job["output"]
    assert "accounted" not in job


@pytest.mark.parametrize(
    ("queue", "says"),
    [
        (
            "FAILED|NonZeroExitCode|srun: error: a: task 0\nsrun: Terminating\n",
            "srun: error: a: task 0 srun: Terminating",
        ),
        ("NODE_FAIL|NodeDown|(null)\n", "job 17 is NODE_FAIL, NodeDown"),
        ("CANCELLED|None|\n", "job 17 is CANCELLED, None"),
    ],
)
def test_what_has_failed_is_said(tried, queue, says):
    job = tried(Programs(sbatch="17\n", squeue=queue))
    assert (job["code"], job["output"]) == (1, says)


@pytest.mark.parametrize(
    ("queue", "shared", "says", "limited"),
    [
        ("PENDING|QOSGrpGRES|(null)\n", True, "it did not start within 1 s: QOSGrpGRES", True),
        # Without a limit that others use too, a scheduler that starts nothing is broken.
        ("PENDING|Resources|(null)\n", False, "it did not start within 1 s: Resources", None),
        ("RUNNING|None|(null)\n", True, "it did not end within its time limit", None),
        # slurmctld is away.
        ("", True, "squeue: ", None),
    ],
)
def test_a_job_that_is_late_is_cancelled(tried, monkeypatch, *, queue, shared, says, limited):
    monkeypatch.setattr(cluster_report, "END_S", 0)
    programs = Programs(sbatch="17\n", squeue=queue, scancel="")
    job = tried(programs, shared=shared)
    assert (job["code"], job["output"], job.get("limited")) == (1, says, limited)
    assert programs.commands[-1] == ["scancel", "17"]


def test_no_socket_of_the_controller_and_no_variable_of_root_is_given_to_a_node(tried):
    """An srun or salloc there connects to what root of a node names, with a forged credential."""
    programs = Programs(sbatch="17\n", squeue="COMPLETED|None|\n", sacct="COMPLETED\n")
    tried(programs)
    words = [word for command in programs.commands for word in command]
    assert not {"srun", "salloc"} & set(words)
    assert programs.commands[0][:2] == ["env", "-i"]


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
def test_there_are_as_many_jobs_as_limits_want(cluster, asked, nodes):
    programs = Programs(sbatch="17\n", squeue="COMPLETED|None|\n", sacct=" COMPLETED\n")
    small = {**cluster_report.SMALL, "options": ["--gpus-per-node=1"]}
    programs.params["jobs"] = {"cpu": {**small, **asked}}
    jobs = cluster(programs).jobs_on("cpu", list("abcde"))
    runs = [command for command in programs.commands if "sbatch" in command]
    assert [f"--nodelist={names}" in run for names, run in zip(nodes, runs, strict=True)] == [
        True for _ in nodes
    ]
    assert all("--gpus-per-node=1" in run for run in runs)
    assert [",".join(job["nodes"]) for job in jobs] == nodes


@pytest.mark.parametrize(
    ("error", "limited"),
    [
        (f"sbatch: error: QOSMaxBillingPerUser\nJob {cluster_report.LIMITED} (...)", True),
        ("sbatch: error: Unable to contact slurm controller", None),
    ],
)
def test_a_job_that_a_limit_refuses_is_the_last_of_its_partition(cluster, error, limited):
    programs = Programs(error=error, sbatch="")
    programs.params["jobs"] = {"cpu": {**cluster_report.SMALL, "most": 1}}
    jobs = cluster(programs).jobs_on("cpu", ["a", "b"])
    assert [job.get("limited") for job in jobs] == ([True] if limited else [None, None])


def test_partitions_that_are_not_told_are_no_reason_to_run_no_job(cluster):
    node = {"name": "a", "partition": "cpu", "state": "idle"}
    with pytest.raises(SystemExit, match=r"sinfo: Unable to contact; is slurmctld up"):
        cluster(Programs(sinfo="", error="Unable to contact")).jobs([node], [])


@pytest.mark.parametrize(
    ("hosts", "cpu"),
    [
        # A node that was added by a run with --limit: others don't have its name yet.
        (["access", "cpu-03"], "cpu-03"),
        (["access", "gpu-01"], "cpu-01,cpu-03"),
        (["access", "cpu-01", "cpu-02", "cpu-03", "gpu-01"], "cpu-01,cpu-03"),
    ],
)
def test_jobs_run_on_the_nodes_of_this_run(cluster, hosts, cpu):
    states = {"cpu-01": "idle", "cpu-02": "mixed", "cpu-03": "idle", "gpu-01": "idle"}
    nodes = [
        {"name": name, "partition": name.partition("-")[0], "state": state}
        for name, state in states.items()
    ]
    programs = Programs(
        sinfo="cpu|up\ngpu|up\n", sbatch="17\n", squeue="COMPLETED|None|\n", sacct=" COMPLETED\n"
    )
    programs.params["credentials"] = dict.fromkeys(hosts, "MUNGE:...")
    jobs = cluster(programs).jobs(nodes, [])
    assert {name: [",".join(job["nodes"]) for job in of_one] for name, of_one in jobs.items()} == {
        "cpu": [cpu],
        "gpu": ["gpu-01"],
    }


@pytest.mark.parametrize("said", ["srun: error: no address", "srun: error: " + "\u00fc" * 600])
def test_what_srun_says_of_a_failure_is_a_comment_that_slurmctld_takes(tmp_path, said):
    for name, text in (
        ("srun", 'echo 0: lab-cpu-01; printf %s "$SAID" >&2; exit 1'),
        ("scontrol", 'printf %s "$3" >"$COMMENT"'),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "SAID": said,
        "COMMENT": str(tmp_path / "comment"),
        "SLURM_JOB_ID": "17",
    }
    done = subprocess.run(
        ["/bin/sh", "-c", cluster_report.SCRIPT], env=environment, timeout=20, check=False
    )
    assert done.returncode == 1
    comment = (tmp_path / "comment").read_bytes().removeprefix(b"comment=")
    assert comment == said.encode()[: cluster_report.COMMENT_BYTES]
    assert len(comment) <= 1024


def test_a_ping_without_a_word_is_no_answer(cluster):
    assert cluster(Programs(scontrol="")).unanswered() == "scontrol ping said nothing"


def test_a_reason_of_several_lines_is_that_of_one_node(cluster):
    programs = Programs(sinfo="lab-0|cpu|drained|ada|look\nat it\nlab-1|cpu|idle|root|none\n")
    nodes = cluster(programs).nodes([])
    assert [node["name"] for node in nodes] == ["lab-0", "lab-1"]
    assert [node["reason"] for node in nodes] == ["look", "none"]


@pytest.mark.parametrize("name", ["lab-[1", "", "lab-\u0661", f"lab-{'1' * 64}", "lab 1"])
def test_a_line_of_a_reason_is_no_node(cluster, name):
    """Root of a node decides its reason, and `fold` takes names of hosts alone."""
    lines = f"lab-0|cpu|idle|root|look\n{name}|cpu|idle|root|none\nlab-1|cpu|idle|root|none\n"
    nodes = cluster(Programs(sinfo=lines)).nodes([])
    assert [node["name"] for node in nodes] == ["lab-0", "lab-1"]
