"""Disks and snapshots.

https://cloud.google.com/compute/docs/reference/rest/v1/disks
"""

from muster_sandbox.fakecloud.api_errors import in_use, invalid
from muster_sandbox.fakecloud.call import Call, handler
from muster_sandbox.fakecloud.clock import timestamp
from muster_sandbox.fakecloud.cloud import Cloud
from muster_sandbox.fakecloud.http import Resource
from muster_sandbox.fakecloud.operations import LINK, Finish, begin, work
from muster_sandbox.fakecloud.services.compute import defaults, images, labels, resources
from muster_sandbox.fakecloud.services.compute.images import DISK
from muster_sandbox.fakecloud.services.compute.policies import POLICY
from muster_sandbox.fakecloud.services.compute.resources import Kind, Reference

SNAPSHOT = Kind("snapshots", "snapshot", "global")
DISK_TYPES = ("pd-standard", "pd-balanced", "pd-ssd", "pd-extreme", "hyperdisk-balanced")
DEFAULT_SIZE_GB = "500"
"""Default size of an empty disk: https://cloud.google.com/compute/docs/disks/add-persistent-disk."""

resources.serve(DISK, "get", "list", "aggregatedList")
resources.serve(SNAPSHOT, "get", "list", "delete")
labels.serve(DISK)
labels.serve(SNAPSHOT)


def new(call: Call, body: Resource) -> tuple[Reference, Resource]:
    """A disk from a body, with the concrete image in place of a family."""
    zone = resources.location(call)
    kind = body.get("type", "pd-standard").rpartition("/")[2]
    if kind not in DISK_TYPES:
        raise invalid(
            f"Invalid value for field 'resource.type': '{body['type']}'. "
            "The referenced diskType resource cannot be found."
        )
    disk = {
        **defaults.disk(body, kind),
        "type": f"{LINK}projects/{call.project}/{zone}/diskTypes/{kind}",
        "status": "READY",
    }
    source_size = None
    if body.get("sourceImage"):
        image = images.concrete(call, body["sourceImage"], "resource.sourceImage")
        source_size = image["diskSizeGb"]
        disk |= {"sourceImage": image["selfLink"], "sourceImageId": image["id"]}
        for copied in ("licenses", "guestOsFeatures", "architecture"):
            if copied in image:
                disk[copied] = image[copied]
    elif body.get("sourceSnapshot"):
        where, snapshot = resources.referenced(
            call, body["sourceSnapshot"], SNAPSHOT, "resource.sourceSnapshot"
        )
        source_size = snapshot["diskSizeGb"]
        disk |= {"sourceSnapshot": where.link, "sourceSnapshotId": snapshot["id"]}
    size = str(body.get("sizeGb") or source_size or DEFAULT_SIZE_GB)
    if source_size and int(size) < int(source_size):
        raise invalid(
            f"Invalid value for field 'resource.sizeGb': '{size}'. Requested disk size cannot be "
            f"smaller than the image size ({source_size} GB)"
        )
    if "resourcePolicies" in body:
        disk["resourcePolicies"] = [
            policy_link(call, policy) for policy in body["resourcePolicies"]
        ]
    target, complete = resources.new(call, DISK, {**disk, "sizeGb": size})
    return target, labels.labelled(complete)


def policy_link(call: Call, text: str) -> str:
    """The link of a resource policy of the zone's region."""
    return resources.referenced(call, text, POLICY, "resourcePolicies")[0].link


@handler("compute.disks.insert")
def insert(call: Call) -> Resource:
    """Make a disk, empty or from an image or snapshot."""
    body = resources.body(call)
    if call.query.get("sourceImage"):
        body["sourceImage"] = call.query["sourceImage"]
    target, disk = new(call, body)
    return resources.insert(call, target, disk)


@handler("compute.disks.delete")
def delete(call: Call) -> Resource:
    """Delete a disk that no instance has."""
    target, disk = resources.existing(call, DISK)
    refuse_attached(target, disk)
    return begin(
        call,
        "delete",
        target.location,
        target.path,
        disk["id"],
        work="delete_disk",
        arguments=resources.as_arguments(target, disk),
    )


def refuse_attached(target: Reference, disk: Resource) -> None:
    """400 if an instance has the disk."""
    for user in disk.get("users", []):
        raise in_use(target.path, user.removeprefix(LINK))


@work("delete_disk")
def _delete(cloud: Cloud, arguments: Resource, finish: Finish) -> None:
    target = resources.from_arguments(arguments)
    disk = target.find(cloud)
    if disk is not None:
        cloud.backend.delete_disk(disk)
    resources.drop(cloud, target)
    finish(None)


@handler("compute.disks.resize")
def resize(call: Call) -> Resource:
    """Make a disk larger; it can't shrink."""
    target, disk = resources.existing(call, DISK)
    size = str(resources.body(call).get("sizeGb", ""))
    if not size or int(size) <= int(disk["sizeGb"]):
        raise invalid(
            f"Invalid value for field 'sizeGb': '{size}'. New disk size must be larger than "
            f"existing disk size, {disk['sizeGb']} GB."
        )
    return resources.change(call, target, {**disk, "sizeGb": size}, "resizeDisk")


def _given_policies(call: Call) -> list[str]:
    given = resources.body(call).get("resourcePolicies")
    if not given:
        raise invalid("Required field 'resourcePolicies' not specified", "required")
    return [policy_link(call, policy) for policy in given]


@handler("compute.disks.addResourcePolicies")
def add_policies(call: Call) -> Resource:
    """Add a snapshot schedule to a disk."""
    target, disk = resources.existing(call, DISK)
    present = disk.get("resourcePolicies", [])
    added = _given_policies(call)
    if len({*present, *added}) > 1:
        raise invalid("A disk can have at most one snapshot schedule.")
    changed = {**disk, "resourcePolicies": [*present, *(x for x in added if x not in present)]}
    return resources.change(call, target, changed, "addResourcePolicies")


@handler("compute.disks.removeResourcePolicies")
def remove_policies(call: Call) -> Resource:
    """Remove a snapshot schedule from a disk."""
    target, disk = resources.existing(call, DISK)
    gone = _given_policies(call)
    kept = [policy for policy in disk.get("resourcePolicies", []) if policy not in gone]
    changed = {**disk, "resourcePolicies": kept}
    return resources.change(call, target, changed, "removeResourcePolicies")


@handler("compute.disks.createSnapshot")
def create_snapshot(call: Call) -> Resource:
    """Make a snapshot of a disk."""
    target, disk = resources.existing(call, DISK)
    return _snapshot(call, {**resources.body(call), "sourceDisk": target.link}, disk)


@handler("compute.snapshots.insert")
def insert_snapshot(call: Call) -> Resource:
    """Make a snapshot of the disk that the body names."""
    body = resources.body(call)
    given = body.get("sourceDisk", "")
    target, disk = resources.referenced(call, given, DISK, "resource.sourceDisk")
    return _snapshot(call, {**body, "sourceDisk": target.link}, disk)


def _snapshot(call: Call, body: Resource, disk: Resource) -> Resource:
    target, snapshot = resources.new(
        call,
        SNAPSHOT,
        {
            **body,
            "sourceDiskId": disk["id"],
            "diskSizeGb": disk["sizeGb"],
            "storageBytes": "0",
            "storageLocations": ["eu"],
            "status": "READY",
        },
        where="global",
    )
    return resources.insert(call, target, labels.labelled(snapshot))


def attached(cloud: Cloud, link: str, instance: str, *, now: bool) -> None:
    """Record in a disk that an instance (its link) has it, or no longer has it."""
    target = resources.from_link(link)
    disk = target.find(cloud)
    if disk is None:
        return
    users = [user for user in disk.get("users", []) if user != instance]
    stamp = timestamp(cloud.clock.now())
    if now:
        disk = {**disk, "users": [*users, instance], "lastAttachTimestamp": stamp}
    else:
        disk = {**disk, "users": users, "lastDetachTimestamp": stamp}
        if not users:
            del disk["users"]
    resources.put(cloud, target, disk)


def remove(cloud: Cloud, link: str) -> None:
    """Delete the disk of a link, with the backend's files."""
    target = resources.from_link(link)
    disk = target.find(cloud)
    if disk is not None:
        cloud.backend.delete_disk(disk)
        resources.drop(cloud, target)
