"""The part of `notebook` in the job: what it becomes, and what it answers."""

import json
import os
import shutil
import socketserver
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import jobs_library
import pytest
from muster_notebook import server
from muster_notebook.errors import NotebookError

MAIN = "import sys; from muster_notebook.server import main; sys.exit(main(sys.argv[1:]))"
SHOW = """#!/bin/sh
printf '%s\\n' "$@" >"$TMPDIR/words"
env >"$TMPDIR/environment"
"""
"""JupyterLab here: what it was started with."""


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """That of a job; the name of its scratch is as short as that of a socket must be."""
    short = Path(tempfile.mkdtemp(prefix="n-"))
    scratch = short / "12"
    scratch.mkdir()
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "jupyter-lab").write_text(SHOW)
    (programs / "jupyter-lab").chmod(0o755)
    yield {
        "SLURM_JOB_ID": "12",
        "SLURMD_NODENAME": "lab-cpu-01",
        "TMPDIR": str(scratch),
        "PATH": f"{programs}:/usr/bin:/bin",
        "PYTHONPATH": str(jobs_library.FILES / "lib/muster"),
        "JUPYTER_TOKEN": "of-the-user",
    }
    shutil.rmtree(short)


def started(environment: dict[str, str], *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", MAIN, *(words or ["start"])],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_token_is_in_a_file_of_the_owner_and_nowhere_else(environment: dict[str, str]) -> None:
    done = started(environment)
    assert done.returncode == 0, done.stderr
    private = Path(environment["TMPDIR"]) / "notebook"
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    assert stat.S_IMODE((private / "token").stat().st_mode) == 0o600
    token = (private / "token").read_text()
    assert len(token) >= 40
    words = (private.parent / "words").read_text()
    given = (private.parent / "environment").read_text()
    assert token not in words + given + done.stdout + done.stderr
    assert "JUPYTER_TOKEN=" not in given
    assert f"JUPYTER_TOKEN_FILE={private}/token\n" in given
    assert f"JUPYTER_RUNTIME_DIR={private}\n" in given
    assert f"--ServerApp.sock={private}/socket\n" in words
    assert "--KernelManager.transport=ipc\n" in words


def test_each_notebook_has_another_token(environment: dict[str, str]) -> None:
    tokens = set()
    for job in ("12", "13"):
        scratch = Path(environment["TMPDIR"]).parent / job
        scratch.mkdir(exist_ok=True)
        started({**environment, "SLURM_JOB_ID": job, "TMPDIR": str(scratch)})
        tokens.add((scratch / "notebook/token").read_text())
    assert len(tokens) == 2


def test_a_module_that_is_not_loaded_is_told(environment: dict[str, str]) -> None:
    done = started({**environment, "PATH": "/nowhere"})
    assert done.returncode == 1
    assert done.stderr.startswith("notebook: jupyter-lab is not there: load the module that has it")
    assert not (Path(environment["TMPDIR"]) / "notebook").exists()


def test_a_folder_that_somebody_made_before_is_not_used(environment: dict[str, str]) -> None:
    (Path(environment["TMPDIR"]) / "notebook").mkdir()
    done = started(environment)
    assert done.returncode == 1
    assert "is there already, and may be somebody else's: start another notebook" in done.stderr
    assert not (Path(environment["TMPDIR"]) / "words").exists()


def test_outside_of_a_job_and_with_other_words_nothing_starts(environment: dict[str, str]) -> None:
    assert "type notebook on a login node" in started({**environment, "SLURM_JOB_ID": ""}).stderr
    assert started(environment, "stop").returncode == 1


def test_scratch_of_another_job_is_not_taken() -> None:
    """A job that was submitted in a job has that one's TMPDIR, if the user set it."""
    own = {"SLURM_JOB_ID": "12", "TMPDIR": "/scratch/12"}
    assert server.folder(own) == Path("/scratch/12/notebook")
    for other in ("/scratch/11", "", "12"):
        assert server.folder({**own, "TMPDIR": other}) == Path("/tmp/notebook-12")


def test_a_folder_in_which_kernels_have_no_room_is_told(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 80) / "12"
    with pytest.raises(NotebookError, match="too long for the name of a socket"):
        server.start({"SLURM_JOB_ID": "12", "TMPDIR": str(long), "PATH": _with_jupyter(tmp_path)})


def _with_jupyter(folder: Path) -> str:
    program = folder / "jupyter-lab"
    program.write_text(SHOW)
    program.chmod(0o755)
    return str(folder)


class _Api(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/api" else 404)
        self.end_headers()

    def address_string(self) -> str:
        return "socket"

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def running(environment: dict[str, str]) -> Iterator[dict[str, str]]:
    """A job in whose folder something answers as JupyterLab does."""
    private = Path(environment["TMPDIR"]) / "notebook"
    private.mkdir(mode=0o700)
    (private / "token").write_text("secret")
    with socketserver.ThreadingUnixStreamServer(str(private / "socket"), _Api) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        yield environment
        serving.shutdown()
        thread.join()


def test_it_answers_where_the_notebook_is(running: dict[str, str]) -> None:
    done = started(running, "answer")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "node": "lab-cpu-01",
        "socket": f"{running['TMPDIR']}/notebook/socket",
        "token": "secret",
    }


def test_a_notebook_that_was_started_with_another_tmpdir_is_found(
    running: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_TMP", Path(running["TMPDIR"]))
    (tmp_path / "12").mkdir()
    private = Path(running["TMPDIR"]) / "notebook"
    in_tmp = private.rename(private.with_name("notebook-12"))
    asked = {**running, "TMPDIR": str(tmp_path / "12")}
    assert server.answer(asked)["socket"] == str(in_tmp / "socket")
    # In /tmp everybody makes folders: the one that is not there is still waited for in scratch.
    monkeypatch.setattr(os, "getuid", lambda: 65534)
    clock = Clock()
    with pytest.raises(NotebookError, match=f"^{tmp_path}/12/notebook is not on lab-cpu-01"):
        server.answer(asked, clock, clock.sleep)


def test_a_folder_of_somebody_else_is_not_believed(
    running: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 65534)
    with pytest.raises(NotebookError, match="is somebody else's"):
        server.answer(running)


class Clock:
    """Passes while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_a_server_that_never_answers_is_told_within_a_bound(environment: dict[str, str]) -> None:
    (Path(environment["TMPDIR"]) / "notebook").mkdir()
    clock = Clock()
    with pytest.raises(NotebookError, match="has not answered on lab-cpu-01 within 300 s"):
        server.answer(environment, clock, clock.sleep)
    assert clock.now == server.READY_SECONDS


def test_another_job_is_told_sooner(environment: dict[str, str]) -> None:
    clock = Clock()
    with pytest.raises(NotebookError, match="this job is none of notebook's"):
        server.answer(environment, clock, clock.sleep)
    assert clock.now == 60


def test_a_node_that_lets_nobody_in_is_told(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_lines", lambda: ["Port 22", "AllowUsers chief"])
    with pytest.raises(NotebookError, match="sshd of lab-cpu-01 lets nobody in"):
        server.answer(environment)
    assert server.lets_in("ada", ["AllowUsers root", "AllowUsers ad*"])
    assert server.lets_in("ada", ["# AllowUsers root", "PermitRootLogin no", ""])
