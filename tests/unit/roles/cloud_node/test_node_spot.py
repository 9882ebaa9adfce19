"""The program that takes a spot VM's node out of SLURM; SLURM's commands are simulated."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import node_boot_kit
import pytest
from broken_servers import Answer, told_server
from node_boot_kit import NODE, Machine, Threads
from waiting import until

from muster.autoscaler.reconcile import node_reasons
from muster_sandbox.fakecloud.server import Server

PROGRAM = node_boot_kit.FOLDER / "spot.py"
FIRST = [
    "scontrol",
    "update",
    "nodename=lab-debug-3",
    "state=power_down_asap",
    "reason=muster: Google takes this spot VM back",
]
JOBS = [
    *("squeue", "--noheader", "--nodelist=lab-debug-3"),
    *("--states=RUNNING,CONFIGURING,SUSPENDED",),
    "--Format=JobArrayID:40,HetJobID:20,BatchFlag:8,Requeue:8",
]


@pytest.fixture
def spot(threads: Threads) -> ModuleType:
    """The program, in a hurry."""
    module = threads.stop_in(node_boot_kit.load(PROGRAM))
    module.PAUSE_S, module.AGAIN_S, module.REACH_S = 0.05, 0.01, 0.3
    return module


class Slurm:
    """Commands that are answered as slurmctld would, and noted; `jobs` are lines of squeue's."""

    def __init__(self, module: ModuleType, *jobs: str) -> None:
        self.module = module
        self.jobs = list(jobs)
        self.called: list[list[str]] = []
        self.away = 0
        """How many commands don't reach it."""

    def __call__(self, words: list[str]) -> str:
        if self.away > 0:
            self.away -= 1
            raise self.module.TroubleError("Unable to contact slurm controller (connect failure)")
        self.called.append(words)
        if words[0] == "squeue":
            return "".join(f"{line}\n" for line in self.jobs)
        if words[:2] == ["scontrol", "requeue"]:
            self.jobs = [line for line in self.jobs if line.split()[2:] != ["1", "1"]]
        return ""

    def changed(self) -> list[list[str]]:
        """What was called, but questions."""
        return [words for words in self.called if words[0] != "squeue"]


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc with this and that, and no job."""
    lines = {
        "1": "/sbin/init",
        "7": "/usr/sbin/slurmd\0-D",
        # Of 24.11: it keeps the cgroup of the jobs.
        "8": "/usr/sbin/slurmstepd\0infinity",
        "9": "",
    }
    for name, line in lines.items():
        process(tmp_path / "proc", name, line)
    (tmp_path / "proc/meminfo").touch()
    return tmp_path / "proc"


def process(proc: Path, name: str, line: str) -> Path:
    (proc / name).mkdir(parents=True)
    (proc / name / "cmdline").write_text(line)
    return proc / name / "cmdline"


def leave(spot: ModuleType, slurm: Slurm, proc: Path) -> None:
    spot.Node("lab-debug-3", slurm, str(proc)).leave()


def test_the_node_takes_no_more_jobs_before_its_jobs_are_queued_again(
    spot: ModuleType, proc: Path, capfd: pytest.CaptureFixture
):
    slurm = Slurm(spot, "41 N/A 1 1", "42_7 N/A 1 1")
    leave(spot, slurm, proc)
    assert slurm.called[:3] == [FIRST, JOBS, ["scontrol", "requeue", "41,42_7"]]
    assert slurm.changed() == [FIRST, ["scontrol", "requeue", "41,42_7"]]
    said = [
        "muster: Google takes this spot VM back: lab-debug-3 leaves SLURM",
        "muster: requeue 41 42_7",
        "muster: the jobs of lab-debug-3 have ended",
    ]
    assert capfd.readouterr().out.splitlines() == said


def test_a_node_without_a_job_only_leaves(spot: ModuleType, proc: Path):
    slurm = Slurm(spot)
    leave(spot, slurm, proc)
    assert slurm.changed() == [FIRST]


def test_the_whole_of_a_heterogeneous_job_is_queued_again_once(spot: ModuleType, proc: Path):
    slurm = Slurm(spot, "51+0 51 1 1", "51+1 51 1 1")
    leave(spot, slurm, proc)
    assert slurm.changed()[1:] == [["scontrol", "requeue", "51"]]


def test_what_cant_be_queued_again_is_told_once(spot: ModuleType, proc: Path):
    """A batch job that must not be, and one of srun's; slurmctld is away in between."""
    slurm = Slurm(spot, "61 N/A 1 0", "62 N/A 0 1", "63 N/A 1 1")
    answer = slurm.__call__

    def once_more(words: list[str]) -> str:
        output = answer(words)
        if words[:2] == ["scontrol", "requeue"] and len(slurm.changed()) == 2:
            # One that came while the node was drained.
            slurm.jobs.append("64 N/A 1 1")
        return output

    spot.Node("lab-debug-3", once_more, str(proc)).leave()
    assert slurm.changed() == [
        FIRST,
        ["scontrol", "requeue", "63"],
        ["scancel", "--signal=TERM", "61", "62"],
        ["scancel", "--signal=TERM", "--batch", "61"],
        ["scontrol", "requeue", "64"],
    ]


def test_it_ends_when_the_jobs_have_ended(spot: ModuleType, proc: Path, threads: Threads):
    """systemd stops slurmd, the network and the folders after it."""
    step = process(proc, "99", "slurmstepd: [41.batch]\0")
    slurm = Slurm(spot, "41 N/A 1 1")
    leaving = threads.begin(lambda: leave(spot, slurm, proc))
    until(lambda: len(slurm.called) >= 4, "the job is queued again")
    leaving.join(0.2)
    assert leaving.is_alive()
    step.unlink()
    leaving.join(10)
    assert not leaving.is_alive()


def test_a_slurmctld_that_comes_back_is_told(
    spot: ModuleType, proc: Path, capfd: pytest.CaptureFixture
):
    slurm = Slurm(spot, "41 N/A 1 1")
    slurm.away = 3
    leave(spot, slurm, proc)
    assert slurm.changed() == [FIRST, ["scontrol", "requeue", "41"]]
    said = capfd.readouterr().out
    assert said.count("Unable to contact slurm controller") == 1


def test_a_slurmctld_that_stays_away_keeps_no_job_from_systemd_s_signal(
    spot: ModuleType, proc: Path, capfd: pytest.CaptureFixture
):
    process(proc, "99", "slurmstepd: [41.batch]\0")
    slurm = Slurm(spot, "41 N/A 1 1")
    slurm.away = 10**6
    leave(spot, slurm, proc)
    assert slurm.called == []
    assert "slurmctld is not reached" in capfd.readouterr().out


def test_a_job_that_has_just_ended_is_no_reason_to_leave_off(
    spot: ModuleType, proc: Path, threads: Threads
):
    slurm = Slurm(spot, "41 N/A 1 1", "42 N/A 0 1")
    answer = slurm.__call__
    told: list[list[str]] = []

    def ended(words: list[str]) -> str:
        answer(words)
        if words[:2] == ["scontrol", "requeue"]:
            raise spot.TroubleError("Invalid job id specified for job 41")
        told.append(words)
        return answer(words) if words[0] == "squeue" else ""

    begun = threads.begin(lambda: spot.Node("lab-debug-3", ended, str(proc)).leave())
    begun.join(10)
    assert not begun.is_alive()
    assert slurm.called[-1] == JOBS
    assert ["scancel", "--signal=TERM", "42"] in told


def test_commands_that_fail_hang_or_lack_are_trouble(
    spot: ModuleType, monkeypatch: pytest.MonkeyPatch
):
    assert spot.command(["echo", "41"]) == "41\n"
    with pytest.raises(spot.TroubleError, match=r"^ls /nowhere: .*No such file"):
        spot.command(["ls", "/nowhere"])
    monkeypatch.setattr(spot, "COMMAND_S", 0.1)
    with pytest.raises(spot.TroubleError, match="timed out"):
        spot.command(["sleep", "60"])
    with pytest.raises(spot.TroubleError, match="No such file"):
        spot.command(["/nowhere/scontrol"])


def test_the_autoscaler_knows_the_reason(spot: ModuleType):
    assert spot.REASON == node_reasons.PREEMPTED


# --- the notice --------------------------------------------------------------------------------


class Taken:
    """A spot VM whose shutdown takes as long as a test wants."""

    def __init__(self, cloud: Server, machine: Machine) -> None:
        self.cloud = cloud
        self.machine = machine
        self.stops: list[Callable[[str], None]] = []
        self.address = f"{cloud.metadata_url}/computeMetadata/v1/"

    def take(self) -> None:
        self.machine.ok(f"{NODE}/simulateMaintenanceEvent", {})

    def waiting(self) -> bool:
        """Whether a request waits for a change."""
        return bool(self.cloud.do(lambda fake: any(fake.watchers.values())))


@pytest.fixture
def taken(
    cloud: Server, tmp_path: Path, module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Taken]:
    machine = Machine(cloud, tmp_path / "machine", module, spot=True)
    made = Taken(cloud, machine)

    def stop(_instance: Any, done: Callable[[str], None], _seconds: int) -> None:
        made.stops.append(done)

    monkeypatch.setattr(cloud.cloud.backend, "stop", stop)
    yield made
    for done in made.stops:
        cloud.do(lambda _, done=done: done(""))
    machine.http.close()


def test_the_notice_is_heard_when_it_comes(spot: ModuleType, taken: Taken, threads: Threads):
    waiting = threads.begin(spot.Notice(taken.address).wait)
    until(taken.waiting, "it waits")
    taken.take()
    waiting.join(3)
    assert not waiting.is_alive()


def test_a_notice_between_two_requests_is_not_missed(spot: ModuleType, taken: Taken):
    notice = spot.Notice(taken.address)
    assert notice.ask(60) is False
    taken.take()
    assert notice.ask(60) is True


def test_a_metadata_server_that_is_away_is_waited_for(
    spot: ModuleType, capfd: pytest.CaptureFixture
):
    answers: list[Answer] = [(503, "busy"), (503, "busy"), (404, ""), (200, "FALSE"), (200, "TRUE")]
    with told_server(answers) as (host, paths):
        spot.Notice(f"http://{host}/computeMetadata/v1/").wait()
    assert len(paths) == 5
    assert paths[0].startswith("/computeMetadata/v1/instance/preempted?wait_for_change=true&")
    assert capfd.readouterr().out.splitlines() == [
        "muster: the preemption notice can't be read: the metadata server answers 503",
        "muster: the preemption notice can't be read: the metadata server answers 404",
    ]


def test_nobody_at_the_metadata_server_s_address(
    spot: ModuleType, capfd: pytest.CaptureFixture, threads: Threads
):
    threads.begin(spot.Notice("http://127.0.0.1:9/computeMetadata/v1/").wait)
    seen: list[str] = []

    def said() -> bool:
        seen.append(capfd.readouterr().out)
        return "the metadata server does not answer: [Errno 111]" in "".join(seen)

    until(said, "it says so")


# --- the whole program, with the power button --------------------------------------------------

SCRIPT = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("spot", sys.argv[1])
spot = importlib.util.module_from_spec(spec)
spec.loader.exec_module(spot)
spot.main(spot.Notice(sys.argv[2]), spot.Node("lab-debug-3", spot.command, sys.argv[3]))
"""
STAND_IN = """#!/bin/sh
printf '%s\\n' "${0##*/} $*" >>"$CALLED"
"""


@pytest.fixture
def program(taken: Taken, proc: Path, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The program as systemd runs it; SLURM's commands note that they were called."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("scontrol", "squeue", "scancel"):
        (folder / name).write_text(STAND_IN)
        (folder / name).chmod(0o755)
    (tmp_path / "called").touch()
    environment = {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "CALLED": str(tmp_path / "called"),
    }
    words = [sys.executable, "-ISc", SCRIPT, str(PROGRAM), taken.address, str(proc)]
    with subprocess.Popen(words, env=environment) as running:
        until(taken.waiting, "it waits")
        yield running
        running.kill()


def called(tmp_path: Path) -> list[str]:
    return (tmp_path / "called").read_text().splitlines()


def test_a_notice_ends_the_program_well(
    program: subprocess.Popen[bytes], taken: Taken, tmp_path: Path
):
    taken.take()
    assert program.wait(10) == 0
    assert called(tmp_path) == [" ".join(FIRST), " ".join(JOBS)]


def test_another_shutdown_is_ignored(program: subprocess.Popen[bytes], tmp_path: Path):
    program.send_signal(signal.SIGTERM)
    assert program.wait(10) == 0
    assert called(tmp_path) == []


def test_a_notice_may_come_after_the_power_button(
    program: subprocess.Popen[bytes], taken: Taken, tmp_path: Path
):
    program.send_signal(signal.SIGTERM)
    # The request that it left off is still known to the server until something changes.
    until(lambda: waits(taken) == 2, "it asks again")
    taken.take()
    assert program.wait(10) == 0
    assert called(tmp_path)[0] == " ".join(FIRST)


def waits(taken: Taken) -> int:
    return int(taken.cloud.do(lambda fake: sum(map(len, fake.watchers.values()))))
