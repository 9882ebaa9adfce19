"""The driver works with the controller's rights, needs each, and its errors name a missing one."""

from dataclasses import replace

import pytest
from controllerkit import REGION, Cloud
from driverkit import DriverHarness, names, until
from quick import DRIVER_LIMITS

from muster.autoscaler.reconcile.model import Inserted
from muster.gcp import service_account_permissions
from muster.gcp.api import CloudError
from muster_sandbox.fakecloud.api_errors import permission_denied

NEEDED = {
    *service_account_permissions.NODES,
    *service_account_permissions.DISKS,
    *service_account_permissions.SOURCES,
    *service_account_permissions.LISTS,
    *service_account_permissions.PLACES,
    *service_account_permissions.USES,
}


def work(harness: DriverHarness) -> set[str]:
    """Do all that the driver does; return the messages of Google's refusals."""
    refused = []
    # If a name exists, the driver looks up the VM.
    harness.make("lab-debug-0")
    harness.make("lab-debug-9", labels={})
    for event in (
        harness.insert(*names(2)),
        harness.insert("lab-debug-9"),
        harness.insert("lab-debug-5", job=7, placement=True),
    ):
        refused += [failure for failure in [event.whole, *event.failed.values()] if failure]
    refused.append(harness.probe("lab-debug-0", report=True).failure)
    refused.append(harness.probe("lab-debug-7").failure)
    refused.append(harness.delete("lab-debug-0").failure)
    problems = {
        failure.message for failure in refused if failure and failure.code != "alreadyExists"
    }
    for read in (harness.google.vms, lambda: harness.google.region(REGION)):
        try:
            read()
        except CloudError as error:
            problems.add(error.message)
    return problems


def test_the_rights_are_enough(harness: DriverHarness):
    harness.cloud.server.cloud.settings.latency_seconds = {"compute.instances.*": 1}
    assert work(harness) == set()


def test_a_vm_in_a_zone_that_no_set_uses_any_more_is_deleted(harness: DriverHarness):
    left = f"{REGION}-c"
    harness.make("lab-debug-0", left)
    assert harness.delete(harness.vm("lab-debug-0", left)).failure is None
    assert harness.names() == set()


UNUSED = (
    "Required 'compute.instances.setServiceAccount' permission for "
    f"'projects/demo-project/zones/{REGION}-a/instances/unusedName'"
)


def test_where_google_judges_a_bulk_insert_without_the_names_vms_are_made_one_by_one(
    harness: DriverHarness, caplog: pytest.LogCaptureFixture
):
    """Rights that hold for names of node sets don't hold for the name that it takes instead."""
    harness.fault("instances.bulkInsert", error=permission_denied(UNUSED), times=9)
    assert harness.insert(*names(7), least=7) == Inserted("request-1")
    assert harness.names() >= set(names(7))
    assert harness.insert(*names(2, 7)) == Inserted("request-2")
    assert harness.calls()["instances.bulkInsert"] == 1, "it is not tried each time"
    assert "one by one" in caplog.text
    # The right may be granted later.
    harness.google._inserts.no_bulk_until = 0
    harness.insert("lab-debug-9")
    assert harness.calls()["instances.bulkInsert"] == 2


MESSAGES = {
    "compute.zoneOperations.list": "not ended in time",
    "compute.regionOperations.list": "not ended in time",
    "iam.serviceAccounts.actAs": "does not have access to service account",
}
# Their actions have no event, only a log line.
LOGGED = {"compute.resourcePolicies.delete", "compute.resourcePolicies.list"}


@pytest.mark.parametrize("permission", sorted(NEEDED - LOGGED))
def test_a_missing_right_is_named(cloud: Cloud, harness_without, permission: str):
    cloud.server.cloud.settings.latency_seconds = {
        "compute.instances.*": 1,
        "compute.resourcePolicies.*": 1,
    }
    harness = harness_without(permission, replace(DRIVER_LIMITS, deadline_s=15))
    problems = work(harness)
    assert any(MESSAGES.get(permission, permission) in problem for problem in problems), problems


@pytest.mark.parametrize("permission", sorted(LOGGED))
def test_placement_policies_that_stay_are_logged(
    cloud: Cloud, harness_without, permission: str, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO", logger="muster")
    harness = harness_without(permission)
    harness.insert("lab-debug-5", job=7, placement=True)
    harness.delete("lab-debug-5")
    harness.google.vms()
    until(lambda: permission in caplog.text)
