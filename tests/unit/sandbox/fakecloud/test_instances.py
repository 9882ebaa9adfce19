"""Instances: create, change, start, stop, preempt, delete."""

from pathlib import Path
from typing import Any

import pytest
from fakecloud_calls import REGION, ZONE, Caller, instance

from muster_sandbox.fakecloud import Cloud, Settings, open_cloud
from muster_sandbox.fakecloud.backends.memory import MemoryBackend
from muster_sandbox.fakecloud.clock import ManualClock
from muster_sandbox.fakecloud.services.compute.lifecycle import GUEST_ATTRIBUTES

ONE = f"{ZONE}/instances/one"


@pytest.fixture
def one(lab: Caller) -> Caller:
    lab.post(f"{ZONE}/instances", instance("one"))
    return lab


def test_what_the_provider_needs_is_in_the_answer(lab: Caller):
    """Without one of these the provider fails, or replaces or updates at each `up`."""
    body = instance(
        "one",
        labels={"muster-cluster": "lab"},
        metadata={"items": [{"key": "enable-oslogin", "value": "FALSE"}]},
        tags={"items": ["login"]},
        serviceAccounts=[{"email": "default", "scopes": ["https://a"]}],
        shieldedInstanceConfig={"enableSecureBoot": True},
    )
    body["disks"][0]["deviceName"] = "boot"
    body["networkInterfaces"][0]["networkIP"] = "10.0.0.7"
    body["networkInterfaces"][0]["accessConfigs"] = [{"networkTier": "PREMIUM"}]
    lab.post(f"{ZONE}/instances", body)
    vm = lab.get(ONE)
    link = "https://www.googleapis.com/compute/v1/projects/demo-project"
    assert vm["status"] == "RUNNING"
    assert vm["zone"] == f"{link}/{ZONE}"
    assert vm["machineType"] == f"{link}/{ZONE}/machineTypes/n1-standard-2"
    assert vm["labels"] == {"muster-cluster": "lab"}
    assert vm["metadata"]["items"] == [{"key": "enable-oslogin", "value": "FALSE"}]
    assert vm["metadata"]["fingerprint"]
    assert vm["tags"]["items"] == ["login"]
    (account,) = vm["serviceAccounts"]
    assert account["email"] == "123456789012-compute@developer.gserviceaccount.com"
    assert vm["shieldedInstanceConfig"] == {
        "enableSecureBoot": True,
        "enableVtpm": True,
        "enableIntegrityMonitoring": True,
    }
    (disk,) = vm["disks"]
    assert disk["source"] == f"{link}/{ZONE}/disks/one"
    assert (disk["deviceName"], disk["mode"]) == ("boot", "READ_WRITE")
    assert (disk["boot"], disk["autoDelete"]) == (True, True)
    (nic,) = vm["networkInterfaces"]
    assert nic["network"] == f"{link}/global/networks/lab"
    assert nic["subnetwork"] == f"{link}/{REGION}/subnetworks/lab"
    assert (nic["name"], nic["networkIP"]) == ("nic0", "10.0.0.7")
    assert nic["accessConfigs"][0]["natIP"].startswith("203.0.113.")
    boot = lab.get(f"{ZONE}/disks/one")
    assert boot["users"] == [vm["selfLink"]]
    assert boot["sourceImage"].endswith("/debian-12-bookworm-v20261110")
    assert lab.get(ONE, version="beta", view="FULL") == vm


def without(*path: Any) -> dict[str, Any]:
    body = instance("one")
    inner: Any = body
    for step in path[:-1]:
        inner = inner[step]
    del inner[path[-1]]
    return body


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (without("machineType"), "Machine type with name '' does not exist"),
        (instance("one", machineType="n9-huge-3"), "Machine type with name 'n9-huge-3'"),
        (
            instance("one", machineType="zones/us-east1-b/machineTypes/n1-standard-1"),
            "does not exist in zone 'europe-west4-a'",
        ),
        (without("disks"), "Boot disk must be specified"),
        (without("disks", 0, "initializeParams", "sourceImage"), "Boot disk must have a source"),
        (without("networkInterfaces"), "At least one network interface"),
        (
            instance(
                "one",
                networkInterfaces=[
                    {"subnetwork": f"{REGION}/subnetworks/lab", "network": "global/networks/none"}
                ],
            ),
            "network resource cannot be found",
        ),
        (without("name"), "'resource.name' not specified"),
        (instance("one", networkInterfaces=[{"network": "global/networks/lab"}]), "custom subnet"),
        (instance("one", networkInterfaces=[{"subnetwork": "nowhere"}]), "cannot be found"),
        (
            instance(
                "one",
                networkInterfaces=[
                    {"subnetwork": f"{REGION}/subnetworks/lab", "networkIP": "192.168.0.1"}
                ],
            ),
            "not in the range",
        ),
        (
            instance("one", scheduling={"preemptible": True, "automaticRestart": True}),
            "automaticRestart be false",
        ),
        (instance("one", serviceAccounts=[{"email": "a"}, {"email": "b"}]), "at most one service"),
        (
            instance("one", metadata={"items": [{"key": "a", "value": "x" * 262145}]}),
            "too large: maximum size 262144",
        ),
        (
            instance("one", metadata={"items": [{"key": "a"}, {"key": "a"}]}),
            "duplicate metadata key 'a'",
        ),
    ],
)
def test_an_instance_that_cant_be_is_refused(lab: Caller, body, message):
    status, _, answer = lab.refused("POST", f"{ZONE}/instances", body)
    assert status == 400
    assert message in answer
    assert "items" not in lab.get(f"{ZONE}/instances")
    assert "items" not in lab.get(f"{ZONE}/disks")


def test_a_name_is_taken_once(one: Caller):
    status, reason, message = one.refused("POST", f"{ZONE}/instances", instance("one"))
    assert (status, reason) == (409, "alreadyExists")
    assert message == f"The resource 'projects/demo-project/{ONE}' already exists"


def test_deletion_leaves_nothing(one: Caller):
    disks = one.get(f"{ZONE}/disks")["items"]
    assert len(disks) == 1
    one.delete(ONE)
    assert one.refused("GET", ONE)[:2] == (404, "notFound")
    assert "items" not in one.get(f"{ZONE}/disks")
    assert one.refused("DELETE", ONE)[0] == 404
    assert one.cloud.usage.addresses[one.get(f"{REGION}/subnetworks/lab")["selfLink"]] == {}
    assert not any(one.cloud.usage.metrics.values())


def test_a_protected_instance_stays(lab: Caller):
    lab.post(f"{ZONE}/instances", instance("one", deletionProtection=True))
    assert "protected against deletion" in lab.refused("DELETE", ONE)[2]
    lab.post(f"{ONE}/setDeletionProtection", deletionProtection="false")
    lab.delete(ONE)


def test_two_writers_of_metadata_dont_overwrite_each_other(one: Caller):
    stale = one.get(ONE)["metadata"]["fingerprint"]
    items = [{"key": "bundle", "value": "sha256:1"}]
    one.post(f"{ONE}/setMetadata", {"fingerprint": stale, "items": items})
    status, reason, message = one.refused(
        "POST", f"{ONE}/setMetadata", {"fingerprint": stale, "items": []}
    )
    assert (status, reason) == (412, "conditionNotMet")
    assert message == "Supplied fingerprint does not match current metadata fingerprint."
    assert one.refused("POST", f"{ONE}/setMetadata", {"items": []})[0] == 412
    metadata = one.get(ONE)["metadata"]
    assert metadata["items"] == items
    one.post(f"{ONE}/setMetadata", {"fingerprint": metadata["fingerprint"]})
    assert "items" not in one.get(ONE)["metadata"]


@pytest.mark.parametrize(
    ("method", "body", "path"),
    [
        ("setLabels", {"labels": {"a": "b"}}, ("labelFingerprint",)),
        ("setTags", {"items": ["login"]}, ("tags", "fingerprint")),
    ],
)
def test_labels_and_tags_need_the_present_fingerprint(one: Caller, method, body, path):
    stale: Any = one.get(ONE)
    for step in path:
        stale = stale[step]
    body = {**body, path[-1]: stale}
    one.post(f"{ONE}/{method}", body)
    assert one.refused("POST", f"{ONE}/{method}", body)[:2] == (412, "conditionNotMet")
    vm = one.get(ONE)
    assert vm["labels"] == {"a": "b"} if "labels" in body else vm["tags"]["items"] == ["login"]


def test_stop_and_start(fake: Cloud, one: Caller):
    assert isinstance(fake.clock, ManualClock)
    fake.settings.latency_seconds = {"compute.instances.*": 10}
    region = ("europe-west4", "CPUS")
    assert fake.usage.metrics[region] == 2
    one.post(f"{ONE}/stop")
    assert one.get(ONE)["status"] == "STOPPING"
    fake.clock.advance(10)
    stopped = one.get(ONE)
    assert stopped["status"] == "TERMINATED"
    assert fake.usage.metrics[region] == 0
    fake.clock.advance(10)
    one.post(f"{ONE}/start")
    assert one.get(ONE)["status"] == "PROVISIONING"
    fake.clock.advance(10)
    started = one.get(ONE)
    assert started["status"] == "RUNNING"
    assert started["lastStartTimestamp"] > stopped["lastStopTimestamp"]
    assert started["networkInterfaces"] == stopped["networkInterfaces"]
    one.post(f"{ONE}/reset")
    fake.clock.advance(10)
    assert one.get(ONE)["status"] == "RUNNING"


def test_machine_type_and_account_change_only_when_off(one: Caller):
    machine = {"machineType": f"{ZONE}/machineTypes/n1-standard-4"}
    email = "123456789012-compute@developer.gserviceaccount.com"
    account = {"email": email, "scopes": ["https://b"]}
    for method, body in (("setMachineType", machine), ("setServiceAccount", account)):
        assert "must be TERMINATED" in one.refused("POST", f"{ONE}/{method}", body)[2]
    one.post(f"{ONE}/stop")
    one.post(f"{ONE}/setMachineType", machine)
    one.post(f"{ONE}/setServiceAccount", account)
    one.post(f"{ONE}/start")
    vm = one.get(ONE)
    assert vm["machineType"].endswith("/n1-standard-4")
    assert vm["serviceAccounts"] == [account]
    assert one.cloud.usage.metrics["europe-west4", "CPUS"] == 4


def test_access_configs_come_and_go(one: Caller):
    query = {"networkInterface": "nic0"}
    one.post(f"{ONE}/addAccessConfig", {"name": "external"}, **query)
    (access,) = one.get(ONE)["networkInterfaces"][0]["accessConfigs"]
    assert access["natIP"].startswith("203.0.113.")
    assert one.refused("POST", f"{ONE}/addAccessConfig", {"name": "b"}, **query)[0] == 400
    one.post(f"{ONE}/setSecurityPolicy", {"networkInterfaces": ["nic0"]})
    one.post(f"{ONE}/deleteAccessConfig", accessConfig="external", **query)
    assert "accessConfigs" not in one.get(ONE)["networkInterfaces"][0]
    assert one.refused("POST", f"{ONE}/addAccessConfig", {}, networkInterface="nic9")[0] == 400


def test_scheduling_changes_but_for_spot(one: Caller):
    one.post(f"{ONE}/setScheduling", {"automaticRestart": False})
    assert one.get(ONE)["scheduling"] == {
        "onHostMaintenance": "MIGRATE",
        "automaticRestart": False,
        "provisioningModel": "STANDARD",
        "preemptible": False,
    }
    spot = {"preemptible": True, "automaticRestart": False, "onHostMaintenance": "TERMINATE"}
    assert "can't be changed" in one.refused("POST", f"{ONE}/setScheduling", spot)[2]


@pytest.mark.parametrize(
    ("action", "expected"), [("STOP", "TERMINATED"), ("DELETE", None), (None, "TERMINATED")]
)
def test_a_spot_instance_is_preempted(lab: Caller, action, expected):
    scheduling = {"provisioningModel": "SPOT"}
    if action:
        scheduling["instanceTerminationAction"] = action
    lab.post(f"{ZONE}/instances", instance("one", scheduling=scheduling))
    assert lab.get(ONE)["scheduling"]["preemptible"] is True
    lab.post(f"{ONE}/simulateMaintenanceEvent")
    status, answer = lab("GET", ONE)
    assert (answer.get("status") if status == 200 else None) == expected
    event = "operationType=compute.instances.preempted"
    (operation,) = lab.get(f"{ZONE}/operations", filter=event)["items"]
    assert (operation["targetLink"].rpartition("/")[2], operation["user"]) == ("one", "system")


def test_a_deletion_overtakes_an_insert(fake: Cloud, lab: Caller):
    assert isinstance(fake.clock, ManualClock)
    fake.settings.latency_seconds = {
        "compute.instances.insert": 60,
        "compute.instances.delete": 90,
    }
    made = lab.post(f"{ZONE}/instances", instance("one"))
    deleted = lab.delete(ONE)
    fake.clock.advance(60)
    assert lab.get(f"{ZONE}/operations/{made['name']}")["status"] == "DONE"
    assert lab.get(ONE)["status"] == "STOPPING"
    fake.clock.advance(30)
    assert lab.refused("GET", ONE)[0] == 404
    assert lab.get(f"{ZONE}/operations/{deleted['name']}")["status"] == "DONE"


def test_a_late_operation_is_not_of_the_next_instance(fake: Cloud, lab: Caller):
    """Two deletions, the second of which ends when another has taken the name."""
    assert isinstance(fake.clock, ManualClock)
    fake.settings.latency_seconds = {"compute.instances.delete": 10}
    lab.post(f"{ZONE}/instances", instance("one"))
    lab.delete(ONE)
    fake.clock.advance(5)
    late = lab.delete(ONE)
    fake.clock.advance(5)
    lab.post(f"{ZONE}/instances", instance("one"))
    fake.clock.advance(5)
    assert lab.get(f"{ZONE}/operations/{late['name']}")["status"] == "DONE"
    assert lab.get(ONE)["status"] == "RUNNING"
    assert lab.get(f"{ZONE}/disks/one")["users"] == [lab.get(ONE)["selfLink"]]


def test_maintenance_doesnt_touch_others(one: Caller):
    one.post(f"{ONE}/simulateMaintenanceEvent")
    assert one.get(ONE)["status"] == "RUNNING"


def limited() -> dict[str, Any]:
    limit = {"maxRunDuration": {"seconds": "3600"}, "instanceTerminationAction": "DELETE"}
    return instance("builder", scheduling=limit)


def test_a_maximum_run_time_ends_what_was_forgotten(fake: Cloud, lab: Caller):
    assert isinstance(fake.clock, ManualClock)
    lab.post(f"{ZONE}/instances", limited())
    fake.clock.advance(3599)
    assert lab.get(f"{ZONE}/instances/builder")["status"] == "RUNNING"
    fake.clock.advance(1)
    assert lab.refused("GET", f"{ZONE}/instances/builder")[0] == 404


def test_a_maximum_run_time_is_not_of_the_next_instance(fake: Cloud, lab: Caller):
    assert isinstance(fake.clock, ManualClock)
    lab.post(f"{ZONE}/instances", limited())
    fake.clock.advance(1800)
    lab.delete(f"{ZONE}/instances/builder")
    lab.post(f"{ZONE}/instances", limited())
    fake.clock.advance(1800)
    assert lab.get(f"{ZONE}/instances/builder")["status"] == "RUNNING"


def test_a_maximum_run_time_goes_on_after_a_restart(tmp_path: Path):
    clock = ManualClock(1000)
    cloud = open_cloud(Settings(), tmp_path, clock)
    ask = Caller(cloud)
    ask.post("global/networks", {"name": "lab", "autoCreateSubnetworks": False})
    subnet = {"name": "lab", "network": "global/networks/lab", "ipCidrRange": "10.0.0.0/20"}
    ask.post(f"{REGION}/subnetworks", subnet)
    ask.post(f"{ZONE}/instances", limited())
    usage = (cloud.usage.metrics, cloud.usage.addresses, cloud.usage.running)
    cloud.close()
    later = ManualClock(1000 + 3000)
    again = open_cloud(Settings(), tmp_path, later)
    assert (again.usage.metrics, again.usage.addresses, again.usage.running) == usage
    ask = Caller(again)
    later.advance(599)
    assert ask.get(f"{ZONE}/instances/builder")["status"] == "RUNNING"
    later.advance(1)
    assert ask.refused("GET", f"{ZONE}/instances/builder")[0] == 404
    again.close()
    assert again.failures == []


def test_the_console_is_read_on_from_where_one_was(fake: Cloud, one: Caller):
    assert isinstance(fake.backend, MemoryBackend)
    key = one.get(ONE)["id"]
    fake.backend.consoles[key] = b"booting\n"
    first = one.get(f"{ONE}/serialPort")
    assert (first["contents"], first["start"], first["next"]) == ("booting\n", "0", "8")
    fake.backend.consoles[key] += b"login:"
    assert one.get(f"{ONE}/serialPort", start=first["next"])["contents"] == "login:"
    assert one.get(f"{ONE}/serialPort", start=-3)["contents"] == "in:"
    assert one.get(f"{ONE}/serialPort", port=2)["contents"] == ""
    fake.backend.consoles[key] = b"x" * 2**20 + b"end"
    tail = one.get(f"{ONE}/serialPort")
    assert (tail["start"], len(tail["contents"])) == ("3", 2**20)


def test_guest_attributes_are_read_by_path_or_key(fake: Cloud, lab: Caller):
    enabled = {"items": [{"key": "enable-guest-attributes", "value": "TRUE"}]}
    lab.post(f"{ZONE}/instances", instance("one", metadata=enabled))
    lab.post(f"{ZONE}/instances", instance("two"))
    for name in ("one", "two"):
        scope = f"demo-project/{ZONE}/{name}"
        fake.store.put(GUEST_ATTRIBUTES, scope, "muster/state", {"value": "ready"})
        fake.store.put(GUEST_ATTRIBUTES, scope, "musterish/state", {"value": "no"})
    url = f"{ONE}/getGuestAttributes"
    assert lab.get(url, variableKey="muster/state")["variableValue"] == "ready"
    assert lab.get(url, queryPath="muster/")["queryValue"]["items"] == [
        {"namespace": "muster", "key": "state", "value": "ready"}
    ]
    assert len(lab.get(url)["queryValue"]["items"]) == 2
    assert lab.refused("GET", url, queryPath="other/")[0] == 404
    assert lab.refused("GET", url, variableKey="muster/none")[0] == 404
    off = f"{ZONE}/instances/two/getGuestAttributes"
    assert lab.refused("GET", off, queryPath="muster/")[0] == 404
    lab.delete(ONE)
    lab.post(f"{ZONE}/instances", instance("one", metadata=enabled))
    assert lab.refused("GET", url)[0] == 404


def template(name: str = "debug", **properties: Any) -> dict[str, Any]:
    body = instance("x")
    del body["name"]
    return {"name": name, "properties": {**body, "machineType": "n1-standard-2", **properties}}


def test_an_instance_follows_its_template(lab: Caller):
    metadata = {"items": [{"key": "a", "value": "1"}]}
    body = template(labels={"set": "debug"}, metadata=metadata)
    operation = lab.post("global/instanceTemplates", body)
    stored = lab.get("global/instanceTemplates/debug")
    by_id = lab.get(f"global/instanceTemplates/{stored['id']}", version="beta", view="FULL")
    assert by_id == stored
    assert operation["targetId"] == stored["id"]
    for name, reference in (
        ("one", "projects/demo-project/global/instanceTemplates/debug"),
        ("two", "global/instanceTemplates/debug"),
        ("three", stored["selfLink"]),
    ):
        body = {"name": name, "labels": {"own": "yes"}} if name == "two" else {"name": name}
        lab.post(f"{ZONE}/instances", body, sourceInstanceTemplate=reference)
    one = lab.get(ONE)
    assert one["labels"] == {"set": "debug"}
    assert one["metadata"]["items"] == metadata["items"]
    assert one["machineType"].endswith("/zones/europe-west4-a/machineTypes/n1-standard-2")
    assert lab.get(f"{ZONE}/instances/two")["labels"] == {"own": "yes"}
    lab.delete("global/instanceTemplates/debug")
    missing = lab.refused(
        "POST", f"{ZONE}/instances", {"name": "x"}, sourceInstanceTemplate=stored["selfLink"]
    )
    assert "instanceTemplate resource cannot be found" in missing[2]


@pytest.mark.parametrize(
    "properties",
    [
        {"machineType": "zones/europe-west4-a/machineTypes/n1-standard-2"},
        {"disks": []},
        {
            "guestAccelerators": [
                {
                    "acceleratorType": "zones/europe-west4-a/acceleratorTypes/nvidia-tesla-t4",
                    "acceleratorCount": 1,
                }
            ]
        },
    ],
)
def test_a_template_that_cant_be_is_refused(lab: Caller, properties):
    assert lab.refused("POST", "global/instanceTemplates", template(**properties))[0] == 400


def test_the_newest_come_first_if_asked(fake: Cloud, lab: Caller):
    assert isinstance(fake.clock, ManualClock)
    for name in ("b", "c", "a"):
        lab.post(f"{ZONE}/instances", instance(name))
        fake.clock.advance(0.001)
    query = {"orderBy": "creationTimestamp desc", "maxResults": 2}
    first = lab.get(f"{ZONE}/instances", **query)
    assert [vm["name"] for vm in first["items"]] == ["a", "c"]
    rest = lab.get(f"{ZONE}/instances", **query, pageToken=first["nextPageToken"])
    assert [vm["name"] for vm in rest["items"]] == ["b"]
    assert lab.refused("GET", f"{ZONE}/instances", orderBy="status")[0] == 400


def test_all_zones_are_listed_together(lab: Caller):
    lab.post(f"{ZONE}/instances", instance("one", labels={"c": "lab"}))
    other = "zones/europe-west4-b"
    body = instance("two", machineType=f"{other}/machineTypes/n1-standard-2")
    lab.post(f"{other}/instances", body)
    places = lab.get("aggregated/instances")["items"]
    assert [vm["name"] for vm in places[ZONE]["instances"]] == ["one"]
    assert [vm["name"] for vm in places[other]["instances"]] == ["two"]
    assert places["zones/us-east1-b"]["warning"]["code"] == "NO_RESULTS_ON_PAGE"
    mine = lab.get("aggregated/instances", filter="labels.c=lab")["items"]
    assert "instances" not in mine[other]
    whole = lab.get("aggregated/instances", fields="items,kind")
    assert whole["items"] == places
    first = lab.get("aggregated/instances", maxResults=1)
    second = lab.get("aggregated/instances", maxResults=1, pageToken=first["nextPageToken"])
    assert list(second["items"]) == [other]
    assert "nextPageToken" not in second
