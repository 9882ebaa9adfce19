"""Compute Engine's driver, with a fake cloud that enforces the controller's rights."""

from collections.abc import Callable, Iterator

import pytest
from controllerkit import Cloud, new_cloud
from driverkit import DriverHarness

from muster.autoscaler.compute import driver
from muster.autoscaler.compute.api_client import Limits


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with new_cloud() as fake:
        yield fake


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Poll operations often: those of a test take no time."""
    monkeypatch.setattr(driver, "INSERT_PAUSES_S", (0.02, 0.1))
    monkeypatch.setattr(driver, "DELETE_PAUSES_S", (0.02, 0.1))


@pytest.fixture
def harness_without(
    cloud: Cloud, quick: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., DriverHarness]]:
    """Make a harness whose controller lacks one right."""
    monkeypatch.setenv("GOOGLE_COMPUTE_CUSTOM_ENDPOINT", f"{cloud.server.url}/compute/v1/")
    harnesses: list[DriverHarness] = []

    def make(permission: str, limits: Limits | None = None) -> DriverHarness:
        cloud.allow(permission)
        harnesses.append(DriverHarness(cloud, limits))
        return harnesses[0]

    yield make
    for harness in harnesses:
        harness.google.close()


@pytest.fixture
def harness(harness_without: Callable[..., DriverHarness]) -> DriverHarness:
    """A harness with exactly the controller's rights."""
    return harness_without("")
