"""The main path of Compute Engine's driver: list, create, probe and delete VMs, with few calls."""

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
from controllerkit import COMPUTE, LABELS, OTHER_ZONE, REGION, ZONE, Cloud
from driverkit import CHOICE, MACHINE_TYPE, DriverHarness, lost_vm, names, until
from quick import DRIVER_LIMITS

from muster.autoscaler.compute.rate_limiter import Group
from muster.autoscaler.reconcile.model import Delete, Deleted, Insert, Inserted, ProbeResult, Vm


def test_vms_are_created_listed_and_deleted(harness: DriverHarness):
    before = harness.clock.monotonic()
    assert harness.insert(*names(3)) == Inserted("request-1")
    vms = harness.google.vms()
    assert [vm.name for vm in vms] == list(names(3))
    assert {(vm.zone, vm.status, vm.machine_type, vm.spot) for vm in vms} == {
        (ZONE, "RUNNING", MACHINE_TYPE, False)
    }
    # The Date of Google's answers has whole seconds.
    assert all(before - 2 <= vm.created <= harness.clock.monotonic() + 2 for vm in vms)
    assert harness.delete(vms[1]).failure is None
    assert [vm.name for vm in harness.google.vms()] == ["lab-debug-0", "lab-debug-2"]


def test_only_the_clusters_nodes_are_listed(harness: DriverHarness):
    harness.make("lab-debug-0")
    harness.make("lab-login-0", labels={**LABELS, "muster-role": "login"})
    harness.make("other-debug-0", labels={**LABELS, "muster-cluster": "other"})
    harness.make("stray", labels={})
    assert [vm.name for vm in harness.google.vms()] == ["lab-debug-0"]


def test_a_list_has_all_pages_and_zones(harness: DriverHarness):
    harness.insert(*names(600))
    path = f"{COMPUTE}/zones/{OTHER_ZONE}/instances?sourceInstanceTemplate={CHOICE.template}"
    harness.cloud.post(path, {"name": "lab-debug-600"})
    vms = harness.google.vms()
    assert {vm.name for vm in vms} == set(names(601))
    assert {vm.zone for vm in vms} == {ZONE, OTHER_ZONE}
    assert harness.calls()["instances.aggregatedList"] == 2


def test_a_thousand_vms_are_a_handful_of_calls(cloud: Cloud, harness: DriverHarness):
    """Also if the operation is slow, and if some VMs can't be created."""
    settings = harness.cloud.server.cloud.settings
    settings.latency_seconds = {"compute.instances.bulkInsert": 15}
    settings.capacity = {(ZONE, MACHINE_TYPE): 990}
    # Both are 20 real seconds or more, in which a busy machine has made a thousand records.
    limits = replace(DRIVER_LIMITS, try_s=300, deadline_s=600)
    patient = DriverHarness(cloud, harness.clock, limits)
    try:
        event = patient.insert(*names(1000))
    finally:
        patient.google.close()
    assert event.whole is None
    assert len(event.failed) == 10
    assert len(harness.google.vms()) == 990
    calls = patient.calls()
    assert calls["instances.bulkInsert"] == 1
    assert sum(calls.values()) <= 20, calls


def test_spot_vms_are_recognized(harness: DriverHarness):
    harness.make(
        "lab-debug-0", scheduling={"provisioningModel": "SPOT", "onHostMaintenance": "TERMINATE"}
    )
    (vm,) = harness.google.vms()
    assert vm.spot


def test_deleting_a_vm_that_is_gone_succeeds(harness: DriverHarness):
    assert harness.delete("lab-debug-7").failure is None


def test_a_later_vm_of_the_same_name_is_not_deleted(harness: DriverHarness):
    harness.make("lab-debug-0")
    (first,) = harness.google.vms()
    harness.remove("lab-debug-0")
    until(lambda: not harness.names())
    harness.make("lab-debug-0")
    (second,) = harness.google.vms()
    assert first.id != second.id
    assert harness.delete(first).failure is None
    assert harness.google.vms() == (second,)
    assert "instances.delete" not in harness.calls()


def test_an_insert_does_not_wait_behind_deletions(harness: DriverHarness):
    """Neither its call, nor the calls that poll its operation."""
    harness.insert(*names(1000))
    vms = harness.google.vms()
    latency_seconds = {"compute.instances.delete": 30, "compute.instances.bulkInsert": 15}
    harness.cloud.server.cloud.settings.latency_seconds = latency_seconds
    began = harness.clock.monotonic()
    for vm in vms:
        harness.google.submit(Delete(vm, "idle"))
    deleted = harness.times("DELETE", "")
    until(lambda: len(deleted) > 200)
    inserted = harness.inserts()
    before, asked = len(deleted), harness.clock.monotonic()
    harness.google.submit(Insert("request", CHOICE, names(2, start=1000), 2))
    until(lambda: inserted)
    # Behind all deletions it would see some 800; on a busy machine it sees those of a moment.
    assert sum(asked < at < inserted[0] for at in deleted) <= 200
    until(lambda: Inserted("request") in harness.events)
    assert len(deleted) - before < 600
    assert len(harness.take_events(1001)) == 1001
    # The rate limit holds for deletions: 1,000 at 20 a second.
    assert harness.clock.monotonic() - began > 45


def test_a_deletion_that_a_node_waits_for_overtakes_others(harness: DriverHarness):
    gone = [lost_vm(number) for number in range(100)]
    for vm in gone:
        harness.google.submit(Delete(vm, "idle"))
    # The last one is asked for once more: SLURM asks for its node now.
    harness.google.submit(Delete(gone[-1], "left over", urgent=True))
    ended = [event.vm.id for event in harness.take_events(100) if isinstance(event, Deleted)]
    assert sorted(ended, key=int) == [vm.id for vm in gone]
    assert ended.index(gone[-1].id) < 50


@pytest.fixture
def slow(cloud: Cloud, harness: DriverHarness) -> Iterator[DriverHarness]:
    """A driver that reads a VM in 20 s if a node waits for it, and else in 2 minutes."""
    slow = DriverHarness(cloud, harness.clock, replace(DRIVER_LIMITS, per_minute=3))
    slow.google._transport.buckets[Group.READ].take(math.inf, count=10)
    yield slow
    slow.google.close()


def hold(slow: DriverHarness, vms: list[Vm]) -> None:
    """Let deletions wait for tokens, each in a request of its own."""
    for number, vm in enumerate(vms, start=1):
        slow.google.submit(Delete(vm, "idle"))
        until(lambda number=number: slow.google._deletes._requests.total() == number)


def test_a_deletion_that_waits_for_its_call_is_hurried_if_a_node_waits(slow: DriverHarness):
    began = slow.clock.monotonic()
    hold(slow, [lost_vm(0)])
    slow.google.submit(Delete(lost_vm(0), "left over", urgent=True))
    assert slow.take_events(1) == [Deleted(lost_vm(0))]
    assert slow.clock.monotonic() - began < 90


def test_a_deletion_that_a_node_waits_for_needs_no_thread_of_others(slow: DriverHarness):
    """All threads wait for tokens with others."""
    began = slow.clock.monotonic()
    hold(slow, [lost_vm(number, (ZONE, OTHER_ZONE)[number % 2]) for number in range(8)])
    slow.google.submit(Delete(lost_vm(9), "left over", urgent=True))
    until(lambda: Deleted(lost_vm(9)) in slow.events)
    assert slow.clock.monotonic() - began < 90


def test_a_vm_is_probed_by_its_name(harness: DriverHarness):
    harness.make("lab-debug-0")
    vm_id = harness.vm("lab-debug-0").id
    there = ProbeResult("lab-debug-0", ZONE, exists=True, id=vm_id, status="RUNNING")
    assert harness.probe("lab-debug-0") == there
    assert harness.probe("lab-debug-0", report=True) == replace(there, of_report=True)
    assert harness.probe("lab-debug-1") == ProbeResult("lab-debug-1", ZONE, exists=False)


@pytest.mark.parametrize(
    "labels", [{}, LABELS | {"muster-cluster": "other"}, LABELS | {"muster-role": "login"}]
)
def test_a_vm_of_the_name_that_is_no_node_of_the_cluster_is_none(
    harness: DriverHarness, labels: dict[str, str]
):
    harness.make("lab-debug-0", labels=labels)
    assert harness.probe("lab-debug-0") == ProbeResult("lab-debug-0", ZONE, exists=False)


def test_a_vm_s_report_is_read_if_it_is_asked_for(harness: DriverHarness):
    harness.make("lab-debug-0")
    report = '{"state": "running", "step": "mounts"}'
    harness.report("lab-debug-0", report)
    assert harness.probe("lab-debug-0").report == ""
    assert harness.probe("lab-debug-0", report=True) == ProbeResult(
        "lab-debug-0", ZONE, exists=True, report=report, of_report=True
    )
    assert not harness.probe("lab-debug-1", report=True).exists


def test_what_is_left_of_quotas_is_read(harness: DriverHarness):
    harness.cloud.server.cloud.settings.quotas = {
        REGION: {"C2_CPUS": 10},
        "global": {"CPUS_ALL_REGIONS": 9},
    }
    harness.insert("lab-debug-0")
    left = harness.google.region(REGION).left
    assert (left["C2_CPUS"], left["CPUS_ALL_REGIONS"]) == (6, 5)


def test_calls_are_counted(harness: DriverHarness):
    harness.insert(*names(2))
    harness.delete("lab-debug-9")
    budget = harness.google.budget()
    assert budget.calls["instances.bulkInsert", "200"] == 1
    assert budget.calls["instances.get", "notFound"] == 1
    assert budget.bulk == 0
    assert set(budget.pace.values()) == {1.0}
    assert budget.waited_s["mutate"] < 1


def test_each_result_has_the_time_at_which_google_said_it(harness: DriverHarness):
    begin = harness.clock.monotonic()
    results = [harness.insert(*names(1)), harness.probe(*names(1)), harness.delete(*names(1))]
    times = [begin, *(result.at for result in results), harness.clock.monotonic()]
    assert times == sorted(times)
    assert times[1] > begin
