"""Which processes belong to a job, and to whom a node is for jobs alone."""

import importlib.util
import os
import pwd
import subprocess
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[4] / "roles/scratch/files/usr/local/lib/muster/leftovers.py"
SPEC = importlib.util.spec_from_file_location("leftovers", PROGRAM)
assert SPEC is not None and SPEC.loader is not None
leftovers = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(leftovers)

# As 22.05 and 24.11 make them, and what slurmd starts before it is in one of them.
SLURM_S = [
    "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0",
    "0::/system.slice/n1_slurmstepd.scope/job_7/step_extern/user/task_special",
    "1:name=systemd:/user.slice\n6:freezer:/slurm_n1/uid_20001/job_7/step_extern",
    "0::/system.slice/slurmd.service",
    "0::/system.slice/slurmstepd.scope/system",
]
STRAY = [
    "0::/user.slice/user-20001.slice/user@20001.service/app.slice/job.service",
    "0::/system.slice/cron.service",
    "0::/system.slice/ssh.service\n6:freezer:/",
    "0::/user.slice/job_7.slice/x.service",
    "0::/user.slice/my-slurmd.service",
]


@pytest.mark.parametrize(
    ("groups", "is_stray"), [*((g, False) for g in SLURM_S), *((g, True) for g in STRAY)]
)
def test_what_is_in_no_job(monkeypatch: pytest.MonkeyPatch, groups: str, is_stray: bool) -> None:
    monkeypatch.setattr(leftovers, "_read", lambda _: groups)
    assert leftovers._is_stray(1) is is_stray


def test_a_process_that_has_ended_is_no_stray() -> None:
    assert not leftovers._is_stray(2**22 + 1)


def test_a_process_is_found_by_who_started_it() -> None:
    assert os.getpid() in list(leftovers.processes(os.getuid()))
    assert os.getpid() not in list(leftovers.processes(20077))


def test_it_is_for_those_who_may_not_log_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    listed, node = tmp_path / "list", tmp_path / "node"
    monkeypatch.setattr(leftovers, "NO_LOGIN", str(listed))
    monkeypatch.setattr(leftovers, "CLOUD_NODE", str(node))
    me = os.getuid()
    assert not leftovers.works_by_jobs_alone(me)
    listed.write_text("somebody\n")
    assert not leftovers.works_by_jobs_alone(me)
    listed.write_text(f"somebody\n{pwd.getpwuid(me).pw_name}\n")
    assert leftovers.works_by_jobs_alone(me)
    # On a VM everybody is a person of the cluster, but the system.
    node.touch()
    assert leftovers.works_by_jobs_alone(20077)
    assert not leftovers.works_by_jobs_alone(0)


@pytest.mark.parametrize("missing", ["SLURM_JOB_ID", "SLURM_JOB_UID", "SLURMD_NODENAME"])
def test_it_never_fails_an_epilog(missing: str, capsys: pytest.CaptureFixture[str]) -> None:
    environment = {"SLURM_JOB_ID": "7", "SLURM_JOB_UID": "20077", "SLURMD_NODENAME": "n1"}
    assert leftovers.main([], environment) == 0
    del environment[missing]
    assert leftovers.main([], environment) == 0
    assert "not in the environment" in capsys.readouterr().err


def test_a_process_of_the_job_that_is_still_dying_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    removed: list[str] = []
    looks = iter([[99], [99], [99]])
    group = "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0"
    monkeypatch.setattr(leftovers, "processes", lambda _: iter(next(looks, [])))
    monkeypatch.setattr(leftovers, "_read", lambda _: group)
    thing = leftovers.Leftover("/tmp/mine", 1.0, ["rm"])
    monkeypatch.setattr(leftovers, "leftovers", lambda _: iter([thing]))
    monkeypatch.setattr(leftovers, "_run", lambda command, _: _answer(command, removed))
    leftovers.clean(20077, "7", "n1")
    assert removed == ["rm"]


def test_what_another_job_runs_keeps_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    group = "0::/system.slice/slurmstepd.scope/job_77/step_0/user/task_0"
    monkeypatch.setattr(leftovers, "processes", lambda _: iter([99]))
    monkeypatch.setattr(leftovers, "_read", lambda _: group)
    monkeypatch.setattr(leftovers, "leftovers", lambda _: pytest.fail("looked at files"))
    leftovers.clean(20077, "7", "n1")


def test_squeue_is_asked_again_when_it_gets_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[int | None] = [None, 1, 0]

    def run(command: list[str], seconds: float) -> subprocess.CompletedProcess[str]:
        code = answers.pop(0)
        if code is None:
            raise subprocess.TimeoutExpired(command, seconds)
        return subprocess.CompletedProcess(command, code, "7\n8\n", "no controller")

    monkeypatch.setattr(leftovers, "_run", run)
    monkeypatch.setattr(leftovers, "PAUSE_S", 0.0)
    assert leftovers.other_jobs(20077, "7", "n1") == ["8"]
    answers += [1] * leftovers.TRIES
    assert leftovers.other_jobs(20077, "7", "n1") is None
    assert answers == []


def _answer(command: list[str], removed: list[str]) -> subprocess.CompletedProcess[str]:
    if command[0] != "squeue":
        removed.append(command[0])
    return subprocess.CompletedProcess(command, 0, "7\n", "")
