"""A node is added and removed while the cluster is running."""

import pytest
from conftest import Lab
from waiting import until

from muster_sandbox.containers import machines
from muster_sandbox.containers.podman import podman


@pytest.mark.proof("makes a machine for it, and two runs")
def test_node_comes_and_goes_and_the_others_are_not_contacted(lab: Lab) -> None:
    ada = lab.ada
    job = ada.run(
        "sbatch --parsable -p ml-cpu -A LAB-test -n 1 --mem=50M --time=10 --wrap 'sleep 300'"
    ).strip()
    until(lambda: ada.run(f"squeue -h -j {job} -o %T").strip() == "RUNNING", "the job runs")
    path = lab.instance.folder / "hosts.yml"
    text = path.read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if "lab-cpu-02:" in line)
    new = line.replace("lab-cpu-02", "lab-cpu-03").replace(".22}", ".23}")
    path.write_text(text.replace(line, f"{line}\n{new}"), encoding="utf-8")
    machines.up(lab.instance.fleet())

    run = lab.play("--limit", "controller,lab-cpu-03")

    assert run.code == 0, run.output[-4000:]
    assert run.hosts == {"lab-access", "lab-cpu-03"}
    assert ada.run(f"squeue -h -j {job} -o %T").strip() == "RUNNING"
    ada.run(f"scancel {job}")
    shown = ada.run("srun -p ml-cpu -A LAB-test -w lab-cpu-03 -n 2 --mem-per-cpu=50M hostname")
    assert shown.split() == ["lab-cpu-03"] * 2

    path.write_text(text, encoding="utf-8")
    podman("rm", "--force", "--time", "0", lab.container("lab-cpu-03"))
    run = lab.play("--limit", "controller", "--tags", "base,slurmctld")
    assert run.code == 0, run.output[-4000:]
    assert "lab-cpu-03" not in ada.run("sinfo -h -N")


def test_drained_node_is_a_note_and_no_failure(lab: Lab) -> None:
    lab.on("lab-access", "scontrol update nodename=lab-cpu-02 state=drain reason='fan is loud'")
    try:
        run = lab.play("--tags", "verify")
    finally:
        lab.on("lab-access", "scontrol update nodename=lab-cpu-02 state=resume")
    assert run.code == 0, run.output[-4000:]
    assert "lab-cpu-02: drained by root: fan is loud" in run.output
