"""A cloud whose machines only report, and Muster's own clients of it."""

from collections.abc import Iterator

import pytest
from accesskit import no_pulumi, pulumi  # noqa: F401 (fixtures)
from fake_guests import Guests, Script

from muster.gcp import api, reports, sweep
from muster.gcp.api import Compute
from muster_sandbox.fakecloud import Settings
from muster_sandbox.fakecloud.environment import environment
from muster_sandbox.fakecloud.server import Server

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
def compute(cloud: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Compute]:
    for name, value in environment(cloud.url, cloud.cloud.settings.project).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(reports, "POLL_S", 0.02)
    monkeypatch.setattr(sweep, "POLL_S", 0.02)
    monkeypatch.setattr(sweep, "SETTLE_S", 0.02)
    with api.connect() as session:
        # Also for code that makes its own client.
        monkeypatch.setattr(api, "connect", lambda **_: session)
        yield Compute(cloud.cloud.settings.project)


@pytest.fixture
def net(compute: Compute) -> str:
    """A subnet, as a path."""
    network = {"name": "lab", "autoCreateSubnetworks": False}
    compute.wait(compute.post("global/networks", network), 10)
    subnet = {"name": "lab", "network": "global/networks/lab", "ipCidrRange": "10.0.0.0/20"}
    compute.wait(compute.post(f"{REGION}/subnetworks", subnet), 10)
    return f"projects/{compute.project}/{REGION}/subnetworks/lab"
