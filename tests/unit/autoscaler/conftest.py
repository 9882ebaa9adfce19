"""Quiet logs; Compute Engine's driver, with a fake cloud that enforces a controller's rights."""

import logging
from collections.abc import Callable, Iterator

import pytest
from controllerkit import Cloud, new_cloud
from driverkit import DriverHarness
from quick import FastClock, FastCloudClock

from muster.autoscaler.compute.api_client import Limits


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Don't keep what thousands of daemons log."""
    caplog.set_level(logging.CRITICAL)


@pytest.fixture
def clock() -> FastClock:
    """The clock of the driver and of the cloud; not fast where the daemon works with both."""
    return FastClock(speed=1)


@pytest.fixture
def cloud(clock: FastClock) -> Iterator[Cloud]:
    with new_cloud(lambda loop: FastCloudClock(loop, clock)) as fake:
        yield fake


@pytest.fixture
def harness_without(
    cloud: Cloud, clock: FastClock, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., DriverHarness]]:
    """Make a harness whose controller lacks one right."""
    monkeypatch.setenv("GOOGLE_COMPUTE_CUSTOM_ENDPOINT", f"{cloud.server.url}/compute/v1/")
    harnesses: list[DriverHarness] = []

    def make(permission: str, limits: Limits | None = None) -> DriverHarness:
        cloud.allow(permission)
        harnesses.append(DriverHarness(cloud, clock, limits))
        return harnesses[0]

    yield make
    for harness in harnesses:
        harness.google.close()


@pytest.fixture
def harness(harness_without: Callable[..., DriverHarness]) -> DriverHarness:
    """A harness with exactly the controller's rights."""
    return harness_without("")
