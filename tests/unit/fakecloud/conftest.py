"""A cloud to call: `cloud` over HTTP in a thread, `fake` in this thread with a time of its own."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from muster.fakecloud import Cloud, Settings
from muster.fakecloud.call import Deferred
from muster.fakecloud.cloud import Request
from muster.fakecloud.server import Server


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
    cloud = Cloud(Settings())
    yield cloud
    cloud.close()
    assert cloud.failures == []


class Caller:
    """Calls a cloud of this thread as HTTP would: `.get(path)`, `.post(path, body, **query)`.

    Paths go on after projects/demo-project/; JSON comes back, or the status where it isn't 200.
    """

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud

    def __call__(
        self, verb: str, path: str, body: Any = None, version: str = "v1", **query: Any
    ) -> tuple[int, Any]:
        reply = self.cloud.handle(
            Request(
                verb,
                f"/compute/{version}/projects/demo-project/{path}",
                urlencode(query),
                {"authorization": "Bearer owner"},
                b"" if body is None else json.dumps(body).encode(),
            )
        )
        if isinstance(reply, Deferred):
            assert isinstance(reply.value, dict), "it is still to come"
            return 200, reply.value
        return reply.status, json.loads(reply.content)

    def ok(self, verb: str, path: str, body: Any = None, **query: Any) -> Any:
        status, answer = self(verb, path, body, **query)
        assert status == 200, answer
        return answer

    def get(self, path: str, **query: Any) -> Any:
        return self.ok("GET", path, **query)

    def post(self, path: str, body: Any = None, **query: Any) -> Any:
        """The operation; it must not have failed."""
        answer = self.ok("POST", path, body, **query)
        assert "error" not in answer, answer
        return answer

    def delete(self, path: str, **query: Any) -> Any:
        return self.ok("DELETE", path, **query)

    def refused(self, verb: str, path: str, body: Any = None, **query: Any) -> tuple[int, str, str]:
        """Status, reason and message of a call that must fail."""
        status, answer = self(verb, path, body, **query)
        assert status != 200, answer
        (entry,) = answer["error"]["errors"]
        return status, entry["reason"], entry["message"]


@pytest.fixture
def ask(fake: Cloud) -> Caller:
    return Caller(fake)


ZONE = "zones/europe-west4-a"
REGION = "regions/europe-west4"


def instance(name: str, **members: Any) -> dict[str, Any]:
    """The body of an insert."""
    return {
        "name": name,
        "machineType": f"{ZONE}/machineTypes/n1-standard-2",
        "networkInterfaces": [{"subnetwork": f"{REGION}/subnetworks/lab"}],
        "disks": [
            {
                "boot": True,
                "autoDelete": True,
                "initializeParams": {
                    "sourceImage": "projects/debian-cloud/global/images/family/debian-12"
                },
            }
        ],
        **members,
    }


@pytest.fixture
def lab(ask: Caller) -> Caller:
    """A cloud with a network and a subnet, where instances can be made."""
    ask.post("global/networks", {"name": "lab", "autoCreateSubnetworks": False})
    ask.post(
        f"{REGION}/subnetworks",
        {"name": "lab", "network": "global/networks/lab", "ipCidrRange": "10.0.0.0/20"},
    )
    return ask
