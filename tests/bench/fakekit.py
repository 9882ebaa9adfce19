"""fakecloud in its own process, with the cluster `lab` and its controller's VM.

That VM has the address 127.0.0.1, so a program on this machine gets the VM's metadata, token and
permissions as in the cloud.
"""

import json
import multiprocessing
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).parents[1]))
import controllerkit
from controllerkit import CLOUD_PLATFORM, COMPUTE, REGION, ZONE, P

from muster_sandbox.fakecloud import Cloud, Settings, handle
from muster_sandbox.fakecloud.http import Request
from muster_sandbox.fakecloud.server import Server

T = TypeVar("T")

TEMPLATE = f"{P}/global/instanceTemplates/lab-debug-1"
SCOPE = f"demo-project/zones/{ZONE}"
SETS = {
    "debug": {
        "choices": [
            {"template": TEMPLATE, "zone": ZONE, "machine_type": "c2-standard-4", "spot": False}
        ],
        "compact": True,
    }
}
LOT = 1000
"""VMs that are made at a time: a task on the cloud's thread may take 10 s."""
START_S, ANSWER_S = 60, 120
"""Timeouts in seconds of the process's start, and of each request to it."""


@dataclass(frozen=True)
class Call:
    """A call that the cloud got."""

    method: str
    came: float
    """When, in seconds since the epoch."""
    status: int


class Heard(list[Call]):
    """The function that records each of a cloud's calls."""

    def __call__(self, method: str, came: float, status: int) -> None:
        self.append(Call(method.removeprefix("compute."), came, status))


@dataclass(frozen=True)
class Fake:
    """The cloud: its addresses, and functions that run in its process."""

    url: str
    metadata: str
    connection: Connection

    def do(self, function: Callable[..., T], *words: Any) -> T:
        """Run a function of a module with the cloud and `words` on the cloud's thread."""
        self.connection.send((function, words))
        if not self.connection.poll(ANSWER_S):
            raise TimeoutError(f"{function.__name__} is not done in {ANSWER_S} s")
        answer: T = self.connection.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def calls(self, since: float) -> list[Call]:
        """Return the calls since a time."""
        return self.do(_calls, since)

    def statuses(self) -> Counter[str]:
        """Return how many nodes' VMs there are, by their status."""
        return self.do(_statuses)

    def set(self, **settings: Any) -> None:
        """Change settings."""
        self.do(_set, settings)

    def make(self, names: list[str], cluster: str = "lab") -> None:
        """Make running VMs; before the limits are set."""
        for begin in range(0, len(names), LOT):
            self.do(_make, names[begin : begin + LOT], cluster)


def _calls(cloud: Cloud, since: float) -> list[Call]:
    assert isinstance(cloud.heard, Heard)
    return [call for call in cloud.heard if call.came >= since]


def _statuses(cloud: Cloud) -> Counter[str]:
    instances = cloud.store.within("compute.instances", SCOPE)
    return Counter(
        vm["status"] for vm in instances.values() if vm["labels"]["muster-role"] == "node"
    )


def _set(cloud: Cloud, settings: dict[str, Any]) -> None:
    for name, value in settings.items():
        setattr(cloud.settings, name, value)


def _make(cloud: Cloud, names: list[str], cluster: str) -> None:
    body = {
        "count": len(names),
        "sourceInstanceTemplate": TEMPLATE,
        "perInstanceProperties": {name: {} for name in names},
        "instanceProperties": {"labels": {"muster-cluster": cluster, "muster-role": "node"}},
    }
    path = f"{COMPUTE}/zones/{ZONE}/instances/bulkInsert"
    headers = {"authorization": "Bearer owner"}
    reply = handle(cloud, Request("POST", path, "", headers, json.dumps(body).encode()))
    assert getattr(reply, "status", 0) == 200, reply


@contextmanager
def fake() -> Iterator[Fake]:
    """Run a cloud; it ends with the context."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there,), daemon=True)
    process.start()
    there.close()
    try:
        if not here.poll(START_S):
            raise TimeoutError(f"fakecloud is not there in {START_S} s")
        url, metadata = here.recv()
        yield Fake(url, metadata, here)
    finally:
        here.close()
        process.join(START_S)


def _serve(connection: Connection) -> None:
    """Serve until the other side closes the connection."""
    server = Server(Settings()).start()
    cloud = controllerkit.Cloud(server)
    cloud.allow()
    _controller(cloud)
    server.do(lambda fake: setattr(fake, "heard", Heard()))
    connection.send((server.url, server.metadata_url.removeprefix("http://")))
    while True:
        try:
            function, words = connection.recv()
        except EOFError:
            break
        try:
            connection.send(server.do(lambda fake: function(fake, *words)))  # noqa: B023
        except Exception as error:
            # Any error: the other process waits for an answer, and raises the error there.
            connection.send(error)
    server.stop()


def _controller(cloud: controllerkit.Cloud) -> None:
    """Make the controller's VM, on which the daemon runs."""
    subnet = {"name": "here", "network": "global/networks/lab", "ipCidrRange": "126.0.0.0/7"}
    cloud.post(f"{COMPUTE}/regions/{REGION}/subnetworks", subnet)
    body = {
        "name": "lab-controller",
        "machineType": f"zones/{ZONE}/machineTypes/n1-standard-2",
        "disks": [{"boot": True, "initializeParams": {"sourceImage": f"{P}/global/images/lab-1"}}],
        "networkInterfaces": [
            {"subnetwork": f"{P}/regions/{REGION}/subnetworks/here", "networkIP": "127.0.0.1"}
        ],
        "labels": {"muster-cluster": "lab", "muster-role": "controller"},
        "serviceAccounts": [{"email": cloud.controller, "scopes": [CLOUD_PLATFORM]}],
        "metadata": {"items": [{"key": "muster-templates", "value": json.dumps(SETS)}]},
    }
    cloud.post(f"{COMPUTE}/zones/{ZONE}/instances", body)
