"""The edge does its work with the controller's rights, needs each, and names what is missing."""

import pytest
from controllerkit import REGION, Cloud
from edgekit import Edge, names, until

from muster.autoscaler.compute.http import Limits
from muster.autoscaler.reconcile.model import Vm
from muster.gcp import rights
from muster.gcp.api import CloudError

NEEDED = {*rights.OWN, *rights.ANYWHERE, *rights.PLACES, *rights.USES}


def work(edge: Edge) -> set[str]:
    """Do all that the edge does; what Google's refusals were about."""
    refused = []
    # A name that is taken has the edge look whose it is.
    edge.make("lab-debug-0")
    edge.make("lab-debug-9", labels={})
    for event in (
        edge.insert(*names(2)),
        edge.insert("lab-debug-9"),
        edge.insert("lab-debug-5", job=7, placement=True),
    ):
        refused += [each for each in [event.whole, *event.failed.values()] if each]
    refused.append(edge.look("lab-debug-0").failure)
    refused.append(edge.look("lab-debug-7").failure)
    refused.append(edge.delete("lab-debug-0").failure)
    problems = {each.message for each in refused if each and each.code != "alreadyExists"}
    for read in (edge.google.vms, lambda: edge.google.quotas(REGION)):
        try:
            read()
        except CloudError as error:
            problems.add(error.message)
    return problems


def test_they_are_enough(edge: Edge):
    edge.cloud.server.cloud.settings.latency_seconds = {"compute.instances.*": 0.1}
    assert work(edge) == set()


def test_a_vm_in_a_zone_that_no_set_has_any_more_is_deleted(edge: Edge):
    left = f"{REGION}-c"
    edge.make("lab-debug-0", left)
    assert edge.delete(Vm("lab-debug-0", left, "RUNNING", 0)).failure is None
    assert edge.names() == set()


WORDS = {
    "compute.zoneOperations.list": "not ended in time",
    "compute.regionOperations.list": "not ended in time",
    "iam.serviceAccounts.actAs": "does not have access to service account",
}
# What they are for has no event: the log tells.
QUIET = {"compute.resourcePolicies.delete", "compute.resourcePolicies.list"}


@pytest.mark.parametrize("permission", sorted(NEEDED - QUIET))
def test_one_that_is_missing_is_named(cloud: Cloud, edge_without, permission: str):
    cloud.server.cloud.settings.latency_seconds = {
        "compute.instances.*": 0.1,
        "compute.resourcePolicies.*": 0.1,
    }
    edge = edge_without(permission, Limits(deadline_s=1))
    problems = work(edge)
    assert any(WORDS.get(permission, permission) in each for each in problems), problems


@pytest.mark.parametrize("permission", sorted(QUIET))
def test_placement_policies_that_must_stay_are_logged(
    cloud: Cloud, edge_without, permission: str, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO", logger="muster")
    edge = edge_without(permission)
    edge.insert("lab-debug-5", job=7, placement=True)
    edge.delete("lab-debug-5")
    edge.google.vms()
    until(lambda: permission in caplog.text)
