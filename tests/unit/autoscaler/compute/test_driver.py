"""The edge's main path: VMs are listed, made, looked at and deleted, with few calls."""

import time

from controllerkit import COMPUTE, LABELS, OTHER_ZONE, REGION, ZONE
from edgekit import CHOICE, MACHINE_TYPE, Edge, names, until

from muster.autoscaler.reconcile.model import Delete, Insert, Inserted, ProbeResult, Vm


def test_vms_are_made_listed_and_deleted(edge: Edge):
    before = time.time()
    assert edge.insert(*names(3)) == Inserted("request-1")
    vms = edge.google.vms()
    assert [vm.name for vm in vms] == list(names(3))
    assert {(vm.zone, vm.status, vm.machine_type, vm.spot) for vm in vms} == {
        (ZONE, "RUNNING", MACHINE_TYPE, False)
    }
    # Google's times have milliseconds.
    assert all(before - 0.001 <= vm.created <= time.time() for vm in vms)
    assert edge.delete(vms[1]).failure is None
    assert [vm.name for vm in edge.google.vms()] == ["lab-debug-0", "lab-debug-2"]


def test_only_the_clusters_nodes_are_listed(edge: Edge):
    edge.make("lab-debug-0")
    edge.make("lab-login-0", labels={**LABELS, "muster-role": "login"})
    edge.make("other-debug-0", labels={**LABELS, "muster-cluster": "other"})
    edge.make("stray", labels={})
    assert [vm.name for vm in edge.google.vms()] == ["lab-debug-0"]


def test_a_list_has_all_pages_and_zones(edge: Edge):
    edge.insert(*names(600))
    path = f"{COMPUTE}/zones/{OTHER_ZONE}/instances?sourceInstanceTemplate={CHOICE.template}"
    edge.cloud.post(path, {"name": "lab-debug-600"})
    vms = edge.google.vms()
    assert {vm.name for vm in vms} == set(names(601))
    assert {vm.zone for vm in vms} == {ZONE, OTHER_ZONE}
    assert edge.calls()["instances.aggregatedList"] == 2


def test_a_thousand_vms_are_a_handful_of_calls(edge: Edge):
    """Also where the operation takes its time, and where some can't be made."""
    fake = edge.cloud.server.cloud.settings
    fake.latency_seconds = {"compute.instances.bulkInsert": 1}
    fake.capacity = {(ZONE, MACHINE_TYPE): 990}
    event = edge.insert(*names(1000))
    assert event.whole is None
    assert len(event.failed) == 10
    assert len(edge.google.vms()) == 990
    calls = edge.calls()
    assert calls["instances.bulkInsert"] == 1
    assert sum(calls.values()) <= 20, calls


def test_spot_vms_are_known(edge: Edge):
    edge.make(
        "lab-debug-0", scheduling={"provisioningModel": "SPOT", "onHostMaintenance": "TERMINATE"}
    )
    (vm,) = edge.google.vms()
    assert vm.spot


def test_who_deletes_what_is_gone_succeeds(edge: Edge):
    assert edge.delete("lab-debug-7").failure is None


def test_an_insert_does_not_wait_behind_deletions(edge: Edge):
    for number in range(100):
        edge.google.submit(Delete(Vm(f"lab-gone-{number}", ZONE, "RUNNING", 0), "idle"))
    began = time.monotonic()
    edge.google.submit(Insert("request", CHOICE, names(2), 2))
    until(lambda: edge.names() >= set(names(2)))
    assert time.monotonic() - began < 1
    # The deletions are bound to the rate: 100 at 20 a second.
    assert len(edge.told(101)) == 101
    assert time.monotonic() - began > 3


def test_a_vm_is_looked_at_by_its_name(edge: Edge):
    edge.make("lab-debug-0")
    assert edge.look("lab-debug-0") == ProbeResult("lab-debug-0", ZONE, exists=True)
    report = '{"state": "running", "step": "mounts"}'
    edge.report("lab-debug-0", report)
    assert edge.look("lab-debug-0") == ProbeResult("lab-debug-0", ZONE, exists=True, report=report)
    assert edge.look("lab-debug-1") == ProbeResult("lab-debug-1", ZONE, exists=False)


def test_what_is_left_of_quotas_is_known(edge: Edge):
    edge.cloud.server.cloud.settings.quotas = {
        REGION: {"C2_CPUS": 10},
        "global": {"CPUS_ALL_REGIONS": 9},
    }
    edge.insert("lab-debug-0")
    left = edge.google.quotas(REGION)
    assert (left["C2_CPUS"], left["CPUS_ALL_REGIONS"]) == (6, 5)


def test_what_was_used_is_counted(edge: Edge):
    edge.insert(*names(2))
    edge.delete("lab-debug-9")
    budget = edge.google.budget()
    assert budget.calls["instances.bulkInsert", "200"] == 1
    assert budget.calls["instances.delete", "notFound"] == 1
    assert budget.bulk == 0
    assert set(budget.pace.values()) == {1.0}
    assert budget.waited_s["mutate"] < 1
