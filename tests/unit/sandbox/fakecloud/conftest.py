"""A cloud to call: `cloud` over HTTP in a thread, `fake` in this thread with its own time."""

from collections.abc import Iterator

import httpx
import pytest
from fakecloud_api import Api
from fakecloud_calls import REGION, Caller

from muster_sandbox.fakecloud import Cloud, Settings, open_cloud
from muster_sandbox.fakecloud.server import Server


@pytest.fixture
def cloud() -> Iterator[Server]:
    """The server on a free port; `.url`, `.cloud`, and `.do(function of the cloud)`."""
    server = Server(Settings()).start()
    yield server
    server.stop()
    assert server.cloud.failures == []


@pytest.fixture
def http(cloud: Server) -> Iterator[httpx.Client]:
    with httpx.Client(
        base_url=cloud.url, headers={"Authorization": "Bearer owner"}, trust_env=False
    ) as client:
        yield client


@pytest.fixture
def fake() -> Iterator[Cloud]:
    """A cloud without HTTP, whose clock stands still until `fake.clock.advance(seconds)`."""
    cloud = open_cloud(Settings())
    yield cloud
    cloud.close()
    assert cloud.failures == []


@pytest.fixture
def ask(fake: Cloud) -> Caller:
    return Caller(fake)


@pytest.fixture
def lab(ask: Caller) -> Caller:
    """A cloud with a network and a subnet, where instances can be made."""
    ask.post("global/networks", {"name": "lab", "autoCreateSubnetworks": False})
    ask.post(
        f"{REGION}/subnetworks",
        {"name": "lab", "network": "global/networks/lab", "ipCidrRange": "10.0.0.0/20"},
    )
    return ask


@pytest.fixture
def api(fake: Cloud) -> Api:
    """Calls of any service as the owner, and as service accounts that it makes."""
    return Api(fake)
