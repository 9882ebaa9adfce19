"""Muster's own program with the real engine: a cluster's life in fakecloud, whose VMs only report.

What VMs really do is shown where they boot: tests/cloud.
"""

import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import yaml
from conftest import ALWAYS_ASKED, SETTINGS
from enginekit.home import Provider, cloud_environment, engine_environment, make_home
from enginekit.stack import Stack
from guests import Guests, Script

from muster.fakecloud import Settings
from muster.fakecloud.server import Server

ROOT = Path(__file__).parents[2]
CLUSTER = "slurm10"
PROJECT = "/compute/v1/projects/demo-project"
ZONE = f"{PROJECT}/zones/europe-west4-a"
REGION = f"{PROJECT}/regions/europe-west4"
NEEDED = ("ansible", "ansible.cfg", "muster", "pulumi", "requirements-vm.txt", "roles")
"""What of the checkout a `pulumi up` reads."""


@pytest.fixture
def script() -> Script:
    """How the VMs behave."""
    return Script()


@pytest.fixture
def fakecloud(script: Script) -> Iterator[Server]:
    server = Server(Settings(), backend=lambda fake, _url: Guests(fake, script)).start()
    yield server
    server.stop()
    assert server.cloud.failures == []
    assert set(server.cloud.refused_hosts) <= ALWAYS_ASKED


@dataclass
class Definition:
    """The inventory of the cluster, which a test changes."""

    file: Path

    def change(self, work: Callable[[dict], None]) -> None:
        """Change the mapping `cluster`."""
        whole = yaml.safe_load(self.file.read_text())
        work(whole["cluster"])
        self.file.write_text(yaml.safe_dump(whole))


@pytest.fixture
def definition(tmp_path: Path) -> Definition:
    folder = tmp_path / "inventory"
    shutil.copytree(ROOT / "inventories" / "cloud", folder)
    return Definition(folder / "group_vars" / "all" / "cluster.yml")


@pytest.fixture
def cluster(
    tmp_path: Path, pulumi: Path, provider: Provider, fakecloud: Server, definition: Definition
) -> Stack:
    """The stack of the program, in a copy of the checkout."""
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    for name in NEEDED:
        source = ROOT / name
        if source.is_dir():
            ignore = shutil.ignore_patterns("__pycache__", "Pulumi.*.yaml")
            shutil.copytree(source, checkout / name, ignore=ignore)
        elif source.exists():
            shutil.copy(source, checkout)
    (checkout / ".venv").symlink_to(sys.prefix)
    make_home(tmp_path / "home", provider)
    environment = engine_environment(pulumi, tmp_path) | cloud_environment(
        fakecloud.url, fakecloud.cloud.settings.project
    )
    stack = Stack(pulumi, checkout / "pulumi", CLUSTER, environment, tmp_path / "events")
    inventory = str(definition.file.parents[2])
    stack.create({**SETTINGS, "gcp:project": "demo-project", "muster:inventory": inventory})
    return stack


@pytest.fixture
def outside(fakecloud: Server) -> Iterator[httpx.Client]:
    """Somebody who looks at the cloud, and changes it, behind Pulumi's back."""
    headers = {"Authorization": "Bearer owner"}
    with httpx.Client(base_url=fakecloud.url, headers=headers, trust_env=False) as client:
        yield client


def test_up(cluster: Stack, outside: httpx.Client):
    run = cluster.up()
    print(run.output, run.seconds)
    print(run.counts)
    second = cluster.up()
    print(second.output, second.seconds)
    assert second.changes == []
