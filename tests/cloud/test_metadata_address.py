"""Who has the metadata server's address: one fakecloud at a time, and never one that is dead."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from muster_sandbox.containers.podman import as_root

HOLD = """
import sys
from muster_sandbox.containers.podman import MachineError
from muster_sandbox.fakecloud.backends.podman import metadata_address
try:
    with metadata_address():
        print("has it", flush=True)
        sys.stdin.read()
except MachineError as error:
    print(error, flush=True)
"""


class Network:
    """A network namespace, so that the machine's own address isn't touched."""

    def __init__(self) -> None:
        self.shell = subprocess.Popen(
            as_root(["unshare", "--net", "sh", "-c", "echo $$; read line"]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.shell.stdout is not None
        self.pid = self.shell.stdout.readline().strip()

    def run(self, *command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            as_root(["nsenter", "--net", "--target", self.pid, *command]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def hold(self) -> tuple[subprocess.Popen[str], str]:
        """A process that takes the address, and what it says."""
        process = self.run(sys.executable, "-c", HOLD)
        assert process.stdout is not None
        return process, process.stdout.readline().strip()

    def addresses(self) -> str:
        return self.run("ip", "-oneline", "address", "show").communicate(timeout=30)[0]


@pytest.fixture
def network() -> Iterator[Network]:
    network = Network()
    yield network
    network.shell.communicate("\n", timeout=30)


def test_one_at_a_time_and_one_that_was_killed_is_followed(network: Network) -> None:
    first, said = network.hold()
    assert said == "has it"
    second, said = network.hold()
    assert "another fakecloud has this machine's address 169.254.169.254: end it" in said
    second.communicate(timeout=30)

    first.kill()
    first.communicate(timeout=30)
    assert "169.254.169.254" in network.addresses()
    third, said = network.hold()
    assert said == "has it"
    third.communicate(timeout=30)
    assert "169.254.169.254" not in network.addresses()


def test_an_address_that_is_somebody_else_s_stays(network: Network) -> None:
    network.run("ip", "address", "add", "169.254.169.254/32", "dev", "lo").communicate(timeout=30)
    process, said = network.hold()
    assert "this machine has the address 169.254.169.254 for something else" in said
    process.communicate(timeout=30)
    assert "169.254.169.254" in network.addresses()
