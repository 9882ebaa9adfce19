"""The boot program of nodes, and a cloud that it asks."""

from collections.abc import Iterator
from types import ModuleType

import node_boot_kit
import pytest
from fake_guests import Guests, Script

from muster_sandbox.fakecloud import Settings
from muster_sandbox.fakecloud.server import Server


@pytest.fixture
def cloud() -> Iterator[Server]:
    server = Server(Settings(), backend=lambda fake, _url: Guests(fake, Script())).start()
    yield server
    server.stop()
    assert server.cloud.failures == []
    assert server.cloud.refused_hosts == []


@pytest.fixture
def module() -> ModuleType:
    """The boot program of nodes."""
    return node_boot_kit.load_impatient()
