"""Optuna and Dask as docs/software.md adds them: a study with many workers, a pipeline."""

import re

import frameworks
import pytest
from conftest import Lab
from environments import add_requirements
from waiting import until

from muster_sandbox.demo import tour

pytestmark = pytest.mark.proof("builds two Python environments")

CONTROLLER = "lab-access"


@pytest.fixture(scope="module", autouse=True)
def _modules(lab: Lab) -> None:
    for name in ("optuna-4", "distributed-2026"):
        add_requirements(lab, CONTROLLER, name, "3.11")
    added = frameworks.modules("libs/python/optuna")
    lab.change(lambda cluster: cluster["software"]["modules"].update(added))
    run = lab.play()
    assert run.code == 0, run.output[-6000:]
    tour.prepare(lab.ada)


def test_a_second_submission_goes_on_with_the_same_study(lab: Lab) -> None:
    ada = lab.ada
    for count in (20, 40):
        job = ada.run("cd study && sbatch --parsable study.sbatch").strip()
        until(
            lambda job=job: ada.run(f"sacct -nXP -j {job} -o State").split() == ["COMPLETED"] * 4,
            "all workers are done",
            120,
            lambda: ada.run("cat study/study-*.out", check=False)[-4000:],
        )
        said = ada.run(
            "cd study && module load libs/python/optuna && python3 study.py show study.journal"
        )
        assert f"the best of {count}: trial " in said


def test_a_pipeline_prepares_on_two_nodes_fits_and_evaluates(lab: Lab) -> None:
    ada = lab.ada
    jobs = re.findall(r"^\w+: job (\d+)", ada.run("bash pipeline/submit.sh"), re.MULTILINE)
    status = f"bash pipeline/status.sh {' '.join(jobs)}"
    until(
        lambda: ada.run(status, check=False).count(": done") == 3,
        "all three steps are done",
        180,
        lambda: ada.run(f"{status}; cat pipeline/prepare-{jobs[0]}.out", check=False),
    )
    shares = ada.run(f"cat pipeline/prepare-{jobs[0]}.out")
    assert re.search(r"6000 points: \d+ on lab-cpu-01, \d+ on lab-cpu-02", shares)
    judged = ada.run(f"cat pipeline/evaluate-{jobs[2]}.out")
    assert int(judged.split()[0]) > 900
