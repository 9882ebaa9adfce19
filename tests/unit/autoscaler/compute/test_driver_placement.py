"""Placement policies of jobs: created before the job's VMs, deleted after them."""

import json
import math
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import pytest
from controllerkit import ZONE, Cloud
from driverkit import CHOICE, DriverHarness, names, unreachable, until

from muster.autoscaler.compute.api_client import Transport
from muster.autoscaler.reconcile.model import Insert, Inserted
from muster_sandbox.fakecloud.api_errors import permission_denied, quota
from muster_sandbox.fakecloud.http import Deferred, Handle, Reply, Request


def policies(cloud: Cloud) -> set[str]:
    """All policies, without that of the template."""
    listed = cloud.server.do(
        lambda fake: [name for _, name, _ in fake.store.all("compute.resourcePolicies")]
    )
    return set(listed) - {"lab-debug"}


def policies_of(cloud: Cloud, name: str) -> list[str]:
    """The policies of a VM, by name."""
    scope = f"demo-project/zones/{ZONE}"
    vm = cloud.server.do(lambda fake: fake.store.get("compute.instances", scope, name))
    assert vm
    return [policy.rpartition("/")[2] for policy in vm["resourcePolicies"]]


def counted_sweeps(harness: DriverHarness) -> list[None]:
    """Each search for policies that no VM uses, from now on, when it has ended."""
    placements = harness.google._inserts.placements
    sweep = placements.delete_unused
    sweeps: list[None] = []

    def counted(used: Mapping[str, str]) -> None:
        sweep(used)
        sweeps.append(None)

    placements.delete_unused = counted
    return sweeps


def test_a_job_has_its_own_policy_while_it_has_vms(cloud: Cloud, harness: DriverHarness):
    cloud.server.cloud.settings.latency_seconds = {"compute.resourcePolicies.insert": 3}
    assert harness.insert(*names(2), least=2, job=7, placement=True) == Inserted("request-1")
    assert policies_of(cloud, "lab-debug-1") == ["lab-job7"]
    vms = harness.google.vms()
    for vm in vms:
        assert policies(cloud) == {"lab-job7"}
        harness.delete(vm)
    harness.google.vms()
    until(lambda: policies(cloud) == set())


def test_single_inserts_have_the_policy_too(cloud: Cloud, harness: DriverHarness):
    cloud.server.cloud.settings.latency_seconds = {"compute.instances.bulkInsert": 60}
    for number in range(8):
        harness.google.submit(Insert(f"bulk-{number}", CHOICE, names(5, 100 + 5 * number), 1))
    until(lambda: harness.google.budget().bulk == 8)
    assert harness.insert(*names(2), least=2, job=8, placement=True) == Inserted("request-1")
    assert policies_of(cloud, "lab-debug-0") == ["lab-job8"]
    assert "instances.insert" in harness.calls()


def test_a_single_insert_names_the_policy_by_its_url(cloud: Cloud, harness: DriverHarness):
    """InstanceProperties, of a bulkInsert, take names; an instance takes URLs."""
    sent: list[Any] = []
    before = cloud.server.cloud.middleware

    def watched(handle: Handle, request: Request) -> Reply | Deferred:
        if request.verb == "POST" and request.path.endswith("/instances"):
            sent.append(json.loads(request.content)["resourcePolicies"])
        return before(handle, request)

    cloud.server.cloud.middleware = watched
    harness.google._inserts.no_bulk_until = math.inf
    assert harness.insert("lab-debug-0", job=8, placement=True) == Inserted("request-1")
    place = f"projects/demo-project/regions/{ZONE.rpartition('-')[0]}"
    assert sent == [[f"{place}/resourcePolicies/lab-job8"]]
    assert policies_of(cloud, "lab-debug-0") == ["lab-job8"]


def test_an_existing_policy_is_used(cloud: Cloud, harness: DriverHarness):
    harness.insert("lab-debug-0", job=7, placement=True)
    assert harness.insert("lab-debug-1", job=7, placement=True).whole is None
    assert policies_of(cloud, "lab-debug-1") == ["lab-job7"]


def test_policies_are_created_at_the_same_time(cloud: Cloud, harness: DriverHarness):
    cloud.server.cloud.settings.latency_seconds = {"compute.resourcePolicies.insert": 60}
    for job in range(1, 9):
        harness.google.submit(
            Insert(f"job-{job}", CHOICE, names(2, 2 * job), 2, job, placement=True)
        )
    until(lambda: len(policies(cloud)) == 8, seconds=3)
    assert len(harness.take_events(8)) == 8


def test_a_policy_in_a_zone_that_cannot_be_listed_is_kept(cloud: Cloud, harness: DriverHarness):
    harness.insert("lab-debug-0", job=7, placement=True)
    harness.insert("lab-debug-1", job=8, placement=True)
    harness.google.vms()
    unreachable(harness, ZONE)
    sweeps = counted_sweeps(harness)
    for number in range(1, 4):
        harness.google.vms()
        until(lambda number=number: len(sweeps) == number)
    assert "resourcePolicies.delete" not in harness.calls()
    assert policies(cloud) == {"lab-job7", "lab-job8"}


def test_of_a_job_that_has_ended_nothing_is_kept(harness: DriverHarness):
    for job in range(1, 4):
        harness.insert(f"lab-debug-{job}", job=job, placement=True)
    assert harness.google._inserts.placements._held == {}


def test_deletions_that_hang_do_not_pile_up(
    cloud: Cloud, harness: DriverHarness, monkeypatch: pytest.MonkeyPatch
):
    """One runs, and one more begins when that has ended, with the newest list."""
    hangs = threading.Event()
    sweeps: list[set[str]] = []

    def sweep(used: Mapping[str, str]) -> None:
        sweeps.append(set(used))
        hangs.wait()

    monkeypatch.setattr(harness.google._inserts.placements, "delete_unused", sweep)
    harness.google.vms()
    until(lambda: sweeps)
    for _ in range(5):
        harness.google.vms()
    harness.insert("lab-debug-0", job=7, placement=True)
    harness.google.vms()
    hangs.set()
    harness.google._sweeper.shutdown()
    assert sweeps == [set(), {"lab-job7"}]


def test_deletions_leave_half_of_the_rate_limit_to_what_jobs_wait_for(
    harness: DriverHarness, monkeypatch: pytest.MonkeyPatch
):
    urgent: dict[str, bool] = {}
    call = Transport.call

    def watched(self: Transport, method: str, *args: Any, **more: Any) -> Any:
        urgent[method] = more.get("urgent", True)
        return call(self, method, *args, **more)

    monkeypatch.setattr(Transport, "call", watched)
    harness.insert("lab-debug-0", job=7, placement=True)
    harness.delete("lab-debug-0")
    harness.google.vms()
    until(lambda: "resourcePolicies.delete" in urgent)
    assert urgent["resourcePolicies.insert"]
    assert not urgent["resourcePolicies.delete"]


def test_the_policy_of_a_job_that_begins_while_others_are_deleted_is_kept(
    cloud: Cloud, harness: DriverHarness, monkeypatch: pytest.MonkeyPatch
):
    for job in (7, 8):
        harness.insert(f"lab-debug-{job}", job=job, placement=True)
        harness.delete(f"lab-debug-{job}")
    placements = harness.google._inserts.placements
    call = Transport.call
    with ExitStack() as stack:

        def begins(self: Transport, method: str, verb: str, path: str, **more: Any) -> Any:
            if method == "resourcePolicies.delete" and path.endswith("/lab-job7"):
                stack.enter_context(placements.held(8, ZONE, harness.clock.monotonic() + 60))
            return call(self, method, verb, path, **more)

        monkeypatch.setattr(Transport, "call", begins)
        placements.delete_unused({})
        until(lambda: policies(cloud) == {"lab-job8"})
    placements.delete_unused({})
    until(lambda: policies(cloud) == set())


def test_policies_that_an_earlier_daemon_left_are_deleted(cloud: Cloud, harness: DriverHarness):
    harness.insert("lab-debug-0", job=7, placement=True)
    harness.delete("lab-debug-0")
    harness.insert("lab-debug-1", job=8, placement=True)
    restarted = DriverHarness(cloud, harness.clock)
    restarted.google.vms()
    until(lambda: policies(cloud) == {"lab-job8"})
    restarted.google.close()


def test_an_error_in_a_thread_is_logged_and_deletion_tried_again(
    cloud: Cloud,
    harness: DriverHarness,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    harness.insert("lab-debug-0", job=7, placement=True)
    harness.delete("lab-debug-0")
    pages = Transport.pages

    def invalid(self: Transport, method: str, *args: Any, **more: Any) -> Any:
        if method == "resourcePolicies.aggregatedList" and not caplog.records:
            return [{"items": {"regions/europe-west4": {"resourcePolicies": [{}]}}}]
        return pages(self, method, *args, **more)

    monkeypatch.setattr(Transport, "pages", invalid)
    harness.google.vms()
    until(lambda: "KeyError: 'name'" in caplog.text)
    assert "placement policies of ended jobs may be left" in caplog.text
    assert policies(cloud) == {"lab-job7"}
    harness.google.vms()
    until(lambda: policies(cloud) == set())


def test_a_policy_that_cant_be_created_is_the_reason(cloud: Cloud, harness: DriverHarness):
    harness.fault("resourcePolicies.insert", error=quota("Quota 'RESOURCE_POLICIES' exceeded."))
    event = harness.insert(*names(2), least=2, job=7, placement=True)
    assert event.whole is not None
    assert event.whole.code == "quotaExceeded"
    assert harness.names() == set()


def test_a_policy_that_the_controller_may_not_delete_any_more_is_logged_once(
    harness: DriverHarness, caplog: pytest.LogCaptureFixture
):
    """No node set is compact any more, and policies of jobs from before are left."""
    for job in (7, 8):
        harness.insert(f"lab-debug-{job}", job=job, placement=True)
    for method in ("aggregatedList", "delete"):
        refused = permission_denied(f"Required 'compute.resourcePolicies.{method}' permission")
        harness.fault(f"resourcePolicies.{method}", error=refused, times=100)
    harness.google.vms()
    until(lambda: "aggregatedList" in caplog.text)
    for job in (7, 8):
        harness.google.vms()
        harness.delete(f"lab-debug-{job}")
        harness.google.vms()
        until(lambda name=f"lab-job{job}": name in caplog.text)
    calls = harness.calls()
    assert (calls["resourcePolicies.aggregatedList"], calls["resourcePolicies.delete"]) == (1, 2)
    assert [record.message for record in caplog.records if "polic" in record.message] == [
        "placement policies: Required 'compute.resourcePolicies.aggregatedList' permission",
        *(
            f"placement policy {name} stays until `pulumi destroy` and costs nothing: "
            "Required 'compute.resourcePolicies.delete' permission"
            for name in ("lab-job7", "lab-job8")
        ),
    ]
