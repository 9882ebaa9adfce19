"""`vm`: a VM that is not made yet, of a fakecloud over HTTP."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from configuring_vm import Vm

from muster_sandbox.fakecloud import Settings
from muster_sandbox.fakecloud.server import Server


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server(Settings()).start()
    yield server
    server.stop()
    assert server.cloud.failures == []


@pytest.fixture(scope="session")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("answers")


@pytest.fixture
def vm(server: Server, tmp_path: Path, answers: Path) -> Iterator[Vm]:
    machine = Vm(server, tmp_path, answers)
    yield machine
    machine.close()
