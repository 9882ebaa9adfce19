"""Each resource type's life through the double: its calls, in order, and what they leave.

The calls are those that Google's provider was seen to make. Every life runs against fakecloud,
which checks each call against Google's description of the interface; after each step the state
must agree with the program, or a second `up` would change something.
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from double import mappings
from double.fields import changes, inputs_after_read
from double.resource import MAPPINGS, Resource
from double.rest import CloudError, Rest
from enginekit.home import cloud_environment

from muster.fakecloud.server import Server

assert mappings
ZONE, REGION = "europe-west4-a", "europe-west4"
Z, R = f"zones/{ZONE}", f"regions/{REGION}"
OWNER = "demo-project"


class Recorder(httpx.HTTPTransport):
    """Sends requests on, and remembers them as `POST zones/Z/disks?x=y`."""

    def __init__(self, bases: list[str]) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.bases = bases

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        url = str(request.url)
        path = next((url.removeprefix(base) for base in self.bases if url.startswith(base)), url)
        path, _, query = path.removeprefix(f"projects/{OWNER}/").partition("?")
        words = [word for word in query.split("&") if not word.startswith(("alt=", "pretty"))]
        tail = f"?{'&'.join(words)}" if words else ""
        self.calls.append(f"{request.method} {path}{tail}")
        return super().handle_request(request)


@dataclass
class Life:
    """Resources made through the double, each by its own mapping."""

    rest: Rest
    recorder: Recorder
    made: dict[str, tuple[Resource, str, dict[str, Any], dict[str, Any]]] = field(
        default_factory=dict
    )

    def create(self, kind: str, inputs: dict[str, Any]) -> list[str]:
        """Make one, check that it agrees with its inputs, and return the calls of making it."""
        mapping = MAPPINGS[kind](self.rest)
        made, calls = self.watch(lambda: mapping.create(inputs))
        state = mapping.state(made.id, made.answer, inputs)
        self.agrees(mapping, inputs, state)
        self.made[kind] = (mapping, made.id, inputs, state)
        return calls

    def refresh(self, kind: str) -> list[str]:
        """Read one, check that nothing seems changed, and return the calls."""
        mapping, identity, inputs, state = self.made[kind]
        answer, calls = self.watch(lambda: mapping.read(identity, state))
        assert answer is not None
        read = mapping.state(identity, answer, inputs)
        self.agrees(mapping, inputs, read)
        assert inputs_after_read(mapping.fields, inputs, read) == inputs
        return calls

    def change(self, kind: str, **news: Any) -> list[str]:
        """Change one in place, and return the calls."""
        mapping, identity, inputs, state = self.made[kind]
        wanted = {**inputs, **news}
        found = self.differs(mapping, wanted, state, inputs)
        assert found, "the change is none"
        assert not any(change.replace for change in found), found
        names = {change.name for change in found}
        answer, calls = self.watch(lambda: mapping.update(identity, state, wanted, names))
        after = mapping.state(identity, answer, wanted)
        self.agrees(mapping, wanted, after)
        self.made[kind] = (mapping, identity, wanted, after)
        return calls

    def replaces(self, kind: str, **news: Any) -> list[str]:
        """Return the inputs whose change makes a new one."""
        mapping, _, inputs, state = self.made[kind]
        found = self.differs(mapping, {**inputs, **news}, state, inputs)
        return sorted({change.name for change in found if change.replace})

    def delete(self, kind: str) -> list[str]:
        """Delete one, check that it is gone, and return the calls."""
        mapping, identity, _, state = self.made.pop(kind)
        _, calls = self.watch(lambda: mapping.delete(identity, state))
        gone = mapping.read(identity, state)
        assert gone is None or gone.get("deleted")
        mapping.delete(identity, state)  # what is gone already is no error
        return calls

    def state(self, kind: str) -> dict[str, Any]:
        """Return a resource's outputs."""
        return self.made[kind][3]

    def agrees(self, mapping: Resource, inputs: dict[str, Any], state: dict[str, Any]) -> None:
        assert self.differs(mapping, inputs, state, inputs) == []
        lacking = [name for name, value in state.items() if value is None and name in inputs]
        assert lacking == []

    @staticmethod
    def differs(mapping: Resource, news: dict, state: dict, olds: dict) -> list:
        found = list(changes(mapping.fields, news, state, olds))
        return mapping.refine(found, state, news)

    def watch(self, work) -> tuple[Any, list[str]]:
        """Do something and return the calls it made."""
        before = len(self.recorder.calls)
        done = work()
        return done, self.recorder.calls[before:]


@pytest.fixture
def life(fakecloud: Server) -> Iterator[Life]:
    environment = cloud_environment(fakecloud.url, OWNER)
    bases = [value for name, value in environment.items() if name.endswith("_ENDPOINT")]
    recorder = Recorder(bases)
    config = {"pollInterval": "1s", "batching": '{"sendAfter":"0.1s"}', "zone": ZONE}
    rest = Rest({**config, "region": REGION}, environment, transport=recorder)
    yield Life(rest, recorder)
    rest.close()


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
    assert life.replaces(NETWORK, mtu=1500) == ["mtu"]
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


def test_a_policy_that_others_write_too_is_read_again(life: Life):
    mapping = MAPPINGS["projects/iAMMember:IAMMember"](life.rest)
    member = {"project": OWNER, "role": "roles/viewer", "member": "user:ada@example.org"}
    mapping.create(member)
    honest, mine = mapping.get_policy, iter(["outdated"])

    def stale(path: str) -> dict[str, Any]:
        policy = honest(path)
        return {**policy, "etag": "b2xk"} if next(mine, None) else policy

    mapping.get_policy = stale
    mapping.create({**member, "member": "user:bob@example.org"})
    assert life.recorder.calls.count(f"POST projects/{OWNER}:setIamPolicy") == 3
    assert mapping.read("", member) is not None


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
        ["POST {vm}/addAccessConfig?networkInterface=nic0", f"GET {Z}/instances/vm"],
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


OBJECT = "storage/bucketObject:BucketObject"
BUCKET, BUCKET_MEMBER = "storage/bucket:Bucket", "storage/bucketIAMMember:BucketIAMMember"
SECRET, VERSION = "secretmanager/secret:Secret", "secretmanager/secretVersion:SecretVersion"
ACCOUNT, ROLE = "serviceaccount/account:Account", "projects/iAMCustomRole:IAMCustomRole"
EMAIL = f"lab-node@{OWNER}.iam.gserviceaccount.com"
WHO = {"member": f"serviceAccount:{EMAIL}"}


def text(value: str) -> dict[str, str]:
    """Return an asset as the engine sends it."""
    signature = "4dabf18193072939515e22adb298388d"
    kind = "c44067f5952c0a294b673a41bacd8c17"
    return {signature: kind, "text": value, "hash": str(len(value))}


def test_buckets_and_what_is_in_them(life: Life):
    bucket = {
        "name": "lab-bundle",
        "location": "europe-west4",
        "uniformBucketLevelAccess": True,
        "publicAccessPrevention": "enforced",
        "labels": {"cluster": "lab"},
    }
    assert life.create(BUCKET, bucket) == [
        f"POST b?project={OWNER}",
        "GET b/lab-bundle",
        "GET b/lab-bundle",
        "GET projects/123456789012",
    ]
    assert life.state(BUCKET)["url"] == "gs://lab-bundle"
    assert life.change(BUCKET, labels={}) == ["PATCH b/lab-bundle", "GET b/lab-bundle"]
    assert life.state(BUCKET)["effectiveLabels"] == {"goog-pulumi-provisioned": "true"}

    life.recorder.bases.append(life.rest.base("storage").removesuffix("/storage/v1/"))
    upload = "POST /upload/storage/v1/b/lab-bundle/o?name=bundle%2Fone.tar&uploadType=multipart"
    read = "GET b/lab-bundle/o/bundle%2Fone.tar"
    inputs = {"bucket": "lab-bundle", "name": "bundle/one.tar", "source": text("first")}
    assert life.create(OBJECT, inputs) == [upload, read]
    assert life.change(OBJECT, source=text("second")) == [upload, read]
    assert life.refresh(OBJECT) == [read]

    mapping, identity, _, state = life.made[BUCKET]
    with pytest.raises(CloudError, match="containing objects without `force_destroy`"):
        mapping.delete(identity, state)
    assert life.delete(OBJECT) == ["DELETE b/lab-bundle/o/bundle%2Fone.tar"]
    assert life.delete(BUCKET)[-3:] == [
        "GET b/lab-bundle/anywhereCaches/",
        "GET b/lab-bundle/o?versions=true",
        "DELETE b/lab-bundle",
    ]


def test_a_bucket_may_be_deleted_with_what_is_in_it(life: Life):
    life.create(BUCKET, {"name": "lab-bundle", "location": "EU", "forceDestroy": True})
    life.create(OBJECT, {"bucket": "lab-bundle", "name": "one", "content": "text"})
    life.delete(BUCKET)


def test_secrets_and_versions(life: Life):
    inputs = {"secretId": "munge", "replication": {"auto": {}}, "labels": {"cluster": "lab"}}
    assert life.create(SECRET, inputs) == ["POST secrets?secretId=munge", "GET secrets/munge"]
    assert life.change(SECRET, labels={"cluster": "x"}) == [
        "PATCH secrets/munge?updateMask=labels",
        "GET secrets/munge",
    ]
    version = {"secret": f"projects/{OWNER}/secrets/munge", "secretData": "planted"}
    one = "projects/123456789012/secrets/munge/versions/1"
    assert life.create(VERSION, version) == [
        "POST secrets/munge:addVersion",
        f"POST {one}:enable",
        f"GET {one}",
    ]
    assert life.replaces(VERSION, secretData="another") == ["secretData"]
    assert life.delete(VERSION)[-1] == f"POST {one}:destroy"
    assert life.delete(SECRET) == ["DELETE secrets/munge"]


def test_accounts_and_custom_roles(life: Life):
    account = {"accountId": "lab-node", "displayName": "compute nodes of lab"}
    path = f"serviceAccounts/{EMAIL}"
    assert life.create(ACCOUNT, account) == ["POST serviceAccounts", *[f"GET {path}"] * 3]
    assert life.state(ACCOUNT)["member"] == WHO["member"]
    change = life.change(ACCOUNT, displayName="nodes")
    assert change == [f"GET {path}", f"PATCH {path}", f"GET {path}"]
    assert life.delete(ACCOUNT) == [f"DELETE {path}"]

    role = {
        "roleId": "lab_controller",
        "title": "controller of lab",
        "permissions": ["compute.instances.delete", "compute.instances.create"],
    }
    path = "roles/lab_controller"
    assert life.create(ROLE, role) == [f"GET {path}", "POST roles", f"GET {path}"]
    wider = [*role["permissions"], "compute.instances.get"]
    assert life.change(ROLE, permissions=wider) == [f"GET {path}", f"PATCH {path}", f"GET {path}"]
    life.delete(ROLE)
    # The id of a deleted role stays taken for weeks: the same role is brought back.
    assert f"POST {path}:undelete" in life.create(ROLE, role)


READERS = [
    (
        "projects/iAMMember:IAMMember",
        {"project": OWNER, "role": "roles/logging.logWriter"},
        f"POST projects/{OWNER}:getIamPolicy",
        f"POST projects/{OWNER}:setIamPolicy",
    ),
    (
        "serviceaccount/iAMMember:IAMMember",
        {
            "serviceAccountId": f"projects/{OWNER}/serviceAccounts/{EMAIL}",
            "role": "roles/iam.serviceAccountUser",
        },
        f"POST serviceAccounts/{EMAIL}:getIamPolicy?options.requestedPolicyVersion=3",
        f"POST serviceAccounts/{EMAIL}:setIamPolicy",
    ),
    (
        "secretmanager/secretIamMember:SecretIamMember",
        {"secretId": "munge", "role": "roles/secretmanager.secretAccessor"},
        "GET secrets/munge:getIamPolicy?options.requestedPolicyVersion=3",
        "POST secrets/munge:setIamPolicy",
    ),
    (
        BUCKET_MEMBER,
        {"bucket": "lab-bundle", "role": "roles/storage.objectViewer"},
        "GET b/lab-bundle/iam?optionsRequestedPolicyVersion=3",
        "PUT b/lab-bundle/iam",
    ),
    (
        "compute/subnetworkIAMMember:SubnetworkIAMMember",
        {"subnetwork": "sub", "role": "roles/compute.networkUser"},
        f"GET {R}/subnetworks/sub/getIamPolicy?optionsRequestedPolicyVersion=3",
        f"POST {R}/subnetworks/sub/setIamPolicy",
    ),
    (
        "compute/instanceIAMMember:InstanceIAMMember",
        {"instanceName": "vm", "role": "roles/compute.instanceAdmin.v1"},
        f"GET {Z}/instances/vm/getIamPolicy?optionsRequestedPolicyVersion=3",
        f"POST {Z}/instances/vm/setIamPolicy",
    ),
    (
        "compute/imageIamMember:ImageIamMember",
        {"image": "slurm-1", "role": "roles/compute.imageUser"},
        "GET global/images/slurm-1/getIamPolicy?optionsRequestedPolicyVersion=3",
        "POST global/images/slurm-1/setIamPolicy",
    ),
    (
        "compute/diskIamMember:DiskIamMember",
        {"name": "state", "role": "roles/compute.viewer"},
        f"GET {Z}/disks/state/getIamPolicy?optionsRequestedPolicyVersion=3",
        f"POST {Z}/disks/state/setIamPolicy",
    ),
    (
        "iap/tunnelInstanceIAMMember:TunnelInstanceIAMMember",
        {"instance": "vm", "zone": ZONE, "role": "roles/iap.tunnelResourceAccessor"},
        f"POST iap_tunnel/{Z}/instances/vm:getIamPolicy",
        f"POST iap_tunnel/{Z}/instances/vm:setIamPolicy",
    ),
]


@pytest.mark.parametrize(
    ("kind", "inputs", "get", "put"), READERS, ids=[item[0].split(":")[1] for item in READERS]
)
def test_a_member_of_a_role(life: Life, kind: str, inputs: dict, get: str, put: str):
    life.create(ACCOUNT, {"accountId": "lab-node"})
    life.create(SECRET, {"secretId": "munge", "replication": {"auto": {}}})
    life.create(BUCKET, {"name": "lab-bundle", "location": "EU"})
    life.create(NETWORK, NET)
    life.create(SUBNETWORK, SUBNET)
    life.create(INSTANCE, MACHINE)
    life.create(DISK, {"name": "state", "zone": ZONE, "size": 20})
    life.create(IMAGE, {"name": "slurm-1", "sourceDisk": f"projects/{OWNER}/{Z}/disks/state"})
    # Read, modify, set with the etag, three looks whether it shows, and one for the resource.
    written = [get, put, get, get, get]
    assert life.create(kind, inputs | WHO) == [*written, get]
    assert life.refresh(kind) == [get]
    assert life.replaces(kind, member="user:ada@example.org") == ["member"]
    assert life.delete(kind) == written


def test_members_of_a_project_that_come_together_are_written_together(life: Life):
    mapping = MAPPINGS["projects/iAMMember:IAMMember"](life.rest)
    people = [f"user:{name}@example.org" for name in ("ada", "bob", "cyd", "dan")]
    members = [{"project": OWNER, "role": "roles/viewer", "member": who} for who in people]
    with ThreadPoolExecutor() as threads:
        list(threads.map(mapping.create, members))
    assert life.recorder.calls.count(f"POST projects/{OWNER}:setIamPolicy") == 1
    for member in members:
        assert mapping.read("", member) is not None
    mapping.delete("", members[0])
    assert mapping.read("", members[0]) is None
    assert mapping.read("", members[1]) is not None


def test_the_same_role_under_a_condition_is_another_binding(life: Life):
    mapping = MAPPINGS["projects/iAMMember:IAMMember"](life.rest)
    only = {"title": "own", "expression": "resource.name.startsWith('projects/p/lab-')"}
    plain = {"project": OWNER, "role": "roles/compute.viewer", "member": "user:ada@example.org"}
    mapping.create(plain)
    made = mapping.create({**plain, "condition": only})
    assert made.id == f"{OWNER}/roles/compute.viewer/user:ada@example.org/own"
    mapping.delete("", plain)
    assert mapping.read("", plain) is None
    assert mapping.read("", {**plain, "condition": only}) is not None
