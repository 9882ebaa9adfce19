"""The programs that slurmctld calls write one file, wake the daemon and end, also after errors."""

import json
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.autoscaler.slurm import power_save_program

SOURCE = Path(power_save_program.__file__)
PROGRAMS = ["resume", "suspend", "resume-failed"]


class Client:
    """The installed programs with their own spool; they run as slurmctld runs them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spool = folder / "spool"
        self.spool.mkdir()
        source = SOURCE.read_text()
        assert power_save_program.SPOOL in source
        for program in PROGRAMS:
            file = folder / f"muster-{program}"
            file.write_text(source.replace(power_save_program.SPOOL, str(self.spool)))

    def run(self, program: str, *words: str, options: tuple[str, ...] = (), **more):
        """Run a program; return exit status and stderr."""
        environment = {"SLURM_CONF": "/etc/slurm/slurm.conf"} | more.pop("env", {})
        done = subprocess.run(
            [sys.executable, "-IS", *options, self.folder / f"muster-{program}", *words],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            **more,
        )
        return done.returncode, done.stderr

    def files(self) -> list[Path]:
        return sorted(path for path in self.spool.iterdir() if path.is_file())


@pytest.fixture
def programs(tmp_path: Path) -> Client:
    return Client(tmp_path)


@pytest.fixture
def listener(programs: Client) -> Iterator[int]:
    """The daemon's end of the FIFO."""
    os.mkfifo(programs.spool / power_save_program.WAKE)
    fifo = os.open(programs.spool / power_save_program.WAKE, os.O_RDWR | os.O_NONBLOCK)
    yield fifo
    os.close(fifo)


def woken(listener: int) -> bool:
    try:
        return bool(os.read(listener, 1))
    except BlockingIOError:
        return False


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_call_is_one_file(programs, program):
    before, since_boot = time.time(), time.clock_gettime(time.CLOCK_BOOTTIME)
    assert programs.run(program, "lab-debug-[0-3,5]") == (0, "")
    [file] = programs.files()
    assert re.fullmatch(rf"\d{{19}}-\d+\.{program}", file.name)
    assert file.stat().st_mode & 0o777 == 0o600
    head, rest = file.read_text().split("\n")
    request = json.loads(head)
    assert before - 0.001 <= request.pop("asked") <= time.time()
    assert since_boot - 0.001 <= request.pop("since_boot")
    assert request.pop("boot") == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert request == {"program": program, "nodes": "lab-debug-[0-3,5]"}
    assert rest == ""


def test_slurms_file_is_copied_unchanged(programs, tmp_path):
    source = tmp_path / "memfd"
    source.write_bytes(b'{"jobs": []}\n\xff')
    env = {"SLURM_RESUME_FILE": str(source)}
    assert programs.run("resume", "lab-debug-0", env=env) == (0, "")
    [file] = programs.files()
    assert file.read_bytes().partition(b"\n")[2] == source.read_bytes()


def test_nodes_are_requested_without_slurms_file_too(programs, tmp_path):
    """The file is gone when slurmctld is restarted in between."""
    env = {"SLURM_RESUME_FILE": str(tmp_path / "gone")}
    assert programs.run("resume", "lab-debug-0", env=env) == (0, "")
    head, _, rest = programs.files()[0].read_text().partition("\n")
    assert json.loads(head)["nodes"] == "lab-debug-0"
    assert "No such file" in rest


def test_the_daemon_is_woken_when_the_file_is_there(programs, listener):
    assert programs.run("resume", "lab-debug-0")[0] == 0
    assert woken(listener)
    assert len(programs.files()) == 1


def test_a_daemon_that_does_not_run_is_no_error(programs):
    os.mkfifo(programs.spool / power_save_program.WAKE)
    assert programs.run("suspend", "lab-debug-0") == (0, "")
    assert len(programs.files()) == 1


def test_a_daemon_that_does_not_read_is_no_error(programs, listener):
    with pytest.raises(BlockingIOError):
        while True:
            os.write(listener, b"." * 4096)
    assert programs.run("suspend", "lab-debug-0") == (0, "")
    assert len(programs.files()) == 1


def test_a_disk_that_is_full(programs, listener):
    """No unfinished file is left, and the daemon is woken: SLURM's node states have the request."""

    def no_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    status, stderr = programs.run("resume", "lab-debug-[0-3]", preexec_fn=no_room)
    assert status == 1
    assert stderr.startswith(
        "muster-resume: lab-debug-[0-3] can't be written to the spool: [Errno 27]"
    )
    assert "make room there" in stderr
    assert programs.files() == []
    assert woken(listener)


def test_no_spool(programs):
    programs.spool.rmdir()
    status, stderr = programs.run("resume-failed", "lab-debug-0")
    assert status == 1
    assert stderr.startswith(
        "muster-resume-failed: lab-debug-0 can't be written to the spool: [Errno 2]"
    )
    assert "run site.yml" in stderr


@pytest.mark.parametrize("words", [[], [""], ["a", "b"], ['a"b'], ["a\nb"], ["a\\b"]])
def test_an_invalid_hostlist_is_refused(programs, words):
    status, stderr = programs.run("resume", *words)
    usage = "usage: muster-resume | muster-suspend | muster-resume-failed HOSTLIST\n"
    assert (status, stderr) == (2, usage)
    assert programs.files() == []


def test_it_has_no_other_name(programs):
    (programs.folder / "muster-resume").rename(programs.folder / "muster-what")
    assert programs.run("what", "lab-debug-0")[0] == 2
    assert programs.files() == []


def test_twenty_at_once_are_twenty_files(programs):
    start = [sys.executable, "-IS", programs.folder / "muster-resume"]
    calls = [subprocess.Popen([*start, f"lab-debug-{n}"]) for n in range(20)]
    assert [call.wait(60) for call in calls] == [0] * 20
    asked = [json.loads(file.read_text())["nodes"] for file in programs.files()]
    assert sorted(asked) == sorted(f"lab-debug-{n}" for n in range(20))


def test_it_imports_next_to_nothing(programs):
    """Only what Python needs to start: imports take most of such a program's time."""
    bare = subprocess.run(
        [sys.executable, "-IS", "-X", "importtime", "-c", "import os, sys, time"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stderr
    _, stderr = programs.run("resume", "lab-debug-0", options=("-X", "importtime"))
    assert imported(stderr) - imported(bare) == set()


def imported(importtime: str) -> set[str]:
    return {line.rpartition("|")[2].strip() for line in importtime.splitlines() if "|" in line}
