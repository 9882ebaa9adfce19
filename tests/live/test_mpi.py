"""MPI as docs/software.md adds it: tasks of several nodes find each other through PMIx."""

import frameworks
import pytest
from conftest import Lab
from waiting import until

from muster_sandbox.demo import tour

pytestmark = pytest.mark.proof("installs Open MPI on five hosts")


@pytest.fixture(scope="module", autouse=True)
def _modules(lab: Lab) -> None:
    added = frameworks.modules("libs/python/mpi4py")
    lab.change(lambda cluster: cluster["software"]["modules"].update(added))
    run = lab.play()
    assert run.code == 0, run.output[-6000:]
    tour.prepare(lab.ada)


def test_four_tasks_on_two_nodes_count_together(lab: Lab) -> None:
    ada = lab.ada
    job = ada.run("cd mpi && sbatch --parsable mpi.sbatch").strip()
    output = f"mpi/mpi-{job}.out"
    until(
        lambda: ada.run(f"sacct -nXP -j {job} -o State").strip() == "COMPLETED",
        "the job is done",
        120,
        lambda: ada.run(f"cat {output}", check=False),
    )
    assert "4 tasks on 2 nodes: pi is about 3.14" in ada.run(f"cat {output}")


def test_tasks_without_pmix_are_told(lab: Lab) -> None:
    shown = lab.ada.run(
        "cd mpi && module load libs/python/mpi4py && "
        "srun -p ml-cpu -A LAB-test -N 2 -n 2 --mem=300M --time=2 --mpi=none "
        "python3 pi.py --points 1000 2>&1",
        check=False,
    )
    assert "MPI can't find the 2 tasks" in shown
