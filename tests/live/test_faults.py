"""Daemons and nodes are killed; no submitted job and no accounting record is lost."""

import pytest
from conftest import Lab
from waiting import until

from muster_sandbox.containers.podman import podman

pytestmark = pytest.mark.proof(
    "waits for daemons and a node that were killed; `make molecule` kills slurmctld under a job"
)

STATE = "/var/lib/slurm/slurmctld"


def submit(lab: Lab, *options: str) -> str:
    """Submit a small job as ada and return its number."""
    return lab.ada.run(
        "sbatch --parsable -p ml-cpu -A LAB-test -n 1 --mem=50M --time=10 -o /dev/null "
        + " ".join(options)
    ).strip()


def state(lab: Lab, job: str) -> str:
    """Return the state of `job` as the queue has it."""
    return lab.ada.run(f"squeue -h -j {job} -o %T", check=False).strip()


def accounted(lab: Lab, job: str) -> str:
    """Return the state of `job` as accounting has it."""
    return lab.ada.run(f"sacct -nXP -j {job} -o State", check=False).strip()


def test_slurmdbd_away_and_back_loses_no_record(lab: Lab) -> None:
    lab.on("lab-access", "systemctl stop slurmdbd")
    try:
        jobs = [submit(lab, "--wrap true") for _ in range(3)]
        until(lambda: not any(state(lab, job) for job in jobs), "the jobs left the queue", 90)
    finally:
        lab.on("lab-access", "systemctl start slurmdbd")
    for job in jobs:
        until(lambda job=job: accounted(lab, job) == "COMPLETED", f"job {job} is in accounting", 90)


def test_killed_slurmctld_keeps_queue_and_running_jobs(lab: Lab) -> None:
    running = submit(lab, "--wrap 'sleep 300'")
    held = submit(lab, "--hold", "--wrap true")
    try:
        until(lambda: state(lab, running) == "RUNNING", "the job runs")
        # slurmctld writes its state every 5 s if something has changed, so the last seconds
        # before a kill may be lost.
        lab.on("lab-access", "touch /run/submitted")
        lab.ada.run(f"scontrol update jobid={held} comment=kept")
        until(
            lambda: bool(lab.on("lab-access", f"find {STATE}/job_state -newer /run/submitted")),
            "slurmctld wrote its state",
        )
        lab.on("lab-access", "systemctl kill -s KILL slurmctld")
        lab.on("lab-access", "systemctl reset-failed slurmctld; systemctl start slurmctld")
        until(lambda: "UP" in lab.on("lab-access", "scontrol ping", check=False), "slurmctld is up")
        assert state(lab, running) == "RUNNING"
        assert state(lab, held) == "PENDING"
        lab.ada.run(f"scontrol release {held}")
        until(lambda: accounted(lab, held) == "COMPLETED", "the held job ran")
    finally:
        lab.ada.run(f"scancel {running}")


def test_killed_node_comes_back_and_takes_jobs(lab: Lab) -> None:
    podman("kill", lab.container("lab-cpu-02"))
    podman("start", lab.container("lab-cpu-02"))
    until(
        lambda: lab.on("lab-access", "sinfo -h -n lab-cpu-02 -o %T").strip() == "idle",
        "the node is idle again",
        120,
    )
    job = submit(lab, "-w lab-cpu-02", "--wrap true")
    until(lambda: accounted(lab, job) == "COMPLETED", "a job ran on it")


def test_restarted_slurmd_keeps_its_job(lab: Lab) -> None:
    job = submit(lab, "-w lab-cpu-01", "--wrap 'sleep 300'")
    until(lambda: state(lab, job) == "RUNNING", "the job runs")
    lab.on("lab-cpu-01", "systemctl restart slurmd")
    until(lambda: "slurmstepd" in lab.on("lab-cpu-01", "ps -e -o comm="), "its steps live on")
    assert state(lab, job) == "RUNNING"
    lab.ada.run(f"scancel {job}")
