"""examples/mpi: what pi.py says, with a stand-in for MPI, and how mpi.sbatch starts it."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import example_jobs
import pytest

STAND_IN = """
import random, runpy, sys, types

class Array:
    '''Of numpy no more than the program uses.'''
    def __init__(self, values):
        self.values = values
    def __iter__(self):
        return iter(self.values)
    def __mul__(self, other):
        return Array([a * b for a, b in zip(self.values, other.values)])
    def __add__(self, other):
        return Array([a + b for a, b in zip(self.values, other.values)])
    def __le__(self, number):
        return Array([value <= number for value in self.values])
    def sum(self):
        return sum(self.values)

class Generator:
    def __init__(self, seed):
        self.source = random.Random(seed)
    def random(self, shape):
        return [Array([self.source.random() for _ in range(shape[1])]) for _ in range(shape[0])]

class World:
    Get_rank = staticmethod(lambda: 0)
    Get_size = staticmethod(lambda: {size})
    allreduce = staticmethod(lambda number: number * {size})
    gather = staticmethod(lambda name: [name] * {size})

numpy = types.ModuleType("numpy")
numpy.random = types.SimpleNamespace(default_rng=Generator, Generator=Generator)
mpi4py = types.ModuleType("mpi4py")
mpi4py.MPI = types.SimpleNamespace(COMM_WORLD=World)
sys.modules.update(numpy=numpy, mpi4py=mpi4py)
sys.argv = ["pi.py", "--points", "20000"]
runpy.run_path({program!r}, run_name="__main__")
"""


def ran(tasks: int, pmix: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run pi.py as one of some tasks, with what PMIx sets."""
    program = STAND_IN.format(size=tasks, program=str(example_jobs.EXAMPLES / "mpi/pi.py"))
    return subprocess.run(
        [sys.executable, "-c", program],
        env={"SLURM_NTASKS": str(tasks), **pmix},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_all_tasks_count_together() -> None:
    done = ran(4, {"PMIX_RANK": "0"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("4 tasks on 1 nodes: pi is about 3.1")


def test_tasks_without_pmix_say_so_and_fail() -> None:
    done = ran(4, {})
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("pi.py: MPI can't find the 4 tasks: start it with srun --mpi=")


@pytest.mark.parametrize("is_there", [True, False])
def test_the_job_starts_its_tasks_by_pmix_or_ends_without_its_module(
    tmp_path: Path, is_there: bool
) -> None:
    folder = example_jobs.copy("mpi", tmp_path)
    loads = "" if is_there else '[ "$1" != load ]'
    example_jobs.stand_in(tmp_path, "module", loads)
    example_jobs.stand_in(tmp_path, "srun", "")
    done = example_jobs.run(folder, "bash", "mpi.sbatch", SLURM_CPUS_PER_TASK="1")
    assert done.returncode == (0 if is_there else 1)
    started = "--mpi=pmix --kill-on-bad-exit=1 --cpus-per-task=1 python3 pi.py"
    assert example_jobs.called(tmp_path, "srun") == ([started] if is_there else [])
