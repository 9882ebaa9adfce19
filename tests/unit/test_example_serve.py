"""examples/serve: a model at a socket, its health, bad requests, its end."""

import http.client
import json
import signal
import stat
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from example_jobs import EXAMPLES, copy, environment, module, run
from waiting import until

serve = module("serve", "serve")

JOB = "4242"
POINT = [1.0, -2.0] + [0.0] * 8


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The example, with a model that examples/train has trained."""
    found = copy("serve", tmp_path)
    (tmp_path / JOB).mkdir()
    done = run(found, "python3", str(EXAMPLES / "train/train.py"), "train-41.json", "--epochs", "3")
    assert done.returncode == 0
    return found


def variables(folder: Path) -> dict[str, str]:
    return {"SLURM_JOB_ID": JOB, "TMPDIR": str(folder.parent / JOB)}


def submit(folder: Path, *words: str) -> subprocess.Popen[str]:
    """Start the script as slurmd does."""
    return subprocess.Popen(
        ["bash", "serve.sbatch", *words],
        cwd=folder,
        env=environment(folder.parent, **variables(folder)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture
def job(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A server that answers."""
    with submit(folder, "train-41.json") as server:
        try:
            assert server.stdout
            line = server.stdout.readline()
            assert line == f"serves train-41.json at {folder.parent / JOB}/serve/socket\n"
            yield server
        finally:
            server.kill()


def step(folder: Path, command: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Type a command of the page in a step of the job."""
    return subprocess.run(
        ["python3", "serve.py", command],
        cwd=folder,
        env=environment(folder.parent, **variables(folder)),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def answer(folder: Path, method: str, path: str, body: bytes = b"", **headers: str) -> tuple:
    """Return status and content of an answer."""
    connection = serve.Connection(folder.parent / JOB / "serve/socket")
    connection.request(method, path, body, headers)
    found = connection.getresponse()
    return found.status, json.loads(found.read())


def test_it_is_well_and_says_what_the_model_says(folder: Path, job) -> None:
    weights = json.loads((folder / "train-41.json").read_text())["weights"]
    told = step(folder, "ask", json.dumps({"points": [POINT, [0.0] * 10]}))
    assert (told.returncode, told.stderr) == (0, "")
    first, second = json.loads(told.stdout)["probabilities"]
    assert second == 0.5
    assert first == pytest.approx(1 / (1 + 2.718281828459045 ** -(weights[0] - 2 * weights[1])))
    well = step(folder, "check")
    assert well.returncode == 0
    assert json.loads(well.stdout)["answered"] == 1
    assert json.loads(well.stdout)["model"] == "train-41.json"


def test_nobody_else_comes_to_the_socket(folder: Path, job) -> None:
    mode = (folder.parent / JOB / "serve").stat().st_mode
    assert stat.S_IMODE(mode) == 0o700


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"[1]",
        b"\xff",
        b'{"points": 3}',
        b'{"points": [[1, 2]]}',
        b'{"points": [[true, 0, 0, 0, 0, 0, 0, 0, 0, 0]]}',
        b'{"points": [[NaN, 0, 0, 0, 0, 0, 0, 0, 0, 0]]}',
    ],
)
def test_a_bad_request_is_told_and_the_server_goes_on(folder: Path, job, content: bytes) -> None:
    status, said = answer(folder, "POST", "/predict", content)
    assert status == 400
    assert said["error"]
    assert answer(folder, "GET", "/health")[1]["answered"] == 0


def test_a_request_that_is_too_long_or_has_no_place_is_told(folder: Path, job) -> None:
    long = answer(folder, "POST", "/predict", **{"Content-Length": str(2**40)})
    assert long[0] == 413
    assert answer(folder, "POST", "/predict", **{"Content-Length": "-1"})[0] == 411
    assert answer(folder, "GET", "/")[0] == 404
    assert answer(folder, "POST", "/")[0] == 404


def test_scancel_ends_it_when_the_last_request_is_answered(folder: Path, job) -> None:
    connection = serve.Connection(folder.parent / JOB / "serve/socket")
    body = json.dumps({"points": [POINT]}).encode()
    # Half of a request is there when the end comes.
    connection.putrequest("POST", "/predict")
    connection.putheader("Content-Length", str(len(body)))
    connection.endheaders()
    until(lambda: answer(folder, "GET", "/health")[0] == 200, "it has taken the connection")
    job.send_signal(signal.SIGTERM)
    connection.send(body)
    found = connection.getresponse()
    assert len(json.loads(found.read())["probabilities"]) == 1
    said = job.communicate(timeout=30)[0]
    assert said.splitlines()[-1] == "ends, as it was told to: 1 requests answered"
    assert job.returncode == 0
    assert not (folder.parent / JOB / "serve").exists()
    gone = step(folder, "check")
    assert gone.returncode == 1
    assert "the server does not answer at" in gone.stderr


def test_it_ends_when_its_time_is_over(folder: Path) -> None:
    words = ("python3", "serve.py", "start", "train-41.json", "--minutes", "0.01")
    done = run(folder, *words, **variables(folder))
    assert (done.returncode, done.stderr) == (0, "")
    assert "ends, as its 0.01 minutes are over: 0 requests answered" in done.stdout


def test_many_ask_at_once(folder: Path, job) -> None:
    body = json.dumps({"points": [POINT]}).encode()
    found: list[int] = []

    def ask() -> None:
        found.append(answer(folder, "POST", "/predict", body)[0])

    threads = [threading.Thread(target=ask) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [200] * 40
    assert answer(folder, "GET", "/health")[1]["answered"] == 40


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "can't be read (No such file or directory)"),
        ("{", "has no model: name the checkpoint"),
        ("[]", "has no model: name the checkpoint"),
        ('{"weights": ["a"]}', "has no model: name the checkpoint"),
    ],
)
def test_a_model_that_is_none_is_told(folder: Path, content: str | None, said: str) -> None:
    if content is not None:
        (folder / "model.json").write_text(content)
    done = run(folder, "bash", "serve.sbatch", "model.json", **variables(folder))
    assert done.returncode == 1
    assert done.stderr.startswith("serve.py: model.json ")
    assert said in done.stderr
    assert not (folder.parent / JOB / "serve").exists()


def test_no_model_no_job_and_a_folder_of_somebody_else_are_told(folder: Path) -> None:
    done = run(folder, "bash", "serve.sbatch", **variables(folder))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("name a model: sbatch serve.sbatch")
    done = run(folder, "python3", "serve.py", "check")
    assert done.stderr.startswith("serve.py: this is no job: ")
    (folder.parent / JOB / "serve").mkdir()
    done = run(folder, "bash", "serve.sbatch", "train-41.json", **variables(folder))
    assert "is there already, and may be somebody else's" in done.stderr
    assert (folder.parent / JOB / "serve").exists()


def test_a_server_that_was_started_with_another_tmpdir_is_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    in_tmp = folder.parent / "tmp"
    (in_tmp / f"serve-{JOB}").mkdir(parents=True, mode=0o700)
    monkeypatch.setattr(serve, "TMP", in_tmp)
    for name, value in variables(folder).items():
        monkeypatch.setenv(name, value)
    model = serve.Model(folder / "train-41.json")
    with serve.Server(in_tmp / f"serve-{JOB}/socket", model) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            assert serve.main(["check"]) == 0
        finally:
            server.shutdown()
            thread.join()
    assert json.loads(capsys.readouterr().out)["model"] == "train-41.json"


def test_a_client_is_told_when_nothing_answers(folder: Path) -> None:
    with pytest.raises((OSError, http.client.HTTPException)):
        answer(folder, "GET", "/health")
    said = step(folder, "ask", "{}")
    assert said.returncode == 1
    assert "serve.py: the server does not answer at" in said.stderr
