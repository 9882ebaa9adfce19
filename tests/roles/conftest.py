"""Point testinfra at the hosts of the molecule scenario that runs.

By `podman://`, which needs 3 s where `ansible://` needs 36. Without molecule the hosts are named
on the command line: `pytest --hosts=podman://mol-munge-trixie tests/roles/test_munge.py`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from testinfra.host import Host

ROOT = Path(__file__).parents[2]


def pytest_configure(config: pytest.Config) -> None:
    scenario = os.environ.get("MOLECULE_FILE")
    if scenario and not config.option.hosts:
        settings = yaml.safe_load(Path(scenario).read_text(encoding="utf-8"))
        name = settings["scenario"]["name"]
        config.option.hosts = ",".join(
            f"podman://mol-{name}-{platform['name']}" for platform in settings["platforms"]
        )


@pytest.fixture
def converge(host: Host, tmp_path: Path) -> Callable[..., str]:
    """Return what runs a scenario's converge.yml on this host alone, with other variables.

    It returns Ansible's output, whatever became of the run.
    """

    def run(scenario: str, *options: str, **variables: str) -> str:
        container = host.backend.name
        inventory = tmp_path / "hosts.yml"
        connection = {
            "ansible_connection": "containers.podman.podman",
            "ansible_host": container,
        }
        name = host.check_output("hostname")
        inventory.write_text(yaml.safe_dump({"all": {"hosts": {name: connection}}}))
        playbook = ROOT / "molecule" / scenario / "converge.yml"
        program = str(Path(sys.executable).with_name("ansible-playbook"))
        command = [program, "--inventory", str(inventory), *options, str(playbook)]
        done = subprocess.run(
            [*command, "--extra-vars", json.dumps(variables)],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            cwd=ROOT,
            env=os.environ | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
        )
        return done.stdout + done.stderr

    return run
