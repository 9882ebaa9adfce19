"""A job that starts again finds nothing of its first run.

This file is behind those whose tests run while the job must wait.
"""

from conftest import RUNS, Lab
from waiting import until


def test_a_job_that_starts_again_finds_its_scratch_empty(lab: Lab, requeued: str) -> None:
    try:
        until(lambda: lab.ada.run(RUNS).count("run\n") == 2, f"{requeued} runs again", 240)
        assert lab.ada.run(RUNS) == "run\nrun\n"
    finally:
        lab.ada.run(f"scancel {requeued}")
