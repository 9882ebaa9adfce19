"""One cluster in the cloud, raised once for all tests of this folder; RELEASE chooses Debian's."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from cloudkit import up
from interrupts import end_cleanly_when_told  # noqa: F401 (a fixture)

from muster_sandbox.cloud_demo import tour
from muster_sandbox.cloud_demo.cli import engine_here
from muster_sandbox.cloud_demo.site import Site, Stack

SUBNET = "10.214.80.0/20"


def with_scarce_nodes(cluster: Any) -> None:
    """Add a second node set to the definition: spot VMs, with a fallback type."""
    cluster["nodes"]["spot"] = {
        "machine_type": "n2-standard-2",
        "spot": True,
        "fallback": [{"machine_type": "n2d-standard-2"}],
        "max_nodes": 4,
        "idle_seconds": 60,
    }
    cluster["partitions"]["spot"] = {
        "nodes": ["spot"],
        "groups": list(cluster["partitions"]["debug"]["groups"]),
    }


def with_administrator(cluster: Any) -> None:
    """Add somebody who may log in everywhere; the private half of the key is lost."""
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILAZps7auSKq05Zov7bQWjTFyEF3xdNygYNiD3lkpNi5 chief"
    cluster["users"]["people"]["chief"] = {"uid": 20009, "admin": True, "ssh_keys": [key]}


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The cluster's stack, in its own cloud: a machine can run one at a time."""
    release = os.environ.get("RELEASE", "bookworm")
    site = Site(tmp_path_factory.mktemp("site") / "muster-cloud-test", release, SUBNET)
    site.create()
    site.change(with_scarce_nodes)
    site.change(with_administrator)
    with site.cloud() as server:
        yield site.stack(engine_here(site.folder), server)


@pytest.fixture(scope="session")
def before(stack: Stack) -> set[tuple[str, str, str]]:
    """The project's resources before anything is made."""
    return tour.held(stack)


@pytest.fixture(scope="session")
def first_up(stack: Stack, before: object) -> str:
    """The output of the first `pulumi up`."""
    return up(stack)
