"""examples/pipeline without its first step, which needs Dask: files, submit.sh, status.sh.

test_example_environments.py runs that step.
"""

import json
import random
from pathlib import Path

import pytest
from example_jobs import called, copy, run, stand_in

STEPS = ("prepare", "fit", "evaluate")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return copy("pipeline", tmp_path)


@pytest.fixture
def data(folder: Path) -> Path:
    """What the first step leaves."""
    source = random.Random(1)  # noqa: S311
    made = folder / "pipeline-41"
    made.mkdir()
    for number in range(3):
        points = [[source.gauss(0, 1) for _ in range(3)] for _ in range(200)]
        samples = [(point, int(point[0] > point[1])) for point in points]
        (made / f"part-{number:03}.json").write_text(json.dumps(samples))
    (made / "parts.json").write_text(json.dumps({"training": [0, 1], "held_out": [2]}))
    return made


def step(folder: Path, name: str, *words: str):
    return run(folder, "bash", f"{name}.sbatch", *words)


def test_a_model_is_trained_and_judged_by_data_that_it_has_not_seen(
    folder: Path, data: Path
) -> None:
    done = step(folder, "fit", data.name)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "trained on 400 points of 2 parts\n"
    judged = step(folder, "evaluate", data.name)
    assert (judged.returncode, judged.stderr) == (0, "")
    right, rest = judged.stdout.split(" of ")
    assert int(right) > 180
    assert rest == "200 points are right\n"


def test_a_bad_model_is_an_error(folder: Path, data: Path) -> None:
    (data / "model.json").write_text('{"weights": [-1, 1, 0]}')
    done = step(folder, "evaluate", data.name)
    assert done.returncode == 1
    assert "evaluate.py: that is less than 80 %" in done.stderr


@pytest.mark.parametrize(
    ("name", "missing", "said"),
    [
        ("fit", "parts.json", "it is made by prepare.sbatch"),
        ("fit", "part-001.json", "it is made by prepare.sbatch"),
        ("evaluate", "model.json", "it is made by fit.sbatch"),
        ("evaluate", "part-002.json", "it is made by prepare.sbatch"),
    ],
)
def test_what_a_step_lacks_is_told(
    folder: Path, data: Path, name: str, missing: str, said: str
) -> None:
    step(folder, "fit", data.name)
    (data / missing).unlink()
    done = step(folder, name, data.name)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert f"{name}.py: pipeline-41/{missing} can't be read" in done.stderr
    assert said in done.stderr


def test_a_step_without_its_folder_is_told(folder: Path) -> None:
    done = step(folder, "fit")
    assert done.returncode == 1
    assert "name the folder of the pipeline" in done.stderr


# -- submit.sh ------------------------------------------------------------------------------------

NUMBERS = """case $* in
*prepare.sbatch*) echo 41 ;;
*fit.sbatch*) echo '42;lab' ;;
*) echo 43 ;;
esac"""


def test_each_step_waits_for_the_one_before_and_goes_with_it(folder: Path) -> None:
    stand_in(folder.parent, "sbatch", NUMBERS)
    done = run(folder, "bash", "submit.sh")
    assert (done.returncode, done.stderr) == (0, "")
    options = "--parsable --kill-on-invalid-dep=yes"
    assert called(folder.parent, "sbatch") == [
        f"{options} prepare.sbatch",
        f"{options} --dependency=afterok:41 fit.sbatch pipeline-41",
        f"{options} --dependency=afterok:42 evaluate.sbatch pipeline-41",
    ]
    assert done.stdout.splitlines() == [
        "prepare: job 41",
        "fit: job 42",
        "evaluate: job 43",
        "bash status.sh 41 42 43 says how they go, and which log to read if one fails",
    ]


@pytest.mark.parametrize(
    ("refused", "cancelled"), [("prepare", []), ("fit", ["41"]), ("evaluate", ["41 42"])]
)
def test_a_refused_step_leaves_none_behind(
    folder: Path, refused: str, cancelled: list[str]
) -> None:
    stand_in(folder.parent, "sbatch", f"[[ $* == *{refused}.sbatch* ]] && exit 1\n{NUMBERS}")
    stand_in(folder.parent, "scancel", "")
    done = run(folder, "bash", "submit.sh")
    assert done.returncode == 1
    assert f"submit.sh: {refused} was refused" in done.stderr
    assert called(folder.parent, "scancel") == cancelled


def test_steps_that_can_t_be_cancelled_are_named(folder: Path) -> None:
    stand_in(folder.parent, "sbatch", f"[[ $* == *evaluate.sbatch* ]] && exit 1\n{NUMBERS}")
    stand_in(folder.parent, "scancel", "exit 1")
    done = run(folder, "bash", "submit.sh")
    assert "submit.sh: these steps are still there: scancel 41 42" in done.stderr


@pytest.mark.parametrize(("step", "cancelled"), [("prepare", "41"), ("fit", "41 42")])
def test_an_interrupted_submission_leaves_no_step(folder: Path, step: str, cancelled: str) -> None:
    stand_in(folder.parent, "sbatch", f"[[ $* == *{step}.sbatch* ]] && kill -TERM $PPID\n{NUMBERS}")
    stand_in(folder.parent, "scancel", "")
    done = run(folder, "bash", "submit.sh")
    assert done.returncode == 1
    assert called(folder.parent, "scancel") == [cancelled]


# -- status.sh ------------------------------------------------------------------------------------


def status(folder: Path, *lines: str) -> tuple[int, list[str]]:
    """Return what is said when sacct prints these lines, one for each job from 41 on."""
    cases = "".join(f"*={41 + n}) echo '{line}' ;;\n" for n, line in enumerate(lines))
    stand_in(folder.parent, "sacct", f"case $* in\n{cases}esac")
    done = run(folder, "bash", "status.sh", *(str(41 + n) for n in range(len(lines))))
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def test_a_failed_step_is_named_with_its_log_and_the_others_with_it(folder: Path) -> None:
    code, said = status(folder, "prepare|FAILED|12", "fit|CANCELLED by 0|0", "evaluate|CANCELLED|0")
    assert code == 1
    assert said == [
        "prepare, job 41: FAILED: read prepare-41.out, and what muster-job 41 says",
        "fit, job 42: cancelled before it ran, as prepare has failed",
        "evaluate, job 43: cancelled before it ran, as prepare has failed",
    ]


def test_steps_that_are_done_or_not_yet_are_told(folder: Path) -> None:
    done = ("prepare|COMPLETED|12", "fit|COMPLETED|2", "evaluate|COMPLETED|1")
    assert status(folder, *done) == (
        0,
        ["prepare, job 41: done", "fit, job 42: done", "evaluate, job 43: done"],
    )
    code, said = status(folder, done[0], "fit|RUNNING|2", "evaluate|PENDING|0")
    assert (code, said[1:]) == (2, ["fit, job 42: RUNNING", "evaluate, job 43: PENDING"])
    assert status(folder, "") == (2, ["job 41: not known yet"])


@pytest.mark.parametrize("state", ["TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL"])
def test_each_end_that_is_not_good_names_the_log(folder: Path, state: str) -> None:
    code, said = status(folder, "prepare|COMPLETED|12", f"fit|{state}|9")
    assert code == 1
    assert said[1] == f"fit, job 42: {state}: read fit-42.out, and what muster-job 42 says"


def test_a_step_that_was_cancelled_while_it_ran_names_its_log(folder: Path) -> None:
    code, said = status(folder, "prepare|CANCELLED by 20001|7")
    assert code == 1
    assert said == ["prepare, job 41: CANCELLED by 20001 after 7 s: read prepare-41.out"]


def test_accounting_that_does_not_answer_is_told(folder: Path) -> None:
    stand_in(folder.parent, "sacct", "exit 1")
    done = run(folder, "bash", "status.sh", "41")
    assert done.returncode == 2
    assert "status.sh: sacct did not answer for job 41" in done.stderr


def test_logs_have_the_names_that_status_says(folder: Path) -> None:
    for name in STEPS:
        script = (folder / f"{name}.sbatch").read_text()
        assert f"#SBATCH --job-name={name}\n" in script
        assert f"#SBATCH --output={name}-%j.out\n" in script
