"""examples/study with Optuna and examples/pipeline with Dask, in the environments of their modules.

Each is made as an administrator's is: from the file with hashes in examples/software.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import frameworks
import pytest
from example_jobs import copy
from waiting import until

pytestmark = pytest.mark.proof("makes two Python environments from PyPI")

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


def made(folder: Path, name: str) -> Path:
    """Make an environment from a file of requirements; return its Python."""
    requirements = frameworks.REQUIREMENTS / f"{name}.txt"
    wheels = frameworks.wheels(requirements, VERSION)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=120)
    python = folder / "bin/python"
    words = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    words += ["--require-hashes", "--no-index", "--find-links", wheels, "-r", requirements]
    subprocess.run(words, check=True, timeout=600)
    return python


# -- Optuna ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def optuna(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("optuna"), "optuna-4")


@pytest.fixture
def study(tmp_path: Path) -> Path:
    return copy("study", tmp_path)


def worker(python: Path, folder: Path, array: int, task: int, trials: int) -> subprocess.Popen[str]:
    """Start a worker as study.sbatch does."""
    words = [python, "study.py", "work", "study.journal", "--trials", str(trials)]
    variables = {"SLURM_ARRAY_JOB_ID": str(array), "SLURM_ARRAY_TASK_ID": str(task)}
    return subprocess.Popen(
        words,
        cwd=folder,
        env={"PATH": os.environ["PATH"], **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def over(processes: Sequence[subprocess.Popen[str]]) -> list[str]:
    """Wait until all have ended well; return what they printed."""
    said = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(said), said
    return said


def shown(python: Path, folder: Path) -> list[str]:
    words = [python, "study.py", "show", "study.journal"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.splitlines()


def test_workers_share_a_study_and_a_second_submission_goes_on(optuna: Path, study: Path) -> None:
    over([worker(optuna, study, 41, task, 5) for task in range(1, 5)])
    first = shown(optuna, study)
    numbers = sorted(int(re.findall(r"trial (\d+):", line)[0]) for line in first[:-1])
    assert numbers == list(range(20))
    assert first[-1].startswith("the best of 20: trial ")
    said = over([worker(optuna, study, 42, task, 5) for task in range(1, 3)])
    assert "Using an existing study" in said[0]
    second = shown(optuna, study)
    assert second[-1].startswith("the best of 30: trial ")
    # What was found is all there.
    assert set(first[:-1]) <= set(second[:-1])


def test_a_worker_that_is_killed_tries_again_what_it_was_trying(optuna: Path, study: Path) -> None:
    process = worker(optuna, study, 41, 1, 50)
    assert process.stdout
    while "Trial 2 " not in (line := process.stdout.readline()):
        assert line
    process.send_signal(signal.SIGKILL)
    process.communicate()
    before = [line for line in shown_all(optuna, study) if ", running, rate=" in line]
    (said,) = over([worker(optuna, study, 41, 1, 6)])
    after = shown(optuna, study)
    # One that was only numbered when it was killed had no parameters yet, and stays so.
    assert not any(", running, rate=" in line for line in after)
    done = [line for line in after[:-1] if ", complete," in line or ", pruned," in line]
    assert len(done) == 6
    # It may have been killed between two trials.
    for line in before:
        number, parameters = re.findall(r"trial (\d+): .*(rate=.*)", line)[0]
        assert f"trial {number} was interrupted" in said
        assert any(parameters in one for one in done)


def shown_all(python: Path, folder: Path) -> list[str]:
    """As `shown`; none may have come to its end."""
    words = [python, "study.py", "show", "study.journal"]
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    return done.stdout.splitlines()


def test_a_journal_with_half_a_line_and_a_lock_of_a_dead_worker_is_used_again(
    optuna: Path, study: Path
) -> None:
    over([worker(optuna, study, 41, 1, 5)])
    with (study / "study.journal").open("a") as file:
        file.write('{"op_code":4,"work')
    (study / "study.journal.lock").touch()
    began = time.monotonic()
    (said,) = over([worker(optuna, study, 42, 1, 2)])
    assert "a half line at its end was cut off" in said
    assert 25 < time.monotonic() - began < 90
    assert shown(optuna, study)[-1].startswith("the best of 7: ")


@pytest.mark.parametrize(
    "content", ["no journal", "no journal\n", '["a list"]\n', "{}\n", '{"op_code":0}\n']
)
def test_a_file_that_is_no_journal_is_told_and_left_alone(
    optuna: Path, study: Path, content: str
) -> None:
    (study / "study.journal").write_text(content)
    process = worker(optuna, study, 41, 1, 1)
    said = process.communicate(timeout=60)[0]
    assert process.returncode == 1
    assert said == (
        "study.py: study.journal is no journal of Optuna's, or is damaged: name another file for a "
        "new study, such as sbatch study.sbatch second.journal\n"
    )
    assert (study / "study.journal").read_text() == content


# -- Dask -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dask(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("dask"), "distributed-2026")


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    return copy("pipeline", tmp_path)


def task(python: Path, folder: Path, rank: int, tasks: int = 2) -> subprocess.Popen[str]:
    """Start a task of the step as srun does; all are on this machine."""
    variables = {
        "SLURM_JOB_ID": "41",
        "SLURM_STEP_ID": "0",
        "SLURM_PROCID": str(rank),
        "SLURM_NTASKS": str(tasks),
        "SLURM_NNODES": "1",
        "SLURM_CPUS_PER_TASK": "1",
        "SLURM_MEM_PER_NODE": "700",
        "SLURMD_NODENAME": "localhost",
        "TMPDIR": str(folder),
    }
    return subprocess.Popen(
        [python, "prepare.py", "pipeline-41"],
        cwd=folder,
        env={"PATH": os.environ["PATH"], **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_two_tasks_prepare_all_parts_and_leave_no_key(dask: Path, pipeline: Path) -> None:
    said = over([task(dask, pipeline, rank) for rank in range(2)])
    assert said[0].startswith("12 parts with 6000 points: ")
    assert said[1] == ""
    made_there = sorted(path.name for path in (pipeline / "pipeline-41").iterdir())
    assert made_there == [*(f"part-{n:03}.json" for n in range(12)), "parts.json"]
    points = [
        point
        for n in range(12)
        for point, _ in json.loads((pipeline / f"pipeline-41/part-{n:03}.json").read_text())
    ]
    for column in zip(*points, strict=True):
        assert abs(sum(column) / len(column)) < 1e-6
        assert abs(sum(value * value for value in column) / len(column) - 1) < 1e-6
    for name in ("fit", "evaluate"):
        words = [sys.executable, f"{name}.py", "pipeline-41"]
        subprocess.run(words, cwd=pipeline, check=True, timeout=60, capture_output=True)


STRANGER = """
import asyncio, sys
from distributed import Client, Security

async def main():
    for security in (None, Security.temporary()):
        address = sys.argv[1] if security else sys.argv[1].replace("tls:", "tcp:")
        try:
            async with Client(address, security=security, asynchronous=True, timeout=5) as client:
                await client.submit(print, "hello")
                print("in")
        except Exception as error:
            print("refused", type(error).__name__)

asyncio.run(main())
"""


def test_who_has_no_key_gets_nothing_from_the_scheduler(dask: Path, pipeline: Path) -> None:
    # It waits for a second task, which does not come.
    process = task(dask, pipeline, 0)
    try:
        meeting = pipeline / "pipeline-41/.dask-41-0-0"
        until(meeting.exists, "the scheduler is there", 30)
        assert meeting.stat().st_mode & 0o777 == 0o600
        address = json.loads(meeting.read_text())["address"]
        words = [dask, "-W", "ignore", "-c", STRANGER, address]
        tried = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        lines = [line.split()[0] for line in tried.stdout.splitlines()]
        assert lines == ["refused", "refused"], tried
    finally:
        process.kill()
        process.communicate()


def test_an_error_in_a_worker_ends_all_tasks(dask: Path, pipeline: Path) -> None:
    # A part can't be written: a folder has its name.
    (pipeline / "pipeline-41/part-005.json/in the way").mkdir(parents=True)
    processes = [task(dask, pipeline, rank) for rank in range(2)]
    first, _ = (process.communicate(timeout=90)[0] for process in processes)
    assert processes[0].returncode == 1
    assert "prepare.py: " in first.splitlines()[-1]
    assert "part-005.json" in first.splitlines()[-1]
    assert not (pipeline / "pipeline-41/parts.json").exists()


def test_a_task_whose_scheduler_is_killed_ends(dask: Path, pipeline: Path) -> None:
    # A third task does not come, so both wait.
    first, second = (task(dask, pipeline, rank, 3) for rank in range(2))
    until((pipeline / "pipeline-41/.dask-41-0-0").exists, "the scheduler is there", 30)
    time.sleep(5)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    second.communicate(timeout=90)
