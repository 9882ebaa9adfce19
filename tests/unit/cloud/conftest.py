"""A cloud whose machines only report, and Muster's own clients of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from guests import Guests, Script
from nodes_kit import Lab

from muster.cloud import reports, sweep
from muster.cloud.api import Compute
from muster.fakecloud import Settings
from muster.fakecloud.environment import environment
from muster.fakecloud.server import Server

REGION = "regions/europe-west4"


@pytest.fixture
def script() -> Script:
    """How the machines behave."""
    return Script()


@pytest.fixture
def cloud(script: Script) -> Iterator[Server]:
    server = Server(Settings(), backend=lambda fake, _url: Guests(fake, script)).start()
    yield server
    server.stop()
    assert server.cloud.failures == []
    assert server.cloud.refused_hosts == []


@pytest.fixture
def compute(cloud: Server, monkeypatch: pytest.MonkeyPatch) -> Compute:
    for name, value in environment(cloud.url, cloud.cloud.settings.project).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(reports, "POLL_S", 0.02)
    monkeypatch.setattr(sweep, "POLL_S", 0.02)
    return Compute(cloud.cloud.settings.project)


@pytest.fixture
def lab(cloud: Server, tmp_path: Path) -> Iterator[Lab]:
    made = Lab(cloud, tmp_path)
    yield made
    made.http.close()


@pytest.fixture
def net(compute: Compute) -> str:
    """A subnet, as a path."""
    network = {"name": "lab", "autoCreateSubnetworks": False}
    compute.wait(compute.post("global/networks", network), 10)
    subnet = {"name": "lab", "network": "global/networks/lab", "ipCidrRange": "10.0.0.0/20"}
    compute.wait(compute.post(f"{REGION}/subnetworks", subnet), 10)
    return f"projects/{compute.project}/{REGION}/subnetworks/lab"
