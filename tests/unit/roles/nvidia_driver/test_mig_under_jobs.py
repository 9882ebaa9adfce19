"""Another layout of GPUs stops the whole play while jobs run, before slurm.conf is changed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
PLAY = """
- hosts: node:other
  gather_facts: false
  tasks:
    - include_role: {name: nvidia_driver, tasks_from: mig}
      vars: {nvidia_driver_mig: "{{ LAYOUT if inventory_hostname == 'node' else {} }}"}
- hosts: controller
  gather_facts: false
  tasks: [{debug: {msg: slurm.conf is written}}]
"""
CONFIG = Path("/etc/muster/mig.json")


def run(folder: Path, layout: dict[str, int], jobs: int) -> str:
    # In place of Muster's: this machine may have jobs of its own. Beside the play it comes first.
    modules = folder / "collections/ansible_collections/muster/slurm/plugins/modules"
    modules.mkdir(parents=True)
    module = modules / "nvidia_hardware"
    module.write_text(f'#!/bin/sh\necho \'{{"changed": false, "jobs": {jobs}}}\'\n')
    (folder / "play.yml").write_text(PLAY.replace("LAYOUT", str(layout)))
    local = f"{{ansible_connection: local, ansible_python_interpreter: {sys.executable}}}"
    (folder / "hosts.yml").write_text(
        f"all: {{vars: {local}, hosts: {{node: , other: , controller: }}}}\n"
    )
    done = subprocess.run(
        [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "hosts.yml", "play.yml"],
        cwd=folder,
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    # Ansible breaks long lines.
    return " ".join((done.stdout + done.stderr).split())


pytestmark = pytest.mark.skipif(CONFIG.exists(), reason="this machine is a node with MIG")


def test_another_layout_under_jobs_stops_the_play_for_the_controller_too(tmp_path):
    said = run(tmp_path, {"1g.10gb": 7}, jobs=2)
    assert "node has jobs, and its GPUs would be partitioned again (gpus.mig in" in said
    assert "slurm.conf is written" not in said


@pytest.mark.parametrize(
    ("layout", "jobs"),
    # No file and no layout are the same: whole GPUs.
    [({"1g.10gb": 7}, 0), ({}, 2)],
    ids=["without-jobs", "as-before"],
)
def test_otherwise_it_goes_on(tmp_path, layout, jobs):
    said = run(tmp_path, layout, jobs)
    assert "slurm.conf is written" in said
    assert "failed=0" in said
