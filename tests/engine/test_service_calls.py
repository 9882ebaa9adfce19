"""The stand-in's calls to all services but Compute Engine, and for members of roles everywhere.

As in test_compute_calls.py: recorded from Google's provider, checked by fakecloud.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from lifekit import OWNER, Life

from muster_sandbox.provider import mappings
from muster_sandbox.provider.resource import MAPPINGS
from muster_sandbox.provider.rest import CloudError

assert mappings
ZONE = "europe-west4-a"
Z, R = f"zones/{ZONE}", "regions/europe-west4"
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


def make_compute(life: Life) -> None:
    """Make one of each resource of Compute Engine that has a policy."""
    life.create(
        "compute/network:Network", {"name": "net", "autoCreateSubnetworks": False, "mtu": 8896}
    )
    life.create(
        "compute/subnetwork:Subnetwork",
        {"name": "sub", "network": "net", "ipCidrRange": "10.64.0.0/20"},
    )
    life.create("compute/disk:Disk", {"name": "state", "zone": ZONE, "size": 20})
    disk = f"projects/{OWNER}/{Z}/disks/state"
    life.create("compute/image:Image", {"name": "slurm-1", "sourceDisk": disk})
    life.create(
        "compute/instance:Instance",
        {
            "name": "vm",
            "zone": ZONE,
            "machineType": "n1-standard-2",
            "bootDisk": {"initializeParams": {"image": "slurm-1"}},
            "networkInterfaces": [{"subnetwork": "sub"}],
        },
    )


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
    make_compute(life)
    # Read, modify, set with the etag, three reads until it is visible, and one for the resource.
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
