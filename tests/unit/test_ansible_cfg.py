"""How Ansible talks to machines, with the ansible.cfg of this checkout."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def ssh_options() -> dict[str, object]:
    """Return the options of Ansible's ssh, as Ansible reads them."""
    program = Path(sys.executable).with_name("ansible-config")
    kept = {name: text for name, text in os.environ.items() if not name.startswith("ANSIBLE_")}
    done = subprocess.run(
        [program, "dump", "--type=connection", "--format=json"],
        env=kept | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
        capture_output=True,
        text=True,
        check=True,
    )
    [options] = [named["ssh"] for named in json.loads(done.stdout) if "ssh" in named]
    return {option["name"]: option["value"] for option in options}


def test_the_host_key_of_a_machine_is_checked() -> None:
    options = ssh_options()
    assert options["host_key_checking"] is True
    for name in ("ssh_args", "ssh_common_args", "ssh_extra_args"):
        assert "hostkey" not in str(options[name]).lower(), name
        assert "knownhosts" not in str(options[name]).lower(), name
