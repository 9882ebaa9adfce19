"""A lost GPU drains its node, and its return resumes the node; nvidia-smi is fake."""

from collections.abc import Callable, Iterator

import pytest
from conftest import Lab
from waiting import until

NODE = "lab-gpu-01"
TOOL = "/usr/local/sbin/nvidia-smi"
LIST = "".join(f"00000000:{bus}:00.0, [N/A], [N/A], [N/A]\\n" for bus in ("3B", "5E", "86", "AF"))
WELL = f"case $* in *--query-gpu*) printf '{LIST}';; esac"
LOST = "echo 'Unable to determine the device handle for GPU 0000:AF:00.0: GPU is lost.'; exit 15"
REASON = "muster: health: gpus: 0000:AF:00.0 has fallen off the bus; reboot the node"


@pytest.fixture
def play(lab: Lab) -> Iterator[Callable[[str], None]]:
    """Return the file that controls the node's fake nvidia-smi."""

    def write(script: str) -> None:
        lab.on(NODE, f"cat >{TOOL} <<'END'\n#!/bin/sh\n{script}\nEND\nchmod 0755 {TOOL}")

    yield write
    write(WELL)

    def is_idle() -> bool:
        # A job that leaves the node keeps it draining, so the check may have to come once more.
        lab.on(NODE, "muster-health")
        return state(lab).startswith("idle ")

    # Not `idle*`: on a busy machine slurmctld may have missed an answer of slurmd's, and asks again
    # after a third of SlurmdTimeout.
    until(is_idle, "the node is back", 150)
    lab.on(NODE, f"rm {TOOL}")


def state(lab: Lab) -> str:
    return lab.on("lab-access", f"sinfo --noheader --nodes={NODE} --format='%T %E' --Node").strip()


def test_device_files_without_a_driver_are_not_checked_and_not_broken(lab: Lab) -> None:
    said = lab.on(NODE, "muster-health")
    assert "gpus                 unchecked  nvidia-smi is not installed\n" in said
    assert state(lab).startswith("idle ")


@pytest.fixture
def often(lab: Lab) -> Iterator[None]:
    """SLURM runs the check each few seconds, not once a minute."""
    lab.on("lab-access", "cp -p /etc/slurm/slurm.conf /run/slurm.conf")
    change = "s/^HealthCheckInterval=.*/HealthCheckInterval=2/"
    lab.on("lab-access", f"sed -i '{change}' /etc/slurm/slurm.conf && scontrol reconfigure")
    assert "HealthCheckInterval     = 2 sec" in lab.on("lab-access", "scontrol show config")
    yield
    lab.on("lab-access", "cp -p /run/slurm.conf /etc/slurm/slurm.conf; scontrol reconfigure")


@pytest.mark.usefixtures("often")
def test_slurm_runs_the_check_and_a_lost_gpu_drains_the_node(
    lab: Lab, play: Callable[[str], None]
) -> None:
    play(LOST)
    until(lambda: state(lab) == f"drained {REASON}", "SLURM has run the check", 150)
    play(WELL)
    until(lambda: state(lab).startswith("idle "), "and once more", 150)


def test_a_job_does_not_start_on_a_broken_node(lab: Lab, play: Callable[[str], None]) -> None:
    play(WELL)
    lab.on(NODE, "muster-health")
    play(LOST)
    ada = lab.ada
    job = ada.run(
        f"sbatch --parsable -p ml-gpu -A LAB-test -w {NODE} -n 1 --mem=50M --time=1 --wrap true"
    ).strip()
    try:
        until(lambda: state(lab).endswith(f" {REASON}"), "the node is drained", 30)
        # Requeued, and not held.
        shown = f"squeue -h -j {job} -o '%T %Q'"
        until(lambda: ada.run(shown).startswith("PENDING"), "it waits", 30)
        assert ada.run(shown).split()[1] != "0"
    finally:
        ada.run(f"scancel {job}")


@pytest.mark.proof("waits for a job's start and end, for a second way to lose a GPU")
def test_a_gpu_that_is_lost_under_a_job_lets_it_end_and_no_other_begin(
    lab: Lab, play: Callable[[str], None]
) -> None:
    play(WELL)
    lab.on(NODE, "muster-health")
    ada = lab.ada
    job = ada.run(
        f"sbatch --parsable -p ml-gpu -A LAB-test -w {NODE} -n 1 --gres=gpu:1 --mem=50M --time=10"
        " -o began-%j --wrap 'sleep 600'"
    ).strip()
    shown = f"squeue -h -j {job} -o %T"
    # It is RUNNING before its prolog has ended, which would find the GPU lost.
    began = f"test ! -e began-{job} || echo yes"
    try:
        until(lambda: ada.run(began).strip() == "yes", "its script runs", 60)
        play(LOST)
        lab.on(NODE, "muster-health", check=False)
        assert state(lab) == f"draining {REASON}"
        assert ada.run(shown).strip() == "RUNNING"
    finally:
        ada.run(f"scancel {job}")
    until(lambda: state(lab) == f"drained {REASON}", "its job has ended", 60)
    play(WELL)
    lab.on(NODE, "muster-health")
    # Not `idle*`: on a busy machine slurmctld may have missed an answer of slurmd's.
    until(lambda: state(lab).startswith("idle "), "the node is back", 60)


def test_a_person_s_drain_is_left_alone(lab: Lab, play: Callable[[str], None]) -> None:
    lab.on("lab-access", f"scontrol update nodename={NODE} state=drain reason='fan is loud'")
    try:
        for script in (LOST, WELL):
            play(script)
            lab.on(NODE, "muster-health", check=False)
            assert state(lab) == "drained fan is loud"
    finally:
        lab.on("lab-access", f"scontrol update nodename={NODE} state=resume")


@pytest.mark.proof("waits until the check of each minute has run, twice")
def test_a_full_scratch_is_blamed_on_its_job_and_the_node_comes_back(lab: Lab) -> None:
    node, ada = "lab-cpu-02", lab.ada
    submit = (
        f"sbatch --parsable -p ml-cpu -A LAB-test -w {node} -n 1 --mem=50M --time=5 -o /dev/null"
    )
    shown = f"sinfo --noheader --nodes={node} --format='%T %E' --Node"
    free = "df --output=iavail /scratch | tail -n 1"
    lab.on(node, "mkdir -p /scratch && mount -t tmpfs -o nr_inodes=50 none /scratch")
    jobs = []
    try:
        fill = "cd $TMPDIR; while mktemp -p . >/dev/null; do :; done; sleep 300"
        jobs.append(ada.run(f"{submit} --wrap '{fill}'").strip())
        until(lambda: lab.on(node, free).strip() == "0", "it has all files that the disk can hold")
        jobs.append(ada.run(f"{submit} --wrap true").strip())
        reason = (
            "muster: health: scratch: no folder can be made in /scratch: No space left on device; "
            f"job {jobs[0]} of ada has most files"
        )
        until(lambda: lab.on("lab-access", shown).strip().endswith(f" {reason}"), "it is blamed")
        assert ada.run(f"squeue -h -j {jobs[0]} -o %T") == "RUNNING\n"
        ada.run(f"scancel {' '.join(jobs)}")
        until(lambda: lab.on(node, free).strip() != "0", "its files are gone")
        lab.on(node, "muster-health")
        until(lambda: lab.on("lab-access", shown).startswith("idle "), "it takes jobs again", 150)
    finally:
        ada.run(f"scancel {' '.join(jobs)}")
        until(
            lambda: lab.on(node, "umount /scratch; mountpoint /scratch", check=False).endswith(
                "is not a mountpoint\n"
            ),
            "the disk is as it was",
        )
