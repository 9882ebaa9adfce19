"""How the role has a node rebooted: by SLURM alone, once, and in words where SLURM does not."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
REASON = "driver 550.163.01 in place of 535.261.03"
PLAY = f"""
- hosts: node
  gather_facts: false
  tasks:
    - include_role: {{name: nvidia_driver, tasks_from: reboot}}
      vars:
        __nvidia_driver_reboot_for: {REASON}
        nvidia_driver_controller: controller
"""
# What it is called with is written down; STATE is the node's, REFUSAL what SLURM says to a reboot.
SCONTROL = """#!/bin/sh
echo "$@" >>"$CALLED"
case "$*" in
*"show node"*) [ -n "$STATE" ] || trouble="Node node not found" ;;
*) trouble=$REFUSAL ;;
esac
[ -z "$trouble" ] || { echo "$trouble" >&2; exit 1; }
echo "State=$STATE"
"""
ASKED = f"reboot ASAP nextstate=RESUME reason=muster: {REASON} node"


def run(folder: Path, state: str, refusal: str = "", **variables: str) -> tuple[str, list[str]]:
    """Return what Ansible said and what scontrol was called with."""
    (folder / "scontrol").write_text(SCONTROL)
    (folder / "scontrol").chmod(0o755)
    (folder / "called").touch()
    (folder / "play.yml").write_text(PLAY)
    local = f"{{ansible_connection: local, ansible_python_interpreter: {sys.executable}}}"
    (folder / "hosts.yml").write_text(f"all: {{vars: {local}, hosts: {{node: , controller: }}}}\n")
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    done = subprocess.run(
        [program, "-i", "hosts.yml", "play.yml", "--extra-vars", json.dumps(variables)],
        cwd=folder,
        env={
            **os.environ,
            "PATH": f"{folder}:{os.environ['PATH']}",
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "STATE": state,
            "REFUSAL": refusal,
            "CALLED": str(folder / "called"),
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    # Ansible breaks long lines.
    said = " ".join((done.stdout + done.stderr).split())
    return said, (folder / "called").read_text().splitlines()


def test_slurm_is_asked_to_reboot_the_node_when_its_jobs_have_ended(tmp_path):
    said, called = run(tmp_path, "MIXED")
    assert called[-1] == ASKED
    assert "failed=0" in said
    assert f"node needs a reboot for {REASON}" in said


def test_slurm_is_asked_once(tmp_path):
    said, called = run(tmp_path, "MIXED+DRAIN+REBOOT_REQUESTED")
    assert "failed=0" in said
    assert not [line for line in called if line.startswith("reboot")]


@pytest.mark.parametrize(
    ("state", "refusal", "cause"),
    [
        ("", "", "Node node not found"),
        (
            "IDLE",
            "slurm_reboot_nodes error: Invalid node state",
            "slurm_reboot_nodes error: Invalid node state",
        ),
    ],
)
def test_what_slurm_does_not_do_is_left_to_a_person(tmp_path, state, refusal, cause):
    said, _ = run(tmp_path, state, refusal)
    assert "failed=1" in said
    assert f"node needs a reboot for {REASON}, and SLURM does not do it: {cause};" in said
    assert "reboot it once no job runs there (squeue --nodelist=node) and run again" in said


def test_where_nobody_wants_it_it_is_only_said(tmp_path):
    said, called = run(tmp_path, "IDLE", nvidia_driver_reboot="never")
    assert f"node needs a reboot for {REASON}" in said
    assert called == []
