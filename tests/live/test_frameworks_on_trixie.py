"""PyTorch of Debian 13 and JAX from PyPI, as modules of a cluster on three machines."""

import shlex

import pytest
from conftest import Lab
from environments import add_requirements

pytestmark = pytest.mark.proof("adds modules to the cluster of test_split.py")

MODULES = {
    "apps/python": {
        "3.13": {
            "default": True,
            "whatis": "Python 3.13 of the distribution, as a virtual environment",
            "prepend_path": {"PATH": "bin"},
            "build": "python3.13 -m venv {root}",
        }
    },
    "libs/python/torch": {
        "2.6": {
            "whatis": "PyTorch 2.6 of Debian 13, for CPUs",
            "packages": ["python3-torch"],
            "prepend_path": {"PATH": "bin"},
            "build": "python3.13 -m venv --system-site-packages {root}",
            "imports": ["torch"],
        }
    },
    "libs/python/jax": {
        "0.12": {
            "whatis": "JAX 0.12 from PyPI, for CPUs",
            "environment": {
                "python": "apps/python/3.13",
                "requirements": "software/jax-0.12.txt",
            },
            "imports": ["jax"],
        }
    },
}

PROGRAMS = {
    "libs/python/torch/2.6": (
        "import torch; print(torch.__version__, torch.arange(10.).square().sum().item())",
        "2.6.",
    ),
    "libs/python/jax/0.12": (
        "import jax; square = jax.jit(lambda x: (x * x).sum()); "
        "print(jax.__version__, square(jax.numpy.arange(10.)))",
        "0.12.",
    ),
}
"""Module -> a program, and how the version that it prints begins; then it prints 285.0."""


@pytest.fixture(scope="module", autouse=True)
def _modules(split: Lab) -> None:
    add_requirements(split, "split-ctl", "jax-0.12", "3.13")
    split.change(lambda cluster: cluster.update(software={"modules": MODULES}))
    run = split.play()
    assert run.code == 0, run.output[-6000:]


@pytest.mark.parametrize("module", PROGRAMS)
def test_a_job_computes_with_a_module(split: Lab, module: str) -> None:
    program, version = PROGRAMS[module]
    python = f"module load {module} && python3 -c {shlex.quote(program)}"
    job = f"srun -n 1 --mem=1500M bash -lc {shlex.quote(python)}"
    shown = split.on("split-login", f"runuser -l ada -c {shlex.quote(job)}", timeout=200)
    told, result = shown.split()[-2:]
    assert told.startswith(version)
    assert result == "285.0"


def test_a_second_run_changes_nothing(split: Lab) -> None:
    run = split.play()
    assert run.code == 0, run.output[-4000:]
    assert run.changed_tasks == []
