"""PyTorch and TensorFlow as docs/software.md adds them: alike on all nodes, replaced under a job.

The node that is away when they are installed is one of the two that train later.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import frameworks
import pytest
from conftest import Lab, Run
from documentation import ROOT
from environments import add_requirements
from waiting import until

from muster_sandbox.containers.podman import podman
from muster_sandbox.demo import tour

pytestmark = pytest.mark.proof("installs PyTorch on five hosts and builds TensorFlow twice")

CONTROLLER = "lab-access"
AWAY = "lab-cpu-02"
NODES = {"lab-cpu-01", AWAY}
TORCH, TENSORFLOW = "libs/python/torch/1.13.1", "libs/python/tensorflow/2.15"
JOB_SECONDS = 300
"""Timeout of a job here: on two busy cores TensorFlow starts in a minute."""


class Runs(NamedTuple):
    """Runs of site.yml with the new modules."""

    without: Run
    """One node was away."""
    verified: Run
    """It was back, and `verify` ran alone."""
    repaired: Run


@pytest.fixture(scope="module")
def requirements(lab: Lab) -> Path:
    """TensorFlow's file of requirements in the inventory."""
    return add_requirements(lab, CONTROLLER, "tensorflow-2.15", "3.11")


@pytest.fixture(scope="module", autouse=True)
def runs(lab: Lab, requirements: Path) -> Runs:
    """Add the page's modules to the definition, and run site.yml as it says."""

    def add(cluster) -> None:
        for name, versions in frameworks.modules().items():
            cluster["software"]["modules"].setdefault(name, {}).update(versions)

    lab.change(add)
    podman("stop", "--time", "2", lab.container(AWAY))
    try:
        without = lab.play()
    finally:
        podman("start", lab.container(AWAY))
        until(
            lambda: lab.on(CONTROLLER, f"sinfo -h -n {AWAY} -o %T").strip() == "idle",
            "the node is back",
            120,
        )
    verified = lab.play("--tags", "verify")
    repaired = lab.play()
    assert repaired.code == 0, repaired.output[-6000:]
    tour.prepare(lab.ada)
    return Runs(without, verified, repaired)


def test_a_node_that_was_away_is_named_and_the_next_run_repairs_it(runs: Runs) -> None:
    assert runs.without.code != 0
    assert f"{AWAY}: not configured in this run" in runs.without.output
    assert runs.verified.code != 0
    missing = r"([\w\[\],-]+): ([\w, -]+) are not installed there, which modules"
    [(hosts, packages)] = set(re.findall(missing, runs.verified.output))
    assert hosts == AWAY
    assert set(packages.split(", ")) == {"python3-torch", "libopenblas0-openmp"}
    assert AWAY in runs.repaired.changed


def test_a_run_after_that_changes_nothing(lab: Lab) -> None:
    run = lab.play()
    assert run.code == 0, run.output[-4000:]
    assert run.changed_tasks == []


def ended(lab: Lab, job: str, output: str) -> str:
    """Wait until a job is over; return what it has written. It must have ended well."""
    shown = f"sacct -nXP -j {job} -o State"
    over = ("COMPLETED", "FAILED", "OUT_OF_MEMORY", "TIMEOUT", "NODE_FAIL", "CANCELLED")
    until(
        lambda: lab.ada.run(shown).startswith(over),
        f"job {job} is over",
        JOB_SECONDS,
        lambda: lab.ada.run(f"squeue -j {job}; cat {output}", check=False),
    )
    written = lab.ada.run(f"cat {output}")
    assert lab.ada.run(shown).strip() == "COMPLETED", written
    return written


def test_keras_trains_on_two_nodes(lab: Lab) -> None:
    job = lab.ada.run("cd multiworker && sbatch --parsable multiworker.sbatch").strip()
    losses = frameworks.losses(ended(lab, job, f"multiworker/multiworker-{job}.out"))
    assert losses.keys() == NODES
    assert len(set(losses.values())) == 1
    # It has learned: of a sum of 64 numbers with variance 1 the first guess is wrong by 64.
    assert float(losses[AWAY]) < 8


def test_pytorch_trains_on_two_nodes(lab: Lab) -> None:
    lab.ada.run("cd ddp && python3 packed.py points points")
    job = lab.ada.run("cd ddp && sbatch --parsable ddp-cpu.sbatch --data points").strip()
    losses = frameworks.losses(ended(lab, job, f"ddp/ddp-cpu-{job}.out"))
    assert losses.keys() == NODES
    assert len(set(losses.values())) == 1
    assert float(losses[AWAY]) < 8


def test_what_this_release_of_pytorch_lacks_is_told(lab: Lab) -> None:
    shown = lab.ada.run(
        "cd ddp && sbatch --wait -o lacks.out ddp-cpu.sbatch --fsdp; cat lacks.out", check=False
    )
    # Debian's package of 1.13.1 reports the version 1.13.0a0.
    assert "--fsdp needs PyTorch 2.6, and this is 1.13." in shown


def test_a_training_whose_worker_is_killed_names_it_and_goes_on(lab: Lab) -> None:
    ada = lab.ada
    ada.run("cd ddp && sed 's/--steps 2000/--steps 4000/' ddp-cpu.sbatch >long.sbatch")
    job = ada.run("cd ddp && sbatch --parsable long.sbatch").strip()
    output = f"ddp/ddp-cpu-{job}.out"

    def shown() -> str:
        return ada.run(f"cat {output} 2>&1", check=False)

    until(lambda: "step 1000:" in shown(), "the training has a checkpoint", JOB_SECONDS, shown)
    lab.on(AWAY, "pkill -KILL -f ddp.py")
    until(lambda: f" on {AWAY} has ended in step " in shown(), "the worker is named", 30, shown)
    until(
        lambda: ada.run(f"squeue -h -j {job} -o %T").strip() == "PENDING",
        "the job is in the queue again",
    )
    lab.on(CONTROLLER, f"scontrol update JobId={job} StartTime=now")
    written = ended(lab, job, output)
    assert re.search(r"2 processes, from step [1-9]000$", written, re.MULTILINE)
    assert len(set(frameworks.losses(written).values())) == 1


def test_what_a_module_is_says_where_it_runs(lab: Lab) -> None:
    for module in (TORCH, TENSORFLOW):
        assert "for CPUs" in lab.ada.run(f"module whatis {module} 2>&1")


def test_a_user_s_own_environment_sees_tensorflow(lab: Lab) -> None:
    shown = lab.ada.run(
        f"module load {TENSORFLOW} && python3 -m venv own && "
        "own/bin/python -c 'import numpy, sys; print(sys.prefix, numpy.__file__)'"
    )
    prefix, file = shown.split()
    assert prefix.endswith("/own")
    assert file.startswith(f"{release(lab)}/")


def release(lab: Lab) -> str:
    """Return the folder that users get with TensorFlow's module."""
    shown = f"module load {TENSORFLOW} && python3 -c 'import sys; print(sys.prefix)'"
    return lab.ada.run(shown).strip()


USES_A_RELEASE = f"""#!/bin/bash
module load {TENSORFLOW}
python3 - <<'end'
import pathlib, sys, time
pathlib.Path("began").touch()
while not pathlib.Path("go").exists():
    time.sleep(0.2)
# Nothing of it was read before.
import tensorflow
print(sys.prefix, int(tensorflow.reduce_sum(tensorflow.range(10))))
end
"""


@pytest.fixture
def job_with_a_release(lab: Lab) -> Iterator[str]:
    """A job that has loaded TensorFlow's module, and will import it when there is a file `go`."""
    ada = lab.ada
    ada.run("rm -f began go; cat >uses.sbatch", stdin=USES_A_RELEASE)
    job = ada.run(
        "sbatch --parsable -p ml-cpu -A LAB-test -n 1 --mem=1500M --time=30 -o uses-%j.out "
        "uses.sbatch"
    ).strip()
    try:
        until(lambda: "began" in ada.run("ls"), "the job has loaded the module")
        yield job
    finally:
        ada.run(f"scancel {job}")


def software(lab: Lab, verb: str, *words: str) -> str:
    """Return what a verb of `muster software` says."""
    done = subprocess.run(
        [sys.executable, "-m", "muster", "software", verb, str(lab.instance.folder), *words],
        cwd=ROOT,
        env=os.environ | {"COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    return done.stdout


def collect(lab: Lab, published: str) -> str:
    """Run gc as if TensorFlow's modulefile had been published at another time."""
    modulefile = f"/apps/modules/{TENSORFLOW}.lua"
    return lab.on(
        CONTROLLER, f"touch --date '{published}' {modulefile} && muster-software gc", timeout=120
    )


def test_a_release_is_replaced_under_a_job_rolled_back_and_collected(
    lab: Lab, requirements: Path, job_with_a_release: str
) -> None:
    job, first = job_with_a_release, release(lab)
    text = requirements.read_text(encoding="utf-8")
    requirements.write_text(f"{text}# Another release\n", encoding="utf-8")
    software(lab, "build")
    assert release(lab) == first
    assert "publishes it" in software(lab, "diff")
    software(lab, "publish")
    second = release(lab)
    assert second != first
    assert Path(first).name in software(lab, "list")

    # Shells that were open at that moment are a week old now, and the job is older.
    said = collect(lab, "7 days ago")
    assert f"{first}: stays, job {job} may have loaded it" in said

    said = software(lab, "rollback", TENSORFLOW)
    assert f"{TENSORFLOW} is {Path(first).name} again, and not" in said
    assert "change it there too" in said
    assert release(lab) == first
    requirements.write_text(text, encoding="utf-8")
    software(lab, "publish")
    assert release(lab) == first

    # No job is so old that it may have loaded the second one.
    assert f"{second}: removed\n" in collect(lab, "20 days ago")
    folder, name = Path(second).parent, Path(second).name
    assert lab.on(CONTROLLER, f"find {folder} -name '{name}*'") == ""

    lab.ada.run("touch go")
    assert f"{first} 45\n" in ended(lab, job, f"uses-{job}.out")
