"""Google's edge against a cloud that enforces the controller's rights."""

from collections.abc import Callable, Iterator

import pytest
from controllerkit import Cloud, new_cloud
from edgekit import Edge

from muster.autoscaler.compute import driver
from muster.autoscaler.compute.http import Limits


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with new_cloud() as made:
        yield made


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operations are looked at often: those of a test take no time."""
    monkeypatch.setattr(driver, "INSERT_PAUSES_S", (0.02, 0.1))
    monkeypatch.setattr(driver, "DELETE_PAUSES_S", (0.02, 0.1))


@pytest.fixture
def edge_without(
    cloud: Cloud, quick: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Edge]]:
    """Make the edge with the controller's rights but one."""
    monkeypatch.setenv("GOOGLE_COMPUTE_CUSTOM_ENDPOINT", f"{cloud.server.url}/compute/v1/")
    made: list[Edge] = []

    def make(permission: str, limits: Limits | None = None) -> Edge:
        cloud.allow(permission)
        made.append(Edge(cloud, limits))
        return made[0]

    yield make
    for each in made:
        each.google.close()


@pytest.fixture
def edge(edge_without: Callable[..., Edge]) -> Edge:
    """The edge, with exactly the controller's rights."""
    return edge_without("")
