"""Point testinfra at the hosts of the molecule scenario that runs.

By `ssh://` with one connection per host, on which a command takes 10 ms; by `podman exec` each
takes 200, most of it CPU. On machines that were kept the tests are repeated by
`molecule verify -s munge`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from by_machine import ByMachine
from testinfra.host import Host

ROOT = Path(__file__).parents[2]


def pytest_configure(config: pytest.Config) -> None:
    scenario = os.environ.get("MOLECULE_FILE")
    if scenario and not config.option.hosts:
        settings = yaml.safe_load(Path(scenario).read_text(encoding="utf-8"))
        config.option.hosts = ",".join(spec(platform["name"]) for platform in settings["platforms"])


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByMachine:
    """Run the tests of both machines at a time, for roles whose tests wait: `n: "2"`."""
    return ByMachine(config, log)


def spec(machine: str) -> str:
    """Return how testinfra reaches a machine of the scenario.

    By the backend that knows a command's exit code 255 from one of ssh's own.
    """
    fleet = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "fleet"
    config = fleet / "testinfra_ssh_config"
    # Its place can't be said in a hostspec, and without one testinfra connects for each command.
    # In this folder, because it goes away with the machine, whose address the next one gets.
    config.write_text(f"ControlPath {fleet}/%n\nInclude {fleet}/ssh_config\n", encoding="utf-8")
    return f"safe-ssh://{machine}?ssh_config={config}"


@pytest.fixture
def hostspec() -> Callable[[str], str]:
    """Return what names a machine for `pytest --hosts`."""
    return spec


@pytest.fixture
def noticed() -> Path:
    """Return the file with the tests that noticed a spoilt host, a line each."""
    return Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "noticed"


@pytest.fixture
def play(host: Host, tmp_path: Path) -> Callable[..., str]:
    """Return what runs a playbook on this host alone, as the one host of a group.

    Other machines of the scenario may be `beside` it. It returns Ansible's output, whatever became
    of the run.
    """

    def run(
        playbook: Path,
        *options: str,
        in_group: str = "all",
        beside: Sequence[str] = (),
        **variables: Any,
    ) -> str:
        reached = Path(host.backend.ssh_config)
        inventory = tmp_path / "hosts.yml"
        connection = {"ansible_ssh_common_args": f"-F {reached}"}
        names = [host.backend.host.name, *beside]
        hosts = dict.fromkeys(names, connection)
        inventory.write_text(yaml.safe_dump({in_group: {"hosts": hosts}}))
        program = str(Path(sys.executable).with_name("ansible-playbook"))
        command = [program, "--inventory", str(inventory), *options, str(playbook)]
        done = subprocess.run(
            [*command, "--extra-vars", json.dumps(variables)],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            cwd=ROOT,
            env=os.environ
            | {
                "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
                "ANSIBLE_SSH_CONTROL_PATH_DIR": str(reached.parent),
            },
        )
        return done.stdout + done.stderr

    return run


@pytest.fixture
def converge(play: Callable[..., str]) -> Callable[..., str]:
    """Return what runs a scenario's converge.yml on this host, with other variables."""

    def run(scenario: str, *options: str, **variables: Any) -> str:
        return play(ROOT / "molecule" / scenario / "converge.yml", *options, **variables)

    return run
