"""Point testinfra at the hosts of the molecule scenario that runs.

By ssh with one connection per host, on which a command takes 10 ms; by `podman exec` each
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
from by_release import ByRelease
from testinfra.host import Host

ROOT = Path(__file__).parents[2]


def platforms() -> list[dict[str, Any]]:
    """Return the machines of the scenario that runs."""
    if "MOLECULE_FILE" not in os.environ:
        return []
    settings = yaml.safe_load(Path(os.environ["MOLECULE_FILE"]).read_text(encoding="utf-8"))
    machines: list[dict[str, Any]] = settings["platforms"]
    return machines


def pytest_configure(config: pytest.Config) -> None:
    if platforms() and not config.option.hosts:
        config.option.hosts = ",".join(spec(platform["name"]) for platform in platforms())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of a role on machines that do not have it, where groups say that."""
    roles_of = {platform["name"]: platform.get("groups") for platform in platforms()}
    left_out = []
    for item in items:
        machine = getattr(item, "callspec", None) and item.callspec.params.get("_testinfra_host")
        groups = roles_of.get(machine.backend.host.name) if machine else None
        if groups is not None and item.path.stem.removeprefix("test_") not in groups:
            left_out.append(item)
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByRelease:
    """Run the tests of both releases at a time, where tests wait: `n: "2"`."""
    return ByRelease(config, log)


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
def roles(host: Host) -> set[str]:
    """Return the roles of the host, in a scenario whose machines have groups."""
    name = host.backend.host.name
    return next(set(platform["groups"]) for platform in platforms() if platform["name"] == name)


@pytest.fixture
def noticed() -> Path:
    """Return the file with the tests that noticed a broken host, a line each."""
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
        machines = [platform for platform in platforms() if "groups" in platform]
        # Machines with groups are one cluster: its configuration names them all.
        hosts = dict.fromkeys([*names, *(machine["name"] for machine in machines)], connection)
        groups = {in_group: {"hosts": hosts}} | {
            group: {"hosts": {m["name"]: {} for m in machines if group in m["groups"]}}
            for machine in machines
            for group in machine["groups"]
        }
        inventory.write_text(yaml.safe_dump(groups))
        program = str(Path(sys.executable).with_name("ansible-playbook"))
        limit = f"--limit={','.join(names)}"
        command = [program, "--inventory", str(inventory), limit, *options, str(playbook)]
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


@pytest.fixture
def purge(play: Callable[..., str], tmp_path: Path) -> Callable[..., str]:
    """Return what ends a Ceph cluster: ceph-purge.yml with the variables that a definition gives.

    Without its first play, which makes them: these machines have no definition.
    """
    plays = yaml.safe_load((ROOT / "ansible/ceph-purge.yml").read_text(encoding="utf-8"))
    playbook = tmp_path / "ceph-purge.yml"
    playbook.write_text(yaml.safe_dump(plays[1:]), encoding="utf-8")

    def run(**variables: Any) -> str:
        return play(playbook, in_group="storage", **variables)

    return run
