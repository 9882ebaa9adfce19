"""A user's jobs: ada's tour, arrays, and jobs that SLURM must refuse."""

import pytest
from conftest import Lab
from waiting import until

from muster_sandbox.demo import tour


@pytest.fixture(scope="module", autouse=True)
def _ready(lab: Lab) -> None:
    tour.prepare(lab.ada)


@pytest.mark.parametrize(("title", "step"), tour.STEPS, ids=[title for title, _ in tour.STEPS])
def test_step_of_the_tour_shows_what_it_should(lab: Lab, title: str, step) -> None:
    assert step(lab.ada)


def test_array_runs_each_task_once(lab: Lab) -> None:
    ada = lab.ada
    job = ada.run(
        "sbatch --parsable -p ml-cpu -A LAB-test --array=1-6 -n 1 --mem=50M --time=1 "
        "-o 'array-%a.out' --wrap 'echo task $SLURM_ARRAY_TASK_ID'"
    ).strip()
    until(
        lambda: ada.run(f"sacct -nXP -j {job} -o State").split() == ["COMPLETED"] * 6,
        "the array's six tasks completed",
        seconds=90,
    )
    assert [ada.run(f"cat array-{n}.out").strip() for n in range(1, 7)] == [
        f"task {n}" for n in range(1, 7)
    ]


def test_jobs_find_the_whole_standard_library_on_each_node(lab: Lab) -> None:
    # TensorFlow 2.15 imports distutils, which Debian keeps in a package of its own.
    modules = "venv, ensurepip, dbm.gnu, ctypes, sqlite3, curses, lzma"
    if lab.ada.run("python3 -c 'import sys; print(sys.version_info < (3, 12))'").strip() == "True":
        modules += ", distutils.spawn, lib2to3"
    shown = lab.ada.run(
        f"srun -p ml-cpu -A LAB-test -N2 -n2 --mem=50M --time=1 "
        f"python3 -W ignore::DeprecationWarning -c 'import {modules}' && echo all"
    )
    assert "all" in shown.splitlines()


def test_job_without_memory_request_leaves_memory_to_others(lab: Lab) -> None:
    ada = lab.ada
    submit = "sbatch --parsable -p ml-cpu -w lab-cpu-01 -A LAB-test -n 1 --time=1 --wrap 'sleep 60'"
    jobs = [ada.run(submit).strip() for _ in range(2)]
    try:
        until(
            lambda: ada.run(f"squeue -h -j {','.join(jobs)} -o %T").split() == ["RUNNING"] * 2,
            "two jobs without --mem side by side on one node",
        )
    finally:
        ada.run(f"scancel {' '.join(jobs)}")


@pytest.fixture(scope="module")
def stranger(lab: Lab) -> str:
    """A login on the access node that is in no group of the definition and in no account."""
    lab.on("lab-access", "id -u eve >/dev/null 2>&1 || useradd -m -u 29999 eve")
    return "runuser -u eve --"


def test_user_outside_the_group_is_refused_by_the_partition(lab: Lab, stranger: str) -> None:
    lab.on("lab-access", "sacctmgr -i add user eve account=lab-test >/dev/null")
    try:
        until(
            lambda: "lab-test" in lab.on("lab-access", "sacctmgr -nP show assoc user=eve"),
            "eve has an association",
        )
        shown = lab.on(
            "lab-access",
            f"cd /tmp; {stranger} sbatch -p ml-cpu -A lab-test --wrap true",
            check=False,
        )
        assert "User's group not permitted to use this partition" in shown
    finally:
        lab.on("lab-access", "sacctmgr -i delete user eve")


def test_user_without_an_association_is_refused(lab: Lab, stranger: str) -> None:
    lab.on("lab-access", "usermod -aG ml-users eve; scontrol reconfigure")
    try:
        shown = lab.on(
            "lab-access", f"cd /tmp; {stranger} sbatch -p ml-cpu --wrap true", check=False
        )
        assert "Invalid account or account/partition combination" in shown
    finally:
        lab.on("lab-access", "gpasswd -d eve ml-users")


def test_project_account_works_in_the_spelling_of_the_definition(lab: Lab) -> None:
    shown = lab.ada.run("srun -p ml-cpu -A LAB-test -n 1 --mem=50M printenv SLURM_JOB_ACCOUNT")
    assert shown.strip() == "lab-test"


def test_training_runs_to_its_end(lab: Lab) -> None:
    ada = lab.ada
    job = ada.run("cd train && sbatch --parsable train.sbatch").strip()
    assert ada.wait_for(job) == "COMPLETED"
    assert "done: 1000 epochs" in ada.run(f"cat train/train-{job}.out")


def test_training_that_nears_its_time_limit_saves_and_is_queued_again(lab: Lab) -> None:
    ada = lab.ada
    job = ada.run("cd train && sbatch --parsable train.sbatch").strip()
    try:
        until(
            lambda: "epochs are done" in ada.run(f"cat train/train-{job}.out 2>&1", check=False),
            "the job trains",
        )
        # What `#SBATCH --signal` sends a minute before the limit.
        ada.run(f"scancel --signal=USR1 --batch {job}")
        until(
            lambda: ada.run(f"squeue -h -j {job} -o %T").strip() == "PENDING",
            "the job is in the queue again",
        )
        assert "which are saved" in ada.run(f"cat train/train-{job}.out")
        assert '"epochs": ' in ada.run(f"cat train/train-{job}.json")
    finally:
        ada.run(f"scancel {job}")


def test_launch_starts_tasks_that_know_each_other(lab: Lab) -> None:
    shown = lab.ada.run(
        "srun -p ml-cpu -A LAB-test -N2 -n2 --mem=50M --time=1 "
        "launch sh -c 'echo $RANK of $WORLD_SIZE at $MASTER_ADDR by $GLOO_SOCKET_IFNAME'"
    )
    lines = sorted(line for line in shown.splitlines() if " of 2 at " in line)
    assert [line.split()[:5] for line in lines] == [
        [str(rank), "of", "2", "at", "lab-cpu-01"] for rank in range(2)
    ]
    # The interface of the cluster's network, on which the other node is.
    assert "by lo" not in shown


def test_a_task_that_can_not_start_ends_its_step(lab: Lab) -> None:
    shown = lab.ada.run(
        "srun -p ml-cpu -A LAB-test -N2 -n2 --mem=50M --time=5 sh -c "
        "'[ $SLURM_PROCID = 1 ] && exec sleep 240; exec launch no-such-program' 2>&1",
        check=False,
    )
    assert "launch: no-such-program is not there: load the module" in shown
    assert "CANCELLED" in shown or "aborted" in shown


def test_the_memory_of_a_job_of_ten_seconds_is_measured(lab: Lab) -> None:
    ada = lab.ada
    job = ada.run(
        "sbatch --parsable -p ml-cpu -A LAB-test -n 1 --mem=500M --time=2 -J fills --wrap "
        """'python3 -c "import time; kept = bytearray(200 * 2**20); time.sleep(10)"'"""
    ).strip()
    assert ada.wait_for(job) == "COMPLETED"
    said = ada.run(f"muster-job {job}")
    assert f"Job {job}, fills, of ada:" in said
    measured = float(said.partition("Memory")[2].split()[0])
    assert 200 <= measured < 500
    assert "MiB at most in one task" in said


def test_a_job_that_waits_says_why(lab: Lab) -> None:
    ada = lab.ada
    job = ada.run("sbatch --parsable -p ml-cpu -A LAB-test --mem=50M --hold --wrap true").strip()
    try:
        said = ada.run(f"muster-job {job}")
        assert f"Job {job}, of ada: PENDING, 1 node in ml-cpu" in said
        assert f"What you can do: scontrol release {job}" in said
    finally:
        ada.run(f"scancel {job}")
