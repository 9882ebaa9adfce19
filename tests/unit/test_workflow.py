"""The workflow runs the layers that there are, by the commands that a person types."""

from pathlib import Path
from typing import Any

import prove
import yaml

ROOT = Path(__file__).resolve().parents[2]
JOBS: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]


def matrix(job: str) -> dict[str, list[str]]:
    return JOBS[job]["strategy"]["matrix"]


def test_each_layer_of_make_test_is_a_job():
    assert sorted(matrix("test")["layer"]) == sorted(layer.target for layer in prove.TEST)
    assert set(matrix("debian")["layer"]) <= {layer.target for layer in prove.TEST}


def test_each_layer_of_make_proof_is_a_job():
    assert sorted(matrix("proof")["layer"]) == sorted(layer.name for layer in prove.PROOF)


def test_jobs_run_targets_of_the_makefile():
    commands = [step["run"] for job in JOBS.values() for step in job["steps"] if "run" in step]
    assert {"make ${{ matrix.layer }}", "make proof LAYER=${{ matrix.layer }}"} <= set(commands)
