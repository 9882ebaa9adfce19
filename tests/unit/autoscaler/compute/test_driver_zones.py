"""A zone whose calls hang does not delay what is done in others."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from controllerkit import OTHER_ZONE, ZONE, Cloud
from driverkit import CHOICE, DriverHarness, names, until
from quick import DRIVER_LIMITS

from muster.autoscaler.reconcile.model import Delete, Deleted, Event, Insert, Inserted, Probe, Vm

THERE = replace(CHOICE, zone=OTHER_ZONE)
SOON_S = 60


@pytest.fixture
def patient(cloud: Cloud, harness: DriverHarness) -> DriverHarness:
    """A driver that waits long for an answer."""
    limits = replace(DRIVER_LIMITS, try_s=100)
    patient = DriverHarness(cloud, harness.clock, limits)
    yield patient
    patient.google.close()


def take(harness: DriverHarness, kind: Callable[[Event], bool], count: int) -> None:
    """Wait until so many events of a kind have come, soon."""
    began = harness.clock.monotonic()
    until(lambda: sum(map(kind, list(harness.events))) == count)
    assert harness.clock.monotonic() - began < SOON_S


def test_deletions(patient: DriverHarness):
    for name in names(10):
        patient.make(name, OTHER_ZONE)
    there = [patient.vm(name, OTHER_ZONE) for name in names(10)]
    patient.hang(ZONE)
    for number in range(100):
        here = Vm(f"lab-gone-{number}", ZONE, str(number), "RUNNING", 0)
        patient.google.submit(Delete(here, "idle"))
    for vm in there:
        patient.google.submit(Delete(vm, "idle"))
    take(patient, lambda event: event in [Deleted(vm) for vm in there], 10)


def test_the_ends_of_operations(patient: DriverHarness):
    patient.cloud.server.cloud.settings.latency_seconds = {"compute.instances.*": 3}
    patient.google.submit(Insert("here", CHOICE, names(6), 1))
    until(lambda: patient.names() == set(names(6)))
    patient.hang(ZONE)
    patient.clock.sleep(3)
    patient.google.submit(Insert("there", THERE, names(6, 6), 1))
    take(patient, lambda event: event == Inserted("there"), 1)


def test_inserts(patient: DriverHarness):
    """More than a zone may have at the same time, each by one bulk operation."""
    patient.hang(ZONE)
    for number in range(300):
        patient.google.submit(Insert(f"here-{number}", CHOICE, names(6, 6 * number), 1))
    until(lambda: patient.google.budget().bulk >= 8)
    patient.google.submit(Insert("there", THERE, names(6, 5000), 6))
    take(patient, lambda event: event == Inserted("there"), 1)


def test_probes(patient: DriverHarness):
    patient.make("lab-debug-0", OTHER_ZONE)
    patient.hang(ZONE)
    for name in names(50):
        patient.google.submit(Probe(name, ZONE))
    patient.google.submit(Probe("lab-debug-0", OTHER_ZONE))
    take(patient, lambda event: event.exists, 1)
