"""The stand-in's calls to Compute Engine for each resource type, and their results.

The calls were recorded from Google's provider. Every lifecycle runs against fakecloud, which
checks each call against Google's description of the interface.
"""

from collections.abc import Mapping
from typing import Any

import pytest
from lifekit import OWNER, Life

from muster_sandbox.provider import mappings
from muster_sandbox.provider.resource import MAPPINGS
from muster_sandbox.provider.rest import CloudError

assert mappings
ZONE, REGION = "europe-west4-a", "europe-west4"
Z, R = f"zones/{ZONE}", f"regions/{REGION}"
NETWORK, SUBNETWORK = "compute/network:Network", "compute/subnetwork:Subnetwork"
FIREWALL, ADDRESS = "compute/firewall:Firewall", "compute/address:Address"
ROUTER, NAT = "compute/router:Router", "compute/routerNat:RouterNat"
DISK, IMAGE = "compute/disk:Disk", "compute/image:Image"
POLICY = "compute/resourcePolicy:ResourcePolicy"
POLICY_ON_DISK = "compute/diskResourcePolicyAttachment:DiskResourcePolicyAttachment"
TEMPLATE, INSTANCE = "compute/instanceTemplate:InstanceTemplate", "compute/instance:Instance"
ATTACHED = "compute/attachedDisk:AttachedDisk"
NET = {"name": "net", "autoCreateSubnetworks": False, "mtu": 8896}
SUBNET = {"name": "sub", "network": "net", "ipCidrRange": "10.64.0.0/20", "region": REGION}
FAMILY_LOOKUP = [
    "GET projects/debian-cloud/global/images/debian-12",
    "GET projects/debian-cloud/global/images/family/debian-12",
]
MACHINE = {
    "name": "vm",
    "zone": ZONE,
    "machineType": "n1-standard-2",
    "allowStoppingForUpdate": True,
    "bootDisk": {"initializeParams": {"image": "debian-cloud/debian-12", "size": 20}},
    "networkInterfaces": [{"subnetwork": "sub", "networkIp": "10.64.0.10"}],
    "metadata": {"digest": "one"},
    "labels": {"cluster": "lab"},
    "tags": ["lab"],
    "serviceAccount": {"scopes": ["cloud-platform"]},
    "shieldedInstanceConfig": {"enableSecureBoot": True},
}


def test_networks_and_subnetworks(life: Life):
    assert life.create(NETWORK, NET) == ["POST global/networks", "GET global/networks/net"]
    assert life.refresh(NETWORK) == ["GET global/networks/net"]
    net = "global/networks/net"
    assert life.change(NETWORK, mtu=1500) == [f"GET {net}", f"PATCH {net}", f"GET {net}"]
    assert life.replaces(NETWORK, description="other") == ["description"]
    sub = f"{R}/subnetworks/sub"
    assert life.create(SUBNETWORK, SUBNET) == [f"POST {R}/subnetworks", f"GET {sub}"]
    assert life.state(SUBNETWORK)["gatewayAddress"] == "10.64.0.1"
    assert life.change(SUBNETWORK, privateIpGoogleAccess=True, ipCidrRange="10.64.0.0/19") == [
        f"POST {sub}/expandIpCidrRange",
        f"POST {sub}/setPrivateIpGoogleAccess",
        f"GET {sub}",
    ]
    assert life.replaces(SUBNETWORK, ipCidrRange="10.64.0.0/21") == ["ipCidrRange"]
    assert life.delete(SUBNETWORK) == [f"DELETE {sub}"]
    assert life.delete(NETWORK) == ["DELETE global/networks/net"]


def test_firewall_rules(life: Life):
    life.create(NETWORK, NET)
    rule = {
        "name": "ssh",
        "network": "net",
        "allows": [{"protocol": "tcp", "ports": ["22"]}],
        "sourceRanges": ["35.235.240.0/20"],
        "logConfig": {"metadata": "EXCLUDE_ALL_METADATA"},
    }
    path = "global/firewalls/ssh"
    assert life.create(FIREWALL, rule) == ["POST global/firewalls", f"GET {path}"]
    assert life.change(FIREWALL, sourceRanges=["10.64.0.0/20", "35.235.240.0/20"]) == [
        f"PATCH {path}",
        f"GET {path}",
    ]
    for tags in (["login"], []):
        assert life.change(FIREWALL, targetTags=tags) == [f"PATCH {path}", f"GET {path}"]
    assert life.delete(FIREWALL) == [f"DELETE {path}"]


def test_an_address_gets_its_labels_twice(life: Life):
    path = f"{R}/addresses/controller"
    inputs = {"name": "controller", "region": REGION, "labels": {"cluster": "lab"}}
    assert life.create(ADDRESS, inputs) == [
        f"POST {R}/addresses",
        f"GET {path}",
        f"POST {path}/setLabels",
        f"GET {path}",
    ]
    assert life.state(ADDRESS)["effectiveLabels"] == {
        "cluster": "lab",
        "goog-pulumi-provisioned": "true",
    }
    labels = {"cluster": "other"}
    assert life.change(ADDRESS, labels=labels) == [f"POST {path}/setLabels", f"GET {path}"]
    life.delete(ADDRESS)


def test_nat_is_a_part_of_its_router(life: Life):
    life.create(NETWORK, NET)
    path = f"{R}/routers/out"
    router = {"name": "out", "network": "net", "region": REGION}
    assert life.create(ROUTER, router) == [f"POST {R}/routers", f"GET {path}"]
    nat = {
        "name": "nat",
        "router": "out",
        "region": REGION,
        "natIpAllocateOption": "AUTO_ONLY",
        "sourceSubnetworkIpRangesToNat": "ALL_SUBNETWORKS_ALL_IP_RANGES",
    }
    patch = [f"GET {path}", f"PATCH {path}", f"GET {path}"]
    assert life.create(NAT, nat) == patch
    assert life.refresh(NAT) == [f"GET {path}"]
    assert life.change(NAT, minPortsPerVm=128) == patch
    assert life.delete(NAT) == patch[:2]
    life.delete(ROUTER)


def test_disks_images_and_snapshot_schedules(life: Life):
    disk = f"{Z}/disks/state"
    inputs = {"name": "state", "zone": ZONE, "size": 20, "type": "pd-ssd", "labels": {"a": "b"}}
    assert life.create(DISK, inputs) == [f"POST {Z}/disks", f"GET {disk}"]
    assert life.change(DISK, size=30, labels={"a": "c"}) == [
        f"POST {disk}/setLabels",
        f"POST {disk}/resize",
        f"GET {disk}",
    ]
    assert life.replaces(DISK, size=10) == ["size"]

    days = {"daysInCycle": 1, "startTime": "04:00"}
    schedule = {
        "schedule": {"dailySchedule": days},
        "retentionPolicy": {"maxRetentionDays": 7, "onSourceDiskDelete": "KEEP_AUTO_SNAPSHOTS"},
    }
    policy = {"name": "daily", "region": REGION, "snapshotSchedulePolicy": schedule}
    path = f"{R}/resourcePolicies/daily"
    assert life.create(POLICY, policy) == [f"POST {R}/resourcePolicies", f"GET {path}"]
    attachment = {"name": "daily", "disk": "state", "zone": ZONE}
    assert life.create(POLICY_ON_DISK, attachment) == [
        f"POST {disk}/addResourcePolicies",
        f"GET {disk}",
    ]
    assert life.delete(POLICY_ON_DISK) == [f"GET {disk}", f"POST {disk}/removeResourcePolicies"]
    life.delete(POLICY)

    image = {"name": "slurm-1", "family": "slurm", "sourceDisk": f"projects/{OWNER}/{disk}"}
    assert life.create(IMAGE, image) == ["POST global/images", "GET global/images/slurm-1"]
    assert life.change(IMAGE, labels={"a": "b"}) == [
        "POST global/images/slurm-1/setLabels",
        "GET global/images/slurm-1",
    ]
    life.delete(IMAGE)
    assert life.delete(DISK) == [f"GET {disk}", f"DELETE {disk}"]


def test_a_disk_of_an_image_family_holds_the_concrete_image(life: Life):
    inputs = {"name": "boot", "zone": ZONE, "image": "debian-cloud/debian-12"}
    assert life.create(DISK, inputs) == [*FAMILY_LOOKUP, f"POST {Z}/disks", f"GET {Z}/disks/boot"]
    assert "/global/images/debian-12-" in life.state(DISK)["image"]
    assert life.replaces(DISK, image="debian-cloud/debian-13") == ["image"]


@pytest.mark.parametrize(("name", "replaced"), [("slurm-1", []), ("img-1", ["image"])])
def test_a_family_that_is_not_in_its_images_name_replaces_the_disk_at_every_up(
    life: Life, name: str, replaced: list[str]
):
    life.create(DISK, {"name": "builder", "zone": ZONE, "size": 20})
    source = f"projects/{OWNER}/{Z}/disks/builder"
    life.create(IMAGE, {"name": name, "family": "slurm", "sourceDisk": source})
    disk = MAPPINGS[DISK](life.rest)
    family = f"projects/{OWNER}/global/images/family/slurm"
    inputs = {"name": "boot", "zone": ZONE, "image": family}
    made = disk.create(inputs)
    state = disk.state(made.id, made.answer, inputs)
    assert [change.path for change in life.differs(disk, inputs, state, inputs)] == replaced
    by_link = {**inputs, "image": f"projects/{OWNER}/global/images/{name}"}
    assert life.differs(disk, by_link, state, inputs) == []


def test_a_template_is_named_by_its_prefix_and_read_by_its_number(life: Life):
    life.create(NETWORK, NET)
    life.create(SUBNETWORK, SUBNET)
    inputs = {
        "namePrefix": "lab-cpu-",
        "machineType": "n1-standard-2",
        "disks": [{"sourceImage": "debian-cloud/debian-12", "diskSizeGb": 20, "boot": True}],
        "networkInterfaces": [{"subnetwork": "sub"}],
        "metadata": {"digest": "one"},
        "scheduling": {"provisioningModel": "SPOT", "preemptible": True, "automaticRestart": False},
    }
    calls = life.create(TEMPLATE, inputs)
    state = life.state(TEMPLATE)
    number = f"GET global/instanceTemplates/{state['numericId']}?view=FULL"
    post = "POST global/instanceTemplates"
    assert [call for call in calls if "images" not in call] == [post, number]
    assert state["name"].startswith("lab-cpu-")
    assert state["name"].removeprefix("lab-cpu-").isdigit()
    assert state["selfLinkUnique"] == f"{state['selfLink']}?uniqueId={state['numericId']}"
    assert life.replaces(TEMPLATE, metadata={"digest": "two"}) == ["metadata"]
    name = f"global/instanceTemplates/{state['name']}"
    assert life.delete(TEMPLATE) == [f"DELETE {name}"]


def test_a_template_with_local_ssds_stays_as_it_is(life: Life):
    life.create(NETWORK, NET)
    life.create(SUBNETWORK, SUBNET)
    ssd = {
        "type": "SCRATCH",
        "diskType": "local-ssd",
        "diskSizeGb": 375,
        "interface": "NVME",
        "boot": False,
        "autoDelete": True,
    }
    inputs = {
        "name": "cached",
        "machineType": "n1-standard-2",
        "disks": [{"sourceImage": "debian-cloud/debian-12", "boot": True}, ssd, ssd],
        "networkInterfaces": [{"subnetwork": "sub"}],
    }
    life.create(TEMPLATE, inputs)
    sent = life.state(TEMPLATE)["disks"][1:]
    assert [{key: disk[key] for key in ssd} for disk in sent] == [ssd, ssd]
    fewer = inputs["disks"][:2]
    assert life.replaces(TEMPLATE, disks=fewer) == ["disks"]


def test_a_template_with_gpus_stays_as_it_is(life: Life):
    life.create(NETWORK, NET)
    life.create(SUBNETWORK, SUBNET)
    gpus = {"type": "nvidia-tesla-t4", "count": 2}
    inputs = {
        "name": "gpu",
        "machineType": "n1-standard-2",
        "guestAccelerators": [gpus],
        "scheduling": {"onHostMaintenance": "TERMINATE"},
        "disks": [{"sourceImage": "debian-cloud/debian-12", "boot": True}],
        "networkInterfaces": [{"subnetwork": "sub"}],
    }
    life.create(TEMPLATE, inputs)
    assert life.state(TEMPLATE)["guestAccelerators"] == [gpus]
    more = [gpus | {"count": 4}]
    assert life.replaces(TEMPLATE, guestAccelerators=more) == ["guestAccelerators"]


def test_an_instance_is_made_read_and_deleted(life: Life):
    life.create(NETWORK, NET)
    life.create(SUBNETWORK, SUBNET)
    vm = f"{Z}/instances/vm"
    read = [f"GET {vm}?view=FULL", f"GET {Z}/disks/vm"]
    assert life.create(INSTANCE, MACHINE) == [
        *FAMILY_LOOKUP,
        f"POST {Z}/instances",
        f"GET {vm}?view=FULL",
        *read,
    ]
    assert life.refresh(INSTANCE) == read
    state = life.state(INSTANCE)
    assert state["networkInterfaces"][0]["networkIp"] == "10.64.0.10"
    assert state["currentStatus"] == "RUNNING"
    assert life.replaces(INSTANCE, metadataStartupScript="true") == ["metadataStartupScript"]
    assert life.delete(INSTANCE) == [f"DELETE {vm}"]


STOP_START = [f"POST {Z}/instances/vm/stop", f"POST {Z}/instances/vm/start"]
BY_METADATA = [f"GET {Z}/instances/vm", f"POST {Z}/instances/vm/setMetadata"]
BY_LABELS = [f"GET {Z}/instances/vm", f"POST {Z}/instances/vm/setLabels"]
CHANGES: list[tuple[Mapping[str, Any], list[str]]] = [
    ({"metadata": {"digest": "two"}}, BY_METADATA),
    ({"labels": {"cluster": "x"}}, BY_LABELS),
    ({"tags": ["lab", "more"]}, [f"POST {Z}/instances/vm/setTags"]),
    ({"deletionProtection": True}, ["POST {vm}/setDeletionProtection?deletionProtection=true"]),
    (
        {"machineType": "n1-standard-4"},
        [STOP_START[0], f"POST {Z}/instances/vm/setMachineType", STOP_START[1]],
    ),
    (
        {"serviceAccount": {"scopes": ["logging-write"]}},
        [STOP_START[0], f"POST {Z}/instances/vm/setServiceAccount", STOP_START[1]],
    ),
    (
        {"scheduling": {"automaticRestart": False}},
        [f"POST {Z}/instances/vm/setScheduling"],
    ),
    (
        {
            "networkInterfaces": [
                {"subnetwork": "sub", "networkIp": "10.64.0.10", "accessConfigs": [{}]}
            ]
        },
        [
            "POST {vm}/addAccessConfig?networkInterface=nic0",
            "GET {vm}",
            "POST {vm}/setSecurityPolicy",
        ],
    ),
    ({"desiredStatus": "TERMINATED"}, [STOP_START[0]]),
]


@pytest.mark.parametrize(("news", "calls"), CHANGES, ids=[next(iter(item[0])) for item in CHANGES])
def test_a_change_of_an_instance(life: Life, news: Mapping[str, Any], calls: list[str]):
    life.create(NETWORK, NET)
    life.create(SUBNETWORK, SUBNET)
    life.create(INSTANCE, MACHINE)
    vm = f"{Z}/instances/vm"
    whole = [f"GET {vm}?view=FULL"]
    expected = [call.format(vm=vm) for call in calls]
    assert life.change(INSTANCE, **news) == [*whole, *expected, *whole, f"GET {Z}/disks/vm"]


def test_disks_come_and_go_at_an_instance(life: Life):
    life.create(NETWORK, NET)
    life.create(SUBNETWORK, SUBNET)
    life.create(DISK, {"name": "state", "zone": ZONE, "size": 20})
    life.create(INSTANCE, MACHINE)
    vm = f"{Z}/instances/vm"
    attached = {"disk": "state", "instance": "vm", "deviceName": "data"}
    assert life.create(ATTACHED, attached) == [f"POST {vm}/attachDisk", f"GET {vm}"]
    assert life.delete(ATTACHED) == [f"GET {vm}", f"POST {vm}/detachDisk?deviceName=data"]
    calls = life.change(INSTANCE, attachedDisks=[{"source": "state", "deviceName": "data"}])
    assert f"POST {vm}/attachDisk" in calls
    assert life.change(INSTANCE, attachedDisks=[])[1] == f"POST {vm}/detachDisk?deviceName=data"
    life.change(INSTANCE, attachedDisks=[{"source": "state", "deviceName": "data"}])
    disk = f"{Z}/disks/state"
    # A disk that is still attached is detached by the provider itself.
    assert life.delete(DISK) == [
        f"GET {disk}",
        f"GET {vm}",
        f"POST {vm}/detachDisk?deviceName=data",
        f"DELETE {disk}",
    ]


def test_a_stopped_instance_is_started_only_if_the_program_wants_it_to_run(life: Life):
    life.create(NETWORK, NET)
    life.create(SUBNETWORK, SUBNET)
    life.create(INSTANCE, MACHINE)
    vm = f"projects/{OWNER}/{Z}/instances/vm"
    life.rest.call("POST", "compute", f"{vm}/stop")
    mapping, identity, inputs, _ = life.made[INSTANCE]

    def differences(inputs: dict[str, Any]) -> list[str]:
        answer = mapping.read(identity, {})
        assert answer is not None
        state = mapping.state(identity, answer, inputs)
        assert state["currentStatus"] == "TERMINATED"
        return [change.path for change in life.differs(mapping, inputs, state, inputs)]

    assert differences(inputs) == []
    wanted = {**inputs, "desiredStatus": "RUNNING"}
    assert differences(wanted) == ["desiredStatus"]
    _, calls = life.watch(lambda: mapping.update(identity, {}, wanted, {"desiredStatus"}))
    assert f"POST {Z}/instances/vm/start" in calls
    assert life.rest.call("GET", "compute", vm)["status"] == "RUNNING"


def test_a_change_that_needs_a_stop_is_refused_unless_it_is_allowed(life: Life):
    life.create(NETWORK, NET)
    life.create(SUBNETWORK, SUBNET)
    life.create(INSTANCE, {**MACHINE, "allowStoppingForUpdate": False})
    with pytest.raises(CloudError, match="Changing the machine_type on a started instance"):
        life.change(INSTANCE, machineType="n1-standard-4")
    vm = life.rest.call("GET", "compute", f"projects/{OWNER}/{Z}/instances/vm")
    assert vm["machineType"].endswith("/n1-standard-2")


def test_a_protected_instance_is_not_deleted(life: Life):
    life.create(NETWORK, NET)
    life.create(SUBNETWORK, SUBNET)
    life.create(INSTANCE, {**MACHINE, "deletionProtection": True})
    with pytest.raises(CloudError, match="Deletion Protection is enabled"):
        life.delete(INSTANCE)


def test_machines_are_placed_by_a_policy(life: Life):
    life.create(NETWORK, NET)
    life.create(SUBNETWORK, SUBNET)
    policy = {
        "name": "near",
        "region": REGION,
        "groupPlacementPolicy": {"collocation": "COLLOCATED"},
    }
    life.create(POLICY, policy)
    link = life.state(POLICY)["selfLink"]
    template = {
        "name": "near",
        "machineType": "c2-standard-4",
        "disks": [{"sourceImage": "debian-cloud/debian-12", "boot": True}],
        "networkInterfaces": [{"subnetwork": "sub", "nicType": "GVNIC"}],
        "resourcePolicies": link,
        "scheduling": {"onHostMaintenance": "TERMINATE", "automaticRestart": False},
    }
    life.create(TEMPLATE, template)
    assert life.state(TEMPLATE)["resourcePolicies"] == link
