"""`muster cloud record FILE -- COMMAND`."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import clikit
import pytest

from muster_sandbox.fakecloud import Settings
from muster_sandbox.fakecloud.environment import environment
from muster_sandbox.fakecloud.server import Server

ROOT = Path(__file__).parents[3]
ASK = (
    "import os, sys; from muster.gcp.api import Compute; print(os.environ['SHOWN']);"
    "print(len(Compute('demo-project').list('zones'))); sys.exit(int(sys.argv[1]))"
)


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "muster", "cloud", "record", *words]


def record(*words: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*words),
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": f"{ROOT}", **more},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("code", [0, 3])
def test_a_command_is_recorded_and_its_exit_code_kept(tmp_path: Path, code: int) -> None:
    server = Server(Settings()).start()
    secrets = {"PULUMI_CONFIG_PASSPHRASE": "planted-passphrase", "SHOWN": "seen"}
    variables = environment(server.url, "demo-project") | secrets
    words = ["up.jsonl", "--", sys.executable, "-c", ASK, str(code), "planted-passphrase"]
    done = record(*words, cwd=tmp_path, **variables)
    server.stop()
    assert (done.returncode, done.stdout.split()[0]) == (code, "seen"), done.stderr
    assert int(done.stdout.split()[1]) > 0
    assert done.stderr.startswith("wrote up.jsonl: 1 requests; read it before you send it")
    file = tmp_path / "up.jsonl"
    assert file.stat().st_mode & 0o777 == 0o600
    head, only = [json.loads(line) for line in file.read_text().splitlines()]
    assert head["muster"].startswith("muster ")
    assert head["command"].endswith(f"{code} (redacted)")
    assert only["url"].endswith("/projects/demo-project/zones")
    assert "planted" not in file.read_text()


@pytest.mark.parametrize(("blocks", "code"), [(1, 3), (0, 2)])
def test_a_full_disk_ends_the_recording_and_not_the_command(
    tmp_path: Path, blocks: int, code: int
) -> None:
    """A limit of a kilobyte has room for the first line; one of nothing for none."""
    server = Server(Settings()).start()
    words = command("up.jsonl", "--", sys.executable, "-c", ASK, "3")
    done = subprocess.run(
        ["bash", "-c", f'ulimit -f {blocks}; exec "$@"', "bash", *words],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": f"{ROOT}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "SHOWN": "seen",
            **environment(server.url, "demo-project"),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    server.stop()
    assert done.returncode == code, done.stderr
    said = "up.jsonl is not complete: " if code == 3 else "up.jsonl can't be written: "
    assert done.stderr.startswith(f"error: {said}file too large; ")
    # The command got its answer.
    assert ("seen" in done.stdout) == (code == 3)


def test_ctrl_c_is_the_command_s(tmp_path: Path) -> None:
    text = (
        "import signal, sys, time; signal.signal(signal.SIGINT, lambda *_: sys.exit(7));"
        "print('up', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        command("up.jsonl", "--", sys.executable, "-c", text),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{ROOT}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout and process.stdout.readline() == "up\n"
        time.sleep(0.2)
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 7
    assert errors.startswith("wrote up.jsonl: 0 requests")


REFUSED = {
    "no command": (["up.jsonl", "--"], "no command is given"),
    "no such program": (["up.jsonl", "--", "no-such-program"], "there is no program no-such"),
    "Ansible": (["up.jsonl", "--", "ansible-playbook", "x.yml"], "record `pulumi` only"),
    "no folder": (["none/up.jsonl", "--", "true"], "none/up.jsonl can't be written: no such file"),
    "a file that is there": (["old.jsonl", "--", "true"], "old.jsonl exists already; name another"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_can_not_be_recorded_is_one_sentence(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], case: str
) -> None:
    words, says = REFUSED[case]
    (tmp_path / "old.jsonl").write_text("old")
    done = clikit.run(capfd, "cloud", "record", *words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "up.jsonl").exists()
    assert (tmp_path / "old.jsonl").read_text() == "old"
