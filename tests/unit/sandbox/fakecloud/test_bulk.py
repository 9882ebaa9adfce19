"""Many instances by one call."""

from pathlib import Path
from typing import Any

import pytest
from fakecloud_calls import REGION, ZONE, Caller, instance

from muster_sandbox.fakecloud import Cloud, Settings, open_cloud
from muster_sandbox.fakecloud.clock import ManualClock
from muster_sandbox.fakecloud.injected_faults import OperationError

BULK = f"{ZONE}/instances/bulkInsert"


def bulk(*names: str, **members: Any) -> dict[str, Any]:
    properties = {**instance("x"), "machineType": "n1-standard-2"}
    del properties["name"]
    return {
        "count": str(len(names)),
        "perInstanceProperties": {name: {} for name in names},
        "instanceProperties": properties,
        **members,
    }


def pattern(count: int, text: str = "n-###", **members: Any) -> dict[str, Any]:
    body = bulk(**members) | {"count": count, "namePattern": text}
    del body["perInstanceProperties"]
    return body


def names(ask: Caller) -> list[str]:
    return [vm["name"] for vm in ask.get(f"{ZONE}/instances").get("items", [])]


def location_status(operation: dict[str, Any], zone: str = ZONE) -> dict[str, Any]:
    status = operation["instancesBulkInsertOperationMetadata"]["perLocationStatus"][zone]
    assert isinstance(status, dict)
    return status


def test_one_call_makes_many_with_an_operation_each(lab: Caller):
    operation = lab.post(BULK, bulk("lab-debug-0", "lab-debug-1", "lab-debug-2"))
    assert names(lab) == ["lab-debug-0", "lab-debug-1", "lab-debug-2"]
    assert (operation["operationType"], operation["status"]) == ("bulkInsert", "DONE")
    assert location_status(operation) == {
        "targetVmCount": 3,
        "createdVmCount": 3,
        "failedToCreateVmCount": 0,
        "status": "DONE",
    }
    group = f"operationGroupId={operation['operationGroupId']} AND operationType=insert"
    children = lab.get(f"{ZONE}/operations", filter=group)["items"]
    assert sorted(child["targetLink"].rpartition("/")[2] for child in children) == names(lab)
    addresses = {
        lab.get(f"{ZONE}/instances/{name}")["networkInterfaces"][0]["networkIP"]
        for name in names(lab)
    }
    assert len(addresses) == 3


def test_names_by_pattern_go_on_after_the_largest(lab: Caller):
    lab.post(BULK, pattern(2))
    lab.post(BULK, pattern(2))
    lab.delete(f"{ZONE}/instances/n-002")
    lab.post(BULK, pattern(1))
    assert names(lab) == ["n-001", "n-003", "n-004", "n-005"]


def test_a_template_gives_the_properties(lab: Caller):
    properties = {**bulk("x")["instanceProperties"], "labels": {"set": "debug"}}
    lab.post("global/instanceTemplates", {"name": "debug", "properties": properties})
    body = pattern(2, sourceInstanceTemplate="global/instanceTemplates/debug")
    del body["instanceProperties"]
    lab.post(BULK, body)
    assert lab.get(f"{ZONE}/instances/n-002")["labels"] == {"set": "debug"}


@pytest.mark.parametrize(("least", "made"), [(1, 2), (2, 2), (3, 0), (None, 0)])
def test_fewer_than_the_minimum_is_none(fake: Cloud, lab: Caller, least, made):
    """minCount is count where it isn't given."""
    fake.settings.capacity = {("europe-west4-a", "n1-standard-2"): 2}
    operation = lab.ok("POST", BULK, pattern(5, **({"minCount": least} if least else {})))
    assert len(names(lab)) == made
    status = location_status(operation)
    assert (status["createdVmCount"], status["failedToCreateVmCount"]) == (2, 3)
    failed = lab.get(f"{ZONE}/operations", filter="httpErrorStatusCode=503")["items"]
    assert {operation["error"]["errors"][0]["code"] for operation in failed} == {
        "ZONE_RESOURCE_POOL_EXHAUSTED"
    }
    assert len(failed) == 3
    if made:
        assert "error" not in operation
    else:
        assert operation["error"]["errors"][0]["code"] == "VM_MIN_COUNT_NOT_REACHED"
        assert status["deletedVmCount"] == 2
    assert "items" not in lab.get(f"{ZONE}/disks") or made
    assert fake.usage.running["europe-west4-a", "n1-standard-2"] == made


def test_a_quota_counts_within_the_call(fake: Cloud, lab: Caller):
    fake.settings.quotas = {"europe-west4": {"CPUS": 4}}
    operation = lab.ok("POST", BULK, pattern(3, minCount=1))
    assert location_status(operation)["createdVmCount"] == 2


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (pattern(0), "Must be between 1 and 5000"),
        (pattern(5001), "Must be between 1 and 5000"),
        (pattern(2, "none"), "one sequence of #"),
        (pattern(2, "a-#-#"), "one sequence of #"),
        (bulk("a", count="2"), "number of perInstanceProperties"),
        (bulk("a", namePattern="n-#"), "exactly one of namePattern and"),
        (bulk("a", instanceProperties={}), "Either instanceProperties or"),
    ],
)
def test_a_call_that_cant_be_is_refused(lab: Caller, body, message):
    assert message in lab.refused("POST", BULK, body)[2]
    assert names(lab) == []


def test_disks_from_snapshots_are_refused(lab: Caller):
    body = bulk("a")
    body["instanceProperties"]["disks"][0]["initializeParams"] = {"sourceSnapshot": "global/x"}
    assert "doesn't support disks from snapshots" in lab.refused("POST", BULK, body)[2]


def test_a_name_that_is_taken_makes_none(lab: Caller):
    lab.post(f"{ZONE}/instances", instance("b"))
    assert lab.refused("POST", BULK, bulk("a", "b"))[:2] == (409, "alreadyExists")
    assert names(lab) == ["b"]


def test_a_subnet_that_is_full_makes_none(fake: Cloud, lab: Caller):
    small = {"name": "small", "network": "global/networks/lab", "ipCidrRange": "10.1.0.0/29"}
    lab.post(f"{REGION}/subnetworks", small)
    body = pattern(5)
    body["instanceProperties"]["networkInterfaces"] = [
        {"subnetwork": f"{REGION}/subnetworks/small"}
    ]
    assert "exhausted" in lab.refused("POST", BULK, body)[2]
    assert names(lab) == []
    assert "items" not in lab.get(f"{ZONE}/disks")
    assert "items" not in lab.get(f"{ZONE}/operations")


def test_more_than_ten_at_once_are_too_many(fake: Cloud, lab: Caller):
    assert isinstance(fake.clock, ManualClock)
    fake.settings.latency_seconds = {"compute.instances.bulkInsert": 60}
    for number in range(10):
        lab.post(BULK, bulk(f"n{number}"))
    assert lab.refused("POST", BULK, bulk("n10"))[:2] == (403, "rateLimitExceeded")
    fake.clock.advance(60)
    lab.post(BULK, bulk("n10"))


def test_more_than_twenty_in_a_second_are_too_many(fake: Cloud, lab: Caller):
    assert isinstance(fake.clock, ManualClock)
    for number in range(20):
        lab.post(BULK, bulk(f"n{number}"))
    assert lab.refused("POST", BULK, bulk("n20"))[:2] == (403, "rateLimitExceeded")
    fake.clock.advance(1)
    lab.post(BULK, bulk("n20"))


def test_it_fails_as_a_whole_when_a_test_asks(fake: Cloud, lab: Caller):
    """The operation fails, but no operation of a single instance has an error."""
    fake.faults.add(
        "compute.instances.bulkInsert",
        operation_error=OperationError("VM_MIN_COUNT_NOT_REACHED", "none"),
    )
    operation = lab.ok("POST", BULK, pattern(3))
    assert operation["error"]["errors"][0]["code"] == "VM_MIN_COUNT_NOT_REACHED"
    assert names(lab) == []
    children = f"operationGroupId={operation['operationGroupId']} AND operationType=insert"
    assert "items" not in lab.get(f"{ZONE}/operations", filter=children)


def test_a_region_takes_the_zone_with_most_room(fake: Cloud, lab: Caller):
    fake.settings.capacity = {
        ("europe-west4-a", "n1-standard-2"): 1,
        ("europe-west4-b", "n1-standard-2"): 3,
    }
    locations = {"zones/europe-west4-a": {"preference": "ALLOW"}}
    locations["zones/europe-west4-b"] = {"preference": "ALLOW"}
    body = pattern(3, locationPolicy={"locations": locations})
    operation = lab.post(f"{REGION}/instances/bulkInsert", body)
    assert operation["region"].endswith(REGION)
    assert location_status(operation, "zones/europe-west4-b")["createdVmCount"] == 3
    assert len(lab.get("zones/europe-west4-b/instances")["items"]) == 3
    denied = {"zones/europe-west4-c": {"preference": "DENY"}}
    lab.post(f"{REGION}/instances/bulkInsert", pattern(1, locationPolicy={"locations": denied}))
    assert "items" not in lab.get("zones/europe-west4-c/instances")


def test_it_goes_on_after_a_restart(tmp_path: Path):
    settings = Settings(latency_seconds={"compute.instances.bulkInsert": 60})
    cloud = open_cloud(settings, tmp_path, ManualClock(1000))
    ask = Caller(cloud)
    ask.post("global/networks", {"name": "lab", "autoCreateSubnetworks": False})
    subnet = {"name": "lab", "network": "global/networks/lab", "ipCidrRange": "10.0.0.0/20"}
    ask.post(f"{REGION}/subnetworks", subnet)
    operation = ask.post(BULK, pattern(3))
    cloud.close()
    clock = ManualClock(1030)
    again = open_cloud(settings, tmp_path, clock)
    ask = Caller(again)
    assert ask.get(f"{ZONE}/instances/n-001")["status"] == "PROVISIONING"
    clock.advance(31)
    assert ask.get(f"{ZONE}/instances/n-001")["status"] == "RUNNING"
    done = ask.get(f"{ZONE}/operations/{operation['name']}")
    assert (done["status"], location_status(done)["createdVmCount"]) == ("DONE", 3)
    again.close()
    assert again.failures == []
