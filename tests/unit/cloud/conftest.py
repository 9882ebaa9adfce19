"""A cloud without machines, and Muster's own clients of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from nodes_kit import Lab

from muster.cloud.api import Compute
from muster.fakecloud import Settings
from muster.fakecloud.environment import environment
from muster.fakecloud.server import Server


@pytest.fixture
def cloud() -> Iterator[Server]:
    server = Server(Settings()).start()
    yield server
    server.stop()
    assert server.cloud.failures == []
    assert server.cloud.refused_hosts == []


@pytest.fixture
def compute(cloud: Server, monkeypatch: pytest.MonkeyPatch) -> Compute:
    for name, value in environment(cloud.url, cloud.cloud.settings.project).items():
        monkeypatch.setenv(name, value)
    return Compute(cloud.cloud.settings.project)


@pytest.fixture
def lab(cloud: Server, tmp_path: Path) -> Iterator[Lab]:
    made = Lab(cloud, tmp_path)
    yield made
    made.http.close()
