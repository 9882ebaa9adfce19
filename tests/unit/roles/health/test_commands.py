"""Commands never take longer than their limit, whatever they do."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from health.commands import MOST_BYTES, Commands, _begin
from health.findings import Reading
from waiting import until

HANGS = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return tmp_path / "notes"


@pytest.fixture
def commands(notes: Path) -> Commands:
    return Commands(str(notes))


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_what_became_of_each(commands, tmp_path):
    (tmp_path / "no-program").write_text("")
    got = commands.run(
        {
            "said": ["sh", "-c", "echo out; echo error >&2; exit 3"],
            "missing": ["muster-no-such-program"],
            "not a program": [str(tmp_path / "no-program")],
            "killed": ["sh", "-c", "kill -KILL $$"],
        },
        20,
    )
    assert got["said"] == Reading(3, "out\nerror\n")
    assert got["missing"] == Reading(None, missing=True)
    assert (got["not a program"].status, got["killed"].status) == (126, -9)


def test_their_environment_is_the_same_whoever_calls(notes, monkeypatch):
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("SLURM_CONF", "/run/slurm/conf/slurm.conf")
    said = Commands(str(notes)).run({"env": ["env"]}, 20)["env"].text.splitlines()
    assert {"LC_ALL=C", "SLURM_CONF=/run/slurm/conf/slurm.conf"} <= {*said}


def test_they_run_side_by_side(commands):
    begin = time.monotonic()
    commands.run({number: ["sleep", "2"] for number in "abcdef"}, 20)
    assert time.monotonic() - begin < 8


def test_who_ignores_sigterm_is_killed_at_the_limit_and_all_that_it_started(commands, tmp_path):
    begun = tmp_path / "pids"
    program = (
        f"import os, subprocess; child = subprocess.Popen(['sleep', '60']); "
        f"open({str(begun)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}'); {HANGS}"
    )
    begin = time.monotonic()
    got = commands.run({"hangs": python(program), "works": ["echo", "yes"]}, 3)
    assert time.monotonic() - begin < 20
    assert got == {"hangs": Reading(None), "works": Reading(0, "yes\n")}
    pids = [int(word) for word in begun.read_text().split()]
    assert len(pids) == 2
    until(lambda: not any(map(alive, pids)), "both have ended")


def test_who_closes_its_output_and_goes_on_is_late(commands):
    got = commands.run({"quiet": python(f"import os; os.close(1); os.close(2); {HANGS}")}, 1)
    assert got["quiet"].late


def test_an_endless_output_is_kept_in_part(commands):
    begin = time.monotonic()
    assert commands.run({"yes": ["yes"]}, 1)["yes"].late
    assert time.monotonic() - begin < 10
    got = commands.run({"long": ["head", "--bytes=5000000", "/dev/zero"]}, 20)["long"]
    assert (got.status, MOST_BYTES <= len(got.text) < 2 * MOST_BYTES) == (0, True)


def test_without_time_nothing_is_waited_for(commands):
    assert commands.run({"sleeps": ["sleep", "60"]}, -1)["sleeps"].late


def test_what_a_kill_did_not_end_is_not_started_again(commands, notes, tmp_path):
    """As a process that waits in the kernel; here it is one that was not killed."""
    notes.mkdir()
    started = tmp_path / "started"
    with subprocess.Popen(["sleep", "60"]) as process:
        note = notes / "stuck-%home"
        note.write_text(f"{process.pid} {_begin(process.pid)}")
        assert commands.run({"/home": ["touch", str(started)]}, 20)["/home"].late
        assert not started.exists()
        process.kill()
    assert commands.run({"/home": ["touch", str(started)]}, 20)["/home"].status == 0


def test_another_process_of_the_same_number_is_not_taken_for_it(commands, notes):
    notes.mkdir()
    (notes / "stuck-a").write_text(f"{os.getpid()} 1")
    assert commands.run({"a": ["true"]}, 20)["a"].status == 0
