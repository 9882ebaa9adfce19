"""How the role has a node rebooted: by SLURM alone, once, and in words where SLURM does not."""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
REASON = "driver 550.163.01 in place of 535.261.03"
PLAY = f"""
- hosts: all:!controller
  gather_facts: false
  tasks:
    - include_role: {{name: nvidia_driver, tasks_from: reboot}}
      vars:
        __nvidia_driver_reboot_for: {REASON}
        nvidia_driver_controller: controller
"""
HOSTS = {
    "controller": {},
    "busy": {},
    "asked": {},
    "unknown": {},
    "idle": {},
    "unwanted": {"nvidia_driver_reboot": "never"},
}
INVALID = "slurm_reboot_nodes error: Invalid node state"
# What it is called with is written down: by two nodes at once, each a line.
SCONTROL = f"""#!/bin/sh
echo "$@" >>"$CALLED"
case "$*" in
*"show node busy") echo State=MIXED ;;
*"show node asked") echo State=MIXED+DRAIN+REBOOT_REQUESTED ;;
*"show node unknown") echo "Node unknown not found" >&2; exit 1 ;;
*"show node "*) echo State=IDLE ;;
*" idle") echo "{INVALID}" >&2; exit 1 ;;
esac
"""


@dataclass(frozen=True)
class Run:
    """What Ansible said, the failed tasks of each host, and what scontrol was called with."""

    said: str
    failed: dict[str, int]
    called: list[str]

    def reboots(self, node: str) -> list[str]:
        """How SLURM was asked to reboot a node."""
        return [line for line in self.called if re.fullmatch(f"reboot .* {node}", line)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run on a node in each state."""
    folder = tmp_path_factory.mktemp("reboot")
    (folder / "scontrol").write_text(SCONTROL)
    (folder / "scontrol").chmod(0o755)
    (folder / "play.yml").write_text(PLAY)
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    (folder / "hosts.yml").write_text(json.dumps({"all": {"vars": local, "hosts": HOSTS}}))
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    done = subprocess.run(
        [program, "-i", "hosts.yml", "play.yml"],
        cwd=folder,
        env={
            **os.environ,
            "PATH": f"{folder}:{os.environ['PATH']}",
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "CALLED": str(folder / "called"),
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    counts = re.findall(r"^(\w+) +: .* failed=(\d+)", done.stdout, re.MULTILINE)
    return Run(
        # Ansible breaks long lines.
        " ".join((done.stdout + done.stderr).split()),
        {host: int(failed) for host, failed in counts},
        (folder / "called").read_text().splitlines(),
    )


def test_slurm_is_asked_to_reboot_the_node_when_its_jobs_have_ended(run):
    assert run.reboots("busy") == [f"reboot ASAP nextstate=RESUME reason=muster: {REASON} busy"]
    assert run.failed["busy"] == 0
    assert f"busy needs a reboot for {REASON}" in run.said


def test_slurm_is_asked_once(run):
    assert run.failed["asked"] == 0
    assert run.reboots("asked") == []


@pytest.mark.parametrize(
    ("node", "cause"), [("unknown", "Node unknown not found"), ("idle", INVALID)]
)
def test_what_slurm_does_not_do_is_left_to_a_person(run, node, cause):
    assert run.failed[node] == 1
    assert f"{node} needs a reboot for {REASON}, and SLURM does not do it: {cause};" in run.said
    assert f"reboot it once no job runs there (squeue --nodelist={node}) and run again" in run.said


def test_where_nobody_wants_it_it_is_only_said(run):
    assert f"unwanted needs a reboot for {REASON}" in run.said
    assert run.failed["unwanted"] == 0
    assert not [line for line in run.called if "unwanted" in line]
