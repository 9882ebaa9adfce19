"""The boot program of nodes, and a cloud that it asks."""

from collections.abc import Iterator
from types import ModuleType

import node_boot_kit
import pytest
from fake_guests import Guests, Script
from node_boot_kit import Threads

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
def threads() -> Iterator[Threads]:
    """Begin threads by it: none outlives the test."""
    begun = Threads()
    yield begun
    begun.end()


@pytest.fixture
def module(threads: Threads) -> ModuleType:
    """The boot program of nodes."""
    return threads.stop_in(node_boot_kit.load_impatient())
