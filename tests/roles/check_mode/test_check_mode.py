"""What `--check` says of hosts that are as the role wants them. Run by molecule, for any role."""

import os
import re
import subprocess
from pathlib import Path

import yaml


def test_check_mode_reports_no_change_on_a_converged_host():
    scenario = Path(os.environ["MOLECULE_SCENARIO_DIRECTORY"])
    settings = yaml.safe_load(Path(os.environ["MOLECULE_FILE"]).read_text(encoding="utf-8"))
    converge = settings["ansible"]["playbooks"].get("converge", "converge.yml")
    inventory = Path(os.environ["MOLECULE_INVENTORY_FILE"]).parent
    done = subprocess.run(
        [
            *("ansible-playbook", "--check", "--diff", "--inventory", str(inventory)),
            str(scenario / converge),
        ],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    changed = dict(re.findall(r"^(\S+) +: ok=\d+ +changed=(\d+) ", done.stdout, re.MULTILINE))
    assert changed, said
    assert set(changed.values()) == {"0"}, said
