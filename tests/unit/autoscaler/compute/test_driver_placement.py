"""The nodes of a job near each other: a policy is made before them and goes after them."""

from typing import Any

import pytest
from controllerkit import ZONE, Cloud
from edgekit import CHOICE, Edge, names, until

from muster.autoscaler.compute.http import Transport
from muster.autoscaler.reconcile.model import Insert, Inserted
from muster_sandbox.fakecloud.errors import permission_denied, quota


def policies(cloud: Cloud) -> set[str]:
    """The policies that there are, but for the kit's own."""
    found = cloud.server.do(
        lambda fake: [name for _, name, _ in fake.store.all("compute.resourcePolicies")]
    )
    return set(found) - {"lab-debug"}


def policies_of(cloud: Cloud, name: str) -> list[str]:
    """The policies of a VM, by name."""
    scope = f"demo-project/zones/{ZONE}"
    vm = cloud.server.do(lambda fake: fake.store.get("compute.instances", scope, name))
    assert vm
    return [each.rpartition("/")[2] for each in vm["resourcePolicies"]]


def test_a_job_has_a_policy_of_its_own_while_it_has_vms(cloud: Cloud, edge: Edge):
    cloud.server.cloud.settings.latency_seconds = {"compute.resourcePolicies.insert": 0.2}
    assert edge.insert(*names(2), least=2, job=7, placement=True) == Inserted("request-1")
    assert policies_of(cloud, "lab-debug-1") == ["lab-job7"]
    vms = edge.google.vms()
    for vm in vms:
        assert policies(cloud) == {"lab-job7"}
        edge.delete(vm)
    edge.google.vms()
    until(lambda: policies(cloud) == set())


def test_single_inserts_have_it_too(cloud: Cloud, edge: Edge):
    cloud.server.cloud.settings.latency_seconds = {"compute.instances.bulkInsert": 2}
    for number in range(10):
        edge.google.submit(Insert(f"bulk-{number}", CHOICE, names(5, 100 + 5 * number), 1))
    until(lambda: edge.google.budget().bulk == 10)
    assert edge.insert(*names(2), least=2, job=8, placement=True) == Inserted("request-1")
    assert policies_of(cloud, "lab-debug-0") == ["lab-job8"]
    assert "instances.insert" in edge.calls()


def test_a_policy_that_is_there_is_taken(cloud: Cloud, edge: Edge):
    edge.insert("lab-debug-0", job=7, placement=True)
    assert edge.insert("lab-debug-1", job=7, placement=True).whole is None
    assert policies_of(cloud, "lab-debug-1") == ["lab-job7"]


def test_policies_are_made_at_the_same_time(cloud: Cloud, edge: Edge):
    cloud.server.cloud.settings.latency_seconds = {"compute.resourcePolicies.insert": 1}
    for job in range(1, 9):
        edge.google.submit(Insert(f"job-{job}", CHOICE, names(2, 2 * job), 2, job, placement=True))
    until(lambda: len(policies(cloud)) == 8, seconds=1)
    assert len(edge.told(8)) == 8


def test_what_a_daemon_before_has_left_goes(cloud: Cloud, edge: Edge):
    edge.insert("lab-debug-0", job=7, placement=True)
    edge.delete("lab-debug-0")
    edge.insert("lab-debug-1", job=8, placement=True)
    successor = Edge(cloud)
    successor.google.vms()
    until(lambda: policies(cloud) == {"lab-job8"})
    successor.google.close()


def test_what_goes_wrong_in_a_thread_is_logged_and_tried_again(
    cloud: Cloud, edge: Edge, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    edge.insert("lab-debug-0", job=7, placement=True)
    edge.delete("lab-debug-0")
    pages = Transport.pages

    def odd(self: Transport, method: str, *args: Any, **more: Any) -> Any:
        if method == "resourcePolicies.aggregatedList" and not caplog.records:
            return [{"items": {"regions/europe-west4": {"resourcePolicies": [{}]}}}]
        return pages(self, method, *args, **more)

    monkeypatch.setattr(Transport, "pages", odd)
    edge.google.vms()
    until(lambda: "KeyError: 'name'" in caplog.text)
    assert "placement policies of jobs that have ended may be left" in caplog.text
    assert policies(cloud) == {"lab-job7"}
    edge.google.vms()
    until(lambda: policies(cloud) == set())


def test_a_policy_that_cant_be_made_is_the_reason(cloud: Cloud, edge: Edge):
    edge.fault("resourcePolicies.insert", error=quota("Quota 'RESOURCE_POLICIES' exceeded."))
    event = edge.insert(*names(2), least=2, job=7, placement=True)
    assert event.whole is not None
    assert event.whole.code == "quotaExceeded"
    assert edge.names() == set()


def test_a_policy_that_it_has_no_rights_to_any_more_is_named_once(
    edge: Edge, caplog: pytest.LogCaptureFixture
):
    """No node set is compact any more, and of jobs that ran meanwhile there are policies."""
    for job in (7, 8):
        edge.insert(f"lab-debug-{job}", job=job, placement=True)
    for method in ("aggregatedList", "delete"):
        refused = permission_denied(f"Required 'compute.resourcePolicies.{method}' permission")
        edge.fault(f"resourcePolicies.{method}", error=refused, times=100)
    edge.google.vms()
    until(lambda: "aggregatedList" in caplog.text)
    for job in (7, 8):
        edge.google.vms()
        edge.delete(f"lab-debug-{job}")
        edge.google.vms()
        until(lambda name=f"lab-job{job}": name in caplog.text)
    calls = edge.calls()
    assert (calls["resourcePolicies.aggregatedList"], calls["resourcePolicies.delete"]) == (1, 2)
    assert [each.message for each in caplog.records if "polic" in each.message] == [
        "placement policies: Required 'compute.resourcePolicies.aggregatedList' permission",
        *(
            f"placement policy {name} stays, costs nothing, and goes with `pulumi destroy`: "
            "Required 'compute.resourcePolicies.delete' permission"
            for name in ("lab-job7", "lab-job8")
        ),
    ]
