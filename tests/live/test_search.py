"""Examples that need Python alone: a search, a trial on slices, a served model, a chain."""

import json
import re

import pytest
from conftest import Lab
from waiting import until

from muster_sandbox.demo import tour

pytestmark = pytest.mark.proof(
    "minutes of jobs; tests/unit runs the same examples without SLURM in `make test`"
)


@pytest.fixture(scope="module", autouse=True)
def _ready(lab: Lab) -> None:
    tour.prepare(lab.ada)


def test_a_search_stops_its_losers_and_prints_the_best(lab: Lab) -> None:
    ada = lab.ada
    said = ada.run("bash search/submit.sh")
    search, table = re.findall(r"^\w+: job (\d+)", said, re.MULTILINE)
    assert ada.wait_for(table) == "COMPLETED"
    until(
        lambda: ada.run(f"sacct -nXP -j {search} -o State").split() == ["COMPLETED"] * 8,
        "slurmdbd knows all eight tasks as completed",
    )
    shown = ada.run(f"cat search/table-{table}.out").splitlines()
    assert len(shown) == 10
    assert [row.split()[-1] for row in shown[1:-1]].count("stopped") >= 2
    assert re.match(r"the best: line [345], rate=\S+ decay=\S+, loss 0\.4", shown[-1])


def test_a_trial_says_what_to_ask_for_with_all_of_the_data(lab: Lab) -> None:
    ada = lab.ada
    job = ada.run("cd trial && sbatch --parsable trial.sbatch").strip()
    until(
        lambda: ada.run(f"sacct -nXP -j {job} -o State").split() == ["COMPLETED"] * 2,
        "both slices are done",
        seconds=300,
    )
    said = ada.run(f"cd trial && python3 limits.py {job}")
    assert re.search(r"^#SBATCH --time=00:\d\d:00$", said, re.MULTILINE)
    memory = re.search(r"^#SBATCH --mem=(\d+)M$", said, re.MULTILINE)
    assert memory and 100 <= int(memory[1]) <= 1000
    assert "#SBATCH --cpus-per-task=1\n" in f"{said}\n"


def test_a_model_is_served_to_its_owner_until_scancel(lab: Lab) -> None:
    ada = lab.ada
    ada.run("cd serve && python3 ../train/train.py model.json --epochs 3")
    job = ada.run("cd serve && sbatch --parsable serve.sbatch model.json").strip()
    step = f"cd serve && srun --quiet --jobid={job} --overlap python3 serve.py"
    try:
        until(
            lambda: (
                "serves model.json at" in ada.run(f"cat serve/serve-{job}.out 2>&1", check=False)
            ),
            "the server listens",
        )
        assert json.loads(ada.run(f"{step} check"))["model"] == "model.json"
        point = json.dumps({"points": [[0.0] * 10]})
        assert json.loads(ada.run(f"{step} ask", stdin=point)) == {"probabilities": [0.5]}
        socket = re.findall(r"at (/\S+)$", ada.run(f"cat serve/serve-{job}.out"), re.MULTILINE)[0]
        node = ada.run(f"squeue -h -j {job} -o %N").strip()
        connect = f"import socket; socket.socket(socket.AF_UNIX).connect('{socket}')"
        tried = f'runuser -u nobody -- python3 -c "{connect}" 2>&1'
        assert "ermission denied" in lab.on(node, tried, check=False)
    finally:
        ada.run(f"scancel {job}")
    until(
        lambda: (
            "ends, as it was told to: 1 requests answered" in ada.run(f"cat serve/serve-{job}.out")
        ),
        "it ends in order",
        30,
    )


def test_a_step_that_fails_takes_the_rest_with_it_and_its_log_is_named(lab: Lab) -> None:
    """The lab has no module with Dask, so the first step fails at once."""
    ada = lab.ada
    said = ada.run("bash pipeline/submit.sh")
    prepare, fit, evaluate = re.findall(r"^\w+: job (\d+)", said, re.MULTILINE)
    status = f"bash pipeline/status.sh {prepare} {fit} {evaluate}"
    until(
        lambda: ada.run(status, check=False).count("cancelled before it ran, as prepare") == 2,
        "the steps that can never run are cancelled",
        90,
        lambda: ada.run(status, check=False),
    )
    shown = ada.run(status, check=False)
    assert f"prepare, job {prepare}: FAILED: read prepare-{prepare}.out" in shown
    assert "libs/python/distributed" in ada.run(f"cat pipeline/prepare-{prepare}.out")
    assert ada.run(f"squeue -h -j {fit},{evaluate}", check=False).strip() == ""
