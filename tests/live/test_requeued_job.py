"""What a job's first run leaves to the next one.

This file is behind those whose tests run while the job must wait.
"""

import pytest
from conftest import RUNS, Lab
from documentation import ROOT, Page
from waiting import until

TRAIN = """
import os, signal, sys, time

def save(*_):
    time.sleep(3)
    with open("checkpoint.part", "w") as file:
        file.write("epoch 7")
    os.rename("checkpoint.part", "checkpoint.pt")
    sys.exit()

signal.signal(signal.SIGTERM, save)
open("running", "w").close()
time.sleep(300)
"""
"""Takes longer to save than a process that is killed at once would live."""


def test_the_documented_job_saves_its_work_when_it_is_requeued(lab: Lab) -> None:
    scripts = [block.text for block in Page(ROOT / "docs/autoscaler.md").blocks("text")]
    (script,) = [text for text in scripts if "checkpoint.pt" in text]
    ada = lab.ada
    ada.run("rm -rf saves; mkdir saves")
    ada.run("cat >saves/train.py", stdin=TRAIN)
    ada.run("cat >saves/job", stdin=script.replace("python train", "python3 train"))
    options = "-D saves -A LAB-test -p ml-cpu --mem=100M --time=5 --requeue"
    job = ada.run(f"sbatch --parsable {options} saves/job").strip()
    try:
        until(lambda: "running" in ada.run("ls saves"), f"{job} runs")
        lab.on("lab-access", f"scontrol requeue {job}")
        until(lambda: "PENDING" in ada.run(f"squeue -h -j {job} -o %T"), f"{job} has ended", 60)
        assert ada.run("cat saves/checkpoint.pt") == "epoch 7"
    finally:
        ada.run(f"scancel {job}")


@pytest.mark.proof("waits for a job's end; the documented script saves its work in `make test`")
def test_the_example_saves_its_work_when_it_is_requeued(lab: Lab) -> None:
    ada = lab.ada
    script = (
        (ROOT / "examples/train/train.sbatch")
        .read_text()
        .replace('.json" &', '.json" --epochs 9999 &')
    )
    ada.run("cp -r /usr/local/share/muster/examples/train longer")
    ada.run("cat >longer/train.sbatch", stdin=script)
    job = ada.run("cd longer && sbatch --parsable train.sbatch").strip()
    try:
        until(
            lambda: "epoch 100:" in ada.run(f"cat longer/train-{job}.out 2>&1", check=False),
            "it trains",
        )
        lab.on("lab-access", f"scontrol requeue {job}")
        until(lambda: "PENDING" in ada.run(f"squeue -h -j {job} -o %T"), f"{job} has ended", 60)
        assert "epochs, which are saved" in ada.run(f"cat longer/train-{job}.out")
    finally:
        ada.run(f"scancel {job}")


def test_a_job_that_starts_again_finds_its_scratch_empty(lab: Lab, requeued: str) -> None:
    try:
        until(lambda: lab.ada.run(RUNS).count("run\n") == 2, f"{requeued} runs again", 240)
        assert lab.ada.run(RUNS) == "run\nrun\n"
    finally:
        lab.ada.run(f"scancel {requeued}")
