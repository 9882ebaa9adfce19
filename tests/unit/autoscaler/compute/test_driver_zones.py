"""A zone whose calls hang does not delay what is done in others."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from controllerkit import OTHER_ZONE, ZONE, Cloud
from driverkit import CHOICE, DriverHarness, lost_vm, names, unreachable, until
from quick import DRIVER_LIMITS

from muster.autoscaler.reconcile.model import Delete, Deleted, Event, Insert, Inserted, Probe
from muster_sandbox.fakecloud.api_errors import ApiError
from muster_sandbox.fakecloud.http import Deferred, Handle, Reply, Request, reply

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
        patient.google.submit(Delete(lost_vm(number), "idle"))
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


@pytest.fixture(params=["WARNING", "zones/{}", "projects/demo-project/zones/{}"])
def form(request: pytest.FixtureRequest) -> str:
    """How Google names a zone that it does not reach."""
    return request.param


def test_the_vms_of_a_zone_that_cannot_be_listed_are_those_of_the_last_list(
    harness: DriverHarness, form: str, caplog: pytest.LogCaptureFixture
):
    harness.make("lab-debug-0", ZONE)
    harness.make("lab-debug-1", OTHER_ZONE)
    before = harness.google.vms()
    unreachable(harness, ZONE, form)
    harness.make("lab-debug-2", OTHER_ZONE)
    harness.remove("lab-debug-0")
    for _ in range(3):
        vms = {vm.name: vm for vm in harness.google.vms()}
        assert set(vms) == set(names(3))
        # By our clock; an answer that comes late moves what is known of Google's a little.
        assert tuple(replace(vms[vm.name], created=vm.created) for vm in before) == before
        assert vms["lab-debug-0"] == before[0]
    assert [record.message for record in caplog.records] == [
        f"VMs in {ZONE} can't be listed: Google does not reach that zone; using the last list of it"
    ]


def test_a_daemon_that_starts_then_knows_the_other_zones(harness: DriverHarness, form: str):
    harness.make("lab-debug-0", ZONE)
    harness.make("lab-debug-1", OTHER_ZONE)
    unreachable(harness, ZONE, form)
    listed = harness.google.vms()
    assert [vm.name for vm in listed] == ["lab-debug-1"]
    assert listed.unreachable == {ZONE}


def test_a_zone_that_can_be_listed_again_is(harness: DriverHarness):
    harness.make("lab-debug-0", ZONE)
    harness.google.vms()
    listed = harness.cloud.server.cloud.middleware
    unreachable(harness, ZONE)
    assert harness.google.vms().unreachable == {ZONE}
    harness.cloud.server.cloud.middleware = listed
    harness.remove("lab-debug-0")
    until(lambda: not harness.names())
    assert harness.google.vms() == ()
    assert harness.google.vms().unreachable == set()


def test_lists_work_if_google_does_not_know_the_parameter(
    harness: DriverHarness, caplog: pytest.LogCaptureFixture
):
    """The newest description of the API recommends returnPartialSuccess, and does not list it."""
    harness.make("lab-debug-0", ZONE)
    before = harness.cloud.server.cloud.middleware
    unknown = ApiError(
        400,
        "badRequest",
        'Invalid JSON payload received. Unknown name "returnPartialSuccess": Cannot bind query '
        "parameter. Field 'returnPartialSuccess' could not be found in request message.",
    )

    def refused(handle: Handle, request: Request) -> Reply | Deferred:
        if "returnPartialSuccess" in request.query:
            return reply(unknown.body(), unknown.status)
        return before(handle, request)

    harness.cloud.server.cloud.middleware = refused
    for _ in range(3):
        assert [vm.name for vm in harness.google.vms()] == ["lab-debug-0"]
    assert harness.google.budget().calls["instances.aggregatedList", "badRequest"] == 1
    assert len(caplog.records) == 1
