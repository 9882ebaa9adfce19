"""A fakecloud whose instances are containers, on this machine's own metadata address."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from muster_sandbox.fakecloud.backends.kept import Kept
from muster_sandbox.fakecloud.backends.podman import (
    METADATA_ADDRESS,
    PodmanBackend,
    Records,
    metadata_address,
)
from muster_sandbox.fakecloud.cloud import Settings
from muster_sandbox.fakecloud.server import Server
from muster_sandbox.fakecloud.services.compute.lifecycle import powered_off, report, reported


@contextmanager
def with_machines(
    name: str,
    folder: Path,
    settings: Settings | None = None,
    *,
    port: int = 0,
    shares: Mapping[Path, str] | None = None,
    kept: Kept | None = None,
) -> Iterator[Server]:
    """A server that isn't started yet; it has the metadata server's address within the block.

    `name`, `folder`, `shares`: see PodmanBackend. `kept`: what image builders left in earlier
    runs; without it each builder runs.

    Raises:
        MachineError: this machine can't run containers.
        PortError: a port is taken.

    """
    records = Records(powered_off, reported, report)
    with metadata_address():
        yield Server(
            settings,
            backend=lambda cloud, url: PodmanBackend(
                cloud, url, name, folder, records, shares=shares, kept=kept
            ),
            port=port,
            metadata_host=METADATA_ADDRESS,
            metadata_port=80,
        )
