"""Regions, zones, machine types, and the quotas and capacity that are left."""

import pytest
from fakecloud_calls import LOCAL_SSD, REGION, ZONE, Caller, instance

from muster_sandbox.fakecloud import Cloud


def quota(ask: Caller, metric: str) -> tuple[float, float]:
    (entry,) = [entry for entry in ask.get(REGION)["quotas"] if entry["metric"] == metric]
    return entry["usage"], entry["limit"]


def test_a_region_shows_what_is_used(fake: Cloud, lab: Caller):
    fake.settings.quotas = {"europe-west4": {"CPUS": 5}}
    lab.post(f"{ZONE}/instances", instance("one"))
    assert quota(lab, "CPUS") == (2, 5)
    assert quota(lab, "INSTANCES")[0] == 1
    assert quota(lab, "DISKS_TOTAL_GB")[0] == 10
    lab.delete(f"{ZONE}/instances/one")
    assert quota(lab, "CPUS") == (0, 5)
    assert quota(lab, "DISKS_TOTAL_GB")[0] == 0


def test_more_than_the_quota_fails_and_leaves_nothing(fake: Cloud, lab: Caller):
    fake.settings.quotas = {"europe-west4": {"CPUS": 5}}
    for name in ("one", "two"):
        lab.post(f"{ZONE}/instances", instance(name))
    operation = lab.ok("POST", f"{ZONE}/instances", instance("three"))
    (error,) = operation["error"]["errors"]
    assert error == {
        "code": "QUOTA_EXCEEDED",
        "message": "Quota 'CPUS' exceeded.  Limit: 5.0 in region europe-west4.",
    }
    assert operation["httpErrorStatusCode"] == 403
    assert lab.refused("GET", f"{ZONE}/instances/three")[0] == 404
    assert quota(lab, "CPUS")[0] == 4


@pytest.mark.parametrize(
    ("machine", "metrics"),
    [
        ("n1-standard-4", {"CPUS": 4}),
        ("e2-standard-2", {"CPUS": 2}),
        ("n2-standard-8", {"N2_CPUS": 8}),
        ("a2-highgpu-2g", {"A2_CPUS": 24, "NVIDIA_A100_GPUS": 2}),
        ("g2-standard-24", {"CPUS": 24, "NVIDIA_L4_GPUS": 2}),
    ],
)
def test_each_family_has_its_metric(lab: Caller, machine, metrics):
    lab.post(
        f"{ZONE}/instances",
        instance(
            "one",
            machineType=f"{ZONE}/machineTypes/{machine}",
            scheduling={"onHostMaintenance": "TERMINATE"},
        ),
    )
    used = {
        entry["metric"]: entry["usage"] for entry in lab.get(REGION)["quotas"] if entry["usage"]
    }
    assert used == {**metrics, "INSTANCES": 1, "DISKS_TOTAL_GB": 10}


def test_gpus_of_spot_vms_have_their_metric(lab: Caller):
    machine = f"{ZONE}/machineTypes/g2-standard-24"
    spot = {"provisioningModel": "SPOT"}
    lab.post(f"{ZONE}/instances", instance("one", machineType=machine, scheduling=spot))
    assert quota(lab, "PREEMPTIBLE_NVIDIA_L4_GPUS")[0] == 2
    assert quota(lab, "NVIDIA_L4_GPUS")[0] == 0


@pytest.mark.parametrize("scheduling", [{}, {"onHostMaintenance": "MIGRATE"}])
def test_gpus_can_not_be_moved(lab: Caller, scheduling):
    machine = f"{ZONE}/machineTypes/g2-standard-4"
    body = instance("one", machineType=machine, scheduling=scheduling)
    refused = lab.refused("POST", f"{ZONE}/instances", body)
    assert refused[0] == 400
    assert "do not support live migration" in refused[2]


@pytest.mark.parametrize(
    ("scheduling", "metric"),
    [({}, "LOCAL_SSD_TOTAL_GB"), ({"provisioningModel": "SPOT"}, "PREEMPTIBLE_LOCAL_SSD_GB")],
)
def test_local_ssds_have_their_metric(fake: Cloud, lab: Caller, scheduling, metric):
    fake.settings.quotas = {"europe-west4": {metric: 1000}}
    two = instance("two", scheduling=scheduling)
    two["disks"] += [LOCAL_SSD, LOCAL_SSD]
    lab.post(f"{ZONE}/instances", two)
    assert quota(lab, metric) == (750, 1000)
    operation = lab.ok("POST", f"{ZONE}/instances", two | {"name": "more"})
    message = operation["error"]["errors"][0]["message"]
    assert message == f"Quota '{metric}' exceeded.  Limit: 1000.0 in region europe-west4."
    lab.delete(f"{ZONE}/instances/two")
    assert quota(lab, metric)[0] == 0


def test_spot_has_its_metric(lab: Caller):
    lab.post(f"{ZONE}/instances", instance("one", scheduling={"provisioningModel": "SPOT"}))
    assert (quota(lab, "PREEMPTIBLE_CPUS")[0], quota(lab, "CPUS")[0]) == (2, 0)


def test_all_regions_together_have_a_quota(fake: Cloud, lab: Caller):
    fake.settings.quotas = {"global": {"CPUS_ALL_REGIONS": 5}}
    lab.post(f"{ZONE}/instances", instance("one"))
    (cpus,) = [entry for entry in lab.get("")["quotas"] if entry["metric"] == "CPUS_ALL_REGIONS"]
    assert (cpus["usage"], cpus["limit"]) == (2, 5)
    big = instance("big", machineType=f"{ZONE}/machineTypes/n2-standard-4")
    operation = lab.ok("POST", f"{ZONE}/instances", big)
    assert operation["error"]["errors"][0]["message"] == (
        "Quota 'CPUS_ALL_REGIONS' exceeded.  Limit: 5.0 globally."
    )


def test_static_addresses_have_a_quota(fake: Cloud, lab: Caller):
    fake.settings.quotas = {"europe-west4": {"STATIC_ADDRESSES": 1}}
    lab.post(f"{REGION}/addresses", {"name": "a"})
    assert lab.refused("POST", f"{REGION}/addresses", {"name": "b"})[:2] == (403, "quotaExceeded")


def test_a_zone_is_full_and_has_room_again(fake: Cloud, lab: Caller):
    fake.settings.capacity = {("europe-west4-a", "n1-standard-2"): 1}
    lab.post(f"{ZONE}/instances", instance("one"))
    operation = lab.ok("POST", f"{ZONE}/instances", instance("two"))
    (error,) = operation["error"]["errors"]
    assert error["code"] == "ZONE_RESOURCE_POOL_EXHAUSTED"
    assert "projects/demo-project/zones/europe-west4-a" in error["message"]
    other = instance("two", machineType=f"{ZONE}/machineTypes/n1-standard-4")
    lab.post(f"{ZONE}/instances", other)
    lab.post(f"{ZONE}/instances/one/stop")
    lab.post(f"{ZONE}/instances", instance("three"))
    stuck = lab.ok("POST", f"{ZONE}/instances/one/start")
    assert stuck["error"]["errors"][0]["code"] == "ZONE_RESOURCE_POOL_EXHAUSTED"
    assert lab.get(f"{ZONE}/instances/one")["status"] == "TERMINATED"


def test_the_catalog(ask: Caller):
    assert ask.get("zones/europe-west4-a")["status"] == "UP"
    zones = ask.get("zones", filter="name=europe-west4-*")["items"]
    assert [zone["name"] for zone in zones] == [f"europe-west4-{letter}" for letter in "abc"]
    assert ask.get(REGION)["zones"] == [zone["selfLink"] for zone in zones]
    machine_type = ask.get(f"{ZONE}/machineTypes/n1-standard-2")
    assert (machine_type["guestCpus"], machine_type["memoryMb"]) == (2, 7680)
    gpu = ask.get(f"{ZONE}/machineTypes/g2-standard-24")["accelerators"]
    assert gpu == [{"guestAcceleratorType": "nvidia-l4", "guestAcceleratorCount": 2}]
    two = ask.get(f"{ZONE}/machineTypes", filter="guestCpus=2 AND name=n1-*")["items"]
    assert [machine_type["name"] for machine_type in two] == [
        "n1-highcpu-2",
        "n1-highmem-2",
        "n1-standard-2",
    ]
    assert ask.refused("GET", f"{ZONE}/machineTypes/n9-huge-1")[0] == 404
    assert ask.get(f"{ZONE}/diskTypes/pd-balanced")["name"] == "pd-balanced"
    assert ask.refused("GET", "zones/nowhere-a")[0] == 404
    project = ask.get("")
    assert project["id"] == "123456789012"
    assert project["defaultServiceAccount"].startswith("123456789012-compute@")
    assert ask.get("global/networks", project="123456789012")["id"].startswith(
        "projects/demo-project/"
    )
    assert ask.refused("GET", "global/networks", project="other-project")[0] == 404
