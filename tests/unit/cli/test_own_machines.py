"""`muster why JOB` of a cluster on own machines: muster-job says it on the controller."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from muster.cli import controller_option, host_programs, own_machines
from muster.cli.main import app
from muster.verify import ansible_query
from muster.verify.ansible_query import AskError, Found

INVENTORIES = Path(__file__).parents[3] / "inventories"
LAB = INVENTORIES / "lab"
SAID = "Job 41, of eve: PENDING, 1 node in gpu\n  It waits: it is held \x1b[2J (JobHeldUser)\n"


def answer(out: str = "", err: str = "", code: int = 0) -> Found:
    return Found({"lab-access": {"stdout": out, "stderr": err, "rc": code}}, [])


class Ansible:
    """What Ansible says, and what it was asked."""

    def __init__(self) -> None:
        self.reply: Found | AskError = answer(SAID)
        self.asked: list[tuple[Any, ...]] = []

    def __call__(
        self,
        inventory: Path,
        playbook: str,
        hosts: list[str],
        key: str,
        variables: Mapping[str, Any],
    ) -> Found:
        self.asked.append((inventory, playbook, hosts, key, variables))
        if isinstance(self.reply, AskError):
            raise self.reply
        return self.reply


@pytest.fixture
def ansible(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Ansible:
    made = Ansible()
    monkeypatch.setattr(own_machines, "ask", made)
    monkeypatch.setattr(host_programs, "PROGRAMS", tmp_path)
    monkeypatch.setattr(own_machines, "PROGRAMS", tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inventories").mkdir()
    return made


def why(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["why", *words])
    return result.exit_code, result.stdout, result.stderr


def test_muster_job_is_asked_on_the_controller(ansible: Ansible) -> None:
    code, out, err = why("41", "--cluster", str(LAB))
    assert (code, err) == (0, "asking lab-access\n")
    assert out == SAID.replace("\x1b", " ")
    assert ansible.asked == [(LAB, "job.yml", ["lab-access"], "stdout", {"job": "41"})]


@pytest.mark.parametrize(
    ("typed", "number"), [("12_3", "12_3"), ("12+1", "12+1"), ("12_[3-5%2]", "12")]
)
def test_a_job_is_called_as_muster_job_calls_it(ansible: Ansible, typed: str, number: str) -> None:
    assert why(typed, "--cluster", str(LAB))[0] == 0
    assert ansible.asked[0][-1] == {"job": number}


@pytest.mark.parametrize("typed", ["4{{ lookup('pipe', 'id') }}", "12;id", "١٢"])
def test_what_is_no_number_is_not_asked_for(ansible: Ansible, typed: str) -> None:
    code, out, err = why(typed, "--cluster", str(LAB))
    assert (code, out) == (2, "")
    assert "is no number of a job, such as 12 or 12_3" in err
    assert ansible.asked == []


DOWN = "squeue failed: slurm_load_jobs error: Unable to contact slurm controller"
FAILURES = {
    "there is no such job": (
        answer(err="error: there is no job 41; sacct lists yours of today\n", code=2),
        2,
        "lab-access: there is no job 41; sacct lists yours of today",
    ),
    "slurmctld is down": (
        answer(err=f"error: {DOWN}; try again on a login node, or tell an administrator\n", code=1),
        1,
        f"lab-access: {DOWN}; look at `systemctl status slurmctld` there",
    ),
    "muster-job is not there": (
        answer(code=2),
        4,
        "lab-access has no muster-job; run site.yml, which installs it",
    ),
    "the host is away": (
        Found({}, ["lab-access: could not be asked: timed out; try: ansible"]),
        4,
        "lab-access: could not be asked: timed out; try: ansible",
    ),
    "Ansible did not start": (AskError("no Ansible"), 4, "no Ansible"),
}


@pytest.mark.parametrize("case", FAILURES)
def test_a_failure_is_one_sentence_and_a_code(ansible: Ansible, case: str) -> None:
    ansible.reply, code, says = FAILURES[case]
    assert why("41", "--cluster", str(LAB)) == (code, "", f"asking lab-access\nerror: {says}\n")


ODD: dict[str, tuple[dict[str, Any], str]] = {
    "an output that is a list": ({"stdout": ["x"], "stderr": "", "rc": 0}, "stdout"),
    "no errors": ({"stdout": "", "rc": 0}, "stderr"),
    "errors that are a number": ({"stdout": "", "stderr": 7, "rc": 1}, "stderr"),
    "no exit code": ({"stdout": "", "stderr": ""}, "rc"),
    "an exit code that is a text": ({"stdout": "", "stderr": "x", "rc": "0"}, "rc"),
    "one that is no number": ({"stdout": "", "stderr": "x", "rc": float("nan")}, "rc"),
    "one of many digits": ({"stdout": "", "stderr": "x", "rc": 10**400}, "rc"),
}


@pytest.mark.parametrize("case", ODD)
def test_an_answer_that_can_not_be_right_is_one_sentence_and_a_code(
    ansible: Ansible, case: str
) -> None:
    result, field = ODD[case]
    ansible.reply = Found({"lab-access": result}, [])
    code, out, err = why("41", "--cluster", str(LAB))
    assert (code, out) == (4, "")
    assert err == (
        f"asking lab-access\nerror: lab-access: its report can't be right: {field} is missing or "
        "of another type; find out who changed programs there, or install the host again\n"
    )


def test_the_only_cluster_need_not_be_named(ansible: Ansible) -> None:
    shutil.copytree(LAB, "inventories/lab")
    assert why("41")[0] == 0
    assert ansible.asked[0][0] == Path("inventories/lab")
    shutil.copytree(LAB, "inventories/other")
    code, _, err = why("41")
    assert code == 2
    assert err == "error: which cluster? There are lab, other; name one with --cluster\n"


def test_one_in_the_cloud_goes_first(ansible: Ansible, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(LAB, "inventories/lab")
    shutil.copytree(INVENTORIES / "cloud", "inventories/cloud")
    monkeypatch.setenv("PATH", "/nowhere")
    code, _, err = why("41")
    assert code == 4
    assert err.startswith("inventories/cloud: asking Pulumi where its controller is\n")
    assert ansible.asked == []


def test_a_login_is_the_inventory_s(ansible: Ansible) -> None:
    code, _, err = why("41", "--cluster", str(LAB), "--user", "ada")
    assert code == 2
    assert "leave out --user" in err
    assert ansible.asked == []


def test_a_host_that_has_muster_job_runs_it(
    ansible: Ansible, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "muster-job").touch(0o755)
    calls: list[Any] = []

    def execv(program: str, words: list[str]) -> None:
        calls.append((Path(program).name, words[1:]))
        raise SystemExit(0)

    monkeypatch.setattr(os, "execv", execv)
    assert why("12_[3-5]")[0] == 0
    assert calls == [("muster-job", ["--", "12"])]
    assert ansible.asked == []


def test_the_autoscaler_s_controller_asks_itself(
    ansible: Ansible, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shutil.copytree(LAB, "inventories/lab")
    monkeypatch.setattr(controller_option, "SETTINGS", tmp_path)
    assert why("41")[0] == 2
    assert ansible.asked == []


def test_the_playbook_runs_the_program_of_the_role(tmp_path: Path) -> None:
    """With the real Ansible; this machine is the controller, and has no muster-job."""
    (tmp_path / "hosts.yml").write_text(
        "controller: {hosts: {c1: {ansible_connection: local, "
        "ansible_python_interpreter: /usr/bin/python3}}}\n"
    )
    found = ansible_query.ask(tmp_path, "job.yml", ["c1"], "stdout", {"job": "41"})
    assert found.unreached == []
    result = found.answers["c1"]
    assert result["cmd"] == "/usr/local/bin/muster-job -- 41"
    # As a failure of muster-job's own never is.
    assert (result["stdout"], result["stderr"]) == ("", "")
