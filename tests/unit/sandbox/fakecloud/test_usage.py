"""The running counters equal a full count, after any calls in any order."""

from typing import Any

from fakecloud_calls import REGION, ZONE, Caller, instance
from hypothesis import given, settings
from hypothesis import strategies as st

from muster_sandbox.fakecloud import open_cloud
from muster_sandbox.fakecloud.clock import ManualClock
from muster_sandbox.fakecloud.usage import Usage

NAMES = st.sampled_from(["a", "b", "c"])
CALLS = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), NAMES, st.booleans()),
        st.tuples(st.sampled_from(["delete", "stop", "start", "nat", "no-nat", "preempt"]), NAMES),
        st.tuples(st.just("type"), NAMES, st.sampled_from(["n1-standard-8", "n2-standard-2"])),
        st.tuples(st.just("bulk"), st.integers(1, 4)),
        st.tuples(st.just("wait"), st.sampled_from([1, 5, 20])),
    ),
    max_size=25,
)
LATENCY = {"*.insert": 5.0, "*.bulkInsert": 7.0, "*.stop": 3.0, "*.delete": 4.0}


def made(call: tuple[Any, ...], ask: Caller) -> None:
    """Make a call; it may be refused."""
    what, name, *more = call
    one = f"{ZONE}/instances/{name}"
    if what == "insert":
        scheduling = {"provisioningModel": "SPOT"} if more[0] else {}
        ask("POST", f"{ZONE}/instances", instance(name, scheduling=scheduling))
    elif what == "delete":
        ask("DELETE", one)
    elif what in {"stop", "start"}:
        ask("POST", f"{one}/{what}")
    elif what == "nat":
        ask("POST", f"{one}/addAccessConfig", {"name": "out"}, networkInterface="nic0")
    elif what == "no-nat":
        query = {"networkInterface": "nic0", "accessConfig": "out"}
        ask("POST", f"{one}/deleteAccessConfig", **query)
    elif what == "preempt":
        ask("POST", f"{one}/simulateMaintenanceEvent")
    elif what == "type":
        body = {"machineType": f"{ZONE}/machineTypes/{more[0]}"}
        ask("POST", f"{one}/setMachineType", body)
    elif what == "bulk":
        properties = {**instance("x"), "machineType": "n1-standard-2"}
        del properties["name"]
        body = {"count": name, "minCount": 1, "namePattern": "n-##"}
        ask("POST", f"{ZONE}/instances/bulkInsert", {**body, "instanceProperties": properties})
    else:
        assert isinstance(ask.cloud.clock, ManualClock)
        ask.cloud.clock.advance(name)


def counted(usage: Usage) -> tuple[Any, ...]:
    """Without what is zero or empty."""
    return (
        {key: value for key, value in usage.metrics.items() if value},
        {key: value for key, value in usage.running.items() if value},
        {key: value for key, value in usage.addresses.items() if value},
    )


@settings(max_examples=60)
@given(CALLS)
def test_counters_follow_the_resources(calls):
    cloud = open_cloud()
    ask = Caller(cloud)
    ask.post("global/networks", {"name": "lab", "autoCreateSubnetworks": False})
    subnet = {"name": "lab", "network": "global/networks/lab", "ipCidrRange": "10.0.0.0/28"}
    ask.post(f"{REGION}/subnetworks", subnet)
    cloud.settings.latency_seconds = LATENCY
    cloud.settings.quotas = {"europe-west4": {"CPUS": 12}}
    cloud.settings.capacity = {("europe-west4-a", "n1-standard-2"): 5}
    for call in calls:
        made(call, ask)
        assert counted(cloud.usage) == counted(Usage(cloud.store))
    assert isinstance(cloud.clock, ManualClock)
    cloud.clock.advance(1000)
    # Whatever happened: every operation has ended, each disk has its instance, nothing is between.
    assert all(
        operation["status"] == "DONE" for _, _, operation in cloud.store.all("compute.operations")
    )
    names = {name for _, name, _ in cloud.store.all("compute.instances")}
    assert {name for _, name, _ in cloud.store.all("compute.disks")} == names
    statuses = {vm["status"] for _, _, vm in cloud.store.all("compute.instances")}
    assert statuses <= {"RUNNING", "TERMINATED"}
    assert cloud.failures == []
    cloud.close()
