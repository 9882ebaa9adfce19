"""Images: made from disks, found by family.

https://cloud.google.com/compute/docs/reference/rest/v1/images
"""

from muster_sandbox.fakecloud import families
from muster_sandbox.fakecloud.api_errors import ApiError, invalid, not_found
from muster_sandbox.fakecloud.call import Call, handler, prepare
from muster_sandbox.fakecloud.clock import timestamp
from muster_sandbox.fakecloud.cloud import Cloud
from muster_sandbox.fakecloud.families import READY
from muster_sandbox.fakecloud.http import Resource
from muster_sandbox.fakecloud.injected_faults import OperationError
from muster_sandbox.fakecloud.operations import Finish, begin, new_id, work
from muster_sandbox.fakecloud.places import ANY_ZONE
from muster_sandbox.fakecloud.services.compute import labels, resources
from muster_sandbox.fakecloud.services.compute.resources import Kind, Reference

IMAGE = Kind("images", "image", "global")
DISK = Kind("disks", "disk", "zone")

# Family -> (project, name, size in GB, architecture): those that Muster's machines start from.
# https://cloud.google.com/compute/docs/images/os-details
PUBLIC = {
    "debian-12": ("debian-cloud", "debian-12-bookworm-v20261110", "10"),
    "debian-13": ("debian-cloud", "debian-13-trixie-v20261110", "10"),
    "ubuntu-2404-lts-amd64": ("ubuntu-os-cloud", "ubuntu-2404-noble-amd64-v20261112", "10"),
}

resources.serve(IMAGE, "get", "list")
labels.serve(IMAGE)


@prepare
def publish(cloud: Cloud) -> None:
    """Put the public images into a cloud that doesn't have them."""
    for family, (project, name, size) in PUBLIC.items():
        target = Reference(project, "global", IMAGE.collection, name)
        if target.find(cloud) is None:
            image = {
                "kind": "compute#image",
                "id": new_id(),
                "name": name,
                "family": family,
                "creationTimestamp": timestamp(cloud.clock.now()),
                "selfLink": target.link,
                "status": READY,
                "sourceType": "RAW",
                "diskSizeGb": size,
                "archiveSizeBytes": "1000000000",
                "architecture": "X86_64",
                "guestOsFeatures": [{"type": "UEFI_COMPATIBLE"}, {"type": "GVNIC"}],
            }
            resources.put(cloud, target, labels.labelled(image))


def concrete(call: Call, text: str, field: str) -> Resource:
    """The image that a field names, directly or by family; it must be ready."""
    named = families.named(text)
    if named:
        project = call.cloud.project_id(named[0] or call.project)
        image = families.newest(call.cloud, project, named[1])
        if image is None:
            raise invalid(
                f"Invalid value for field '{field}': '{text}'. The referenced image resource "
                "cannot be found."
            )
        return image
    target, image = resources.referenced(call, text, IMAGE, field)
    if image["status"] != READY:
        raise ApiError(400, "resourceNotReady", f"The resource '{target.path}' is not ready")
    return image


@handler("compute.images.getFromFamily")
def get_from_family(call: Call) -> Resource:
    """The newest image of a family."""
    return _newest(call, "global/images/family")


@handler("compute.imageFamilyViews.get")
def get_family_view(call: Call) -> Resource:
    """The newest image of a family as a zone sees it, or any zone ("-")."""
    zone = call.parameters["zone"]
    if zone != ANY_ZONE:
        resources.location(call)
    return {"image": _newest(call, f"zones/{zone}/imageFamilyViews")}


def _newest(call: Call, place: str) -> Resource:
    family = call.parameters["family"]
    image = families.newest(call.cloud, call.project, family)
    if image is None:
        raise not_found(f"projects/{call.project}/{place}/{family}")
    return image


@handler("compute.images.insert")
def insert(call: Call) -> Resource:
    """Make an image of a disk that no running machine has (unless forced), or of a file."""
    body = resources.body(call)
    sources = body.keys() & {"sourceDisk", "rawDisk", "sourceImage", "sourceSnapshot"}
    if len(sources) != 1:
        raise invalid("Invalid value for field 'resource': ''. Exactly one source must be given.")
    body = {"sourceType": "RAW", "archiveSizeBytes": "0", "diskSizeGb": "10", **body}
    disk: Resource | None = None
    if "sourceDisk" in body:
        where, disk = resources.referenced(call, body["sourceDisk"], DISK, "resource.sourceDisk")
        if call.query.get("forceCreate") != "true":
            _refuse_running(call.cloud, where, disk)
        body |= {"sourceDisk": where.link, "sourceDiskId": disk["id"]}
        body |= {"diskSizeGb": disk["sizeGb"], "architecture": disk.get("architecture", "X86_64")}
    elif "sourceImage" in body:
        source = concrete(call, body["sourceImage"], "resource.sourceImage")
        body |= {"sourceImage": source["selfLink"], "sourceImageId": source["id"]}
        body |= {"diskSizeGb": source["diskSizeGb"]}
    target, image = resources.new(call, IMAGE, {**body, "status": "PENDING"})
    return resources.insert(call, target, labels.labelled(image), work="make_image")


def _refuse_running(cloud: Cloud, where: Reference, disk: Resource) -> None:
    for user in disk.get("users", []):
        instance = cloud.store.get("compute.instances", where.scope, user.rpartition("/")[2])
        if instance is not None and instance["status"] != "TERMINATED":
            raise ApiError(
                400,
                "resourceInUseByAnotherResource",
                f"The disk resource '{where.path}' is already being used by "
                f"'{user.partition('/v1/')[2]}'",
            )


def _take_back(cloud: Cloud, arguments: Resource) -> None:
    resources.drop(cloud, resources.from_arguments(arguments))


@work("make_image", undo=_take_back)
def _make(cloud: Cloud, arguments: Resource, finish: Finish) -> None:
    target = resources.from_arguments(arguments)
    image = target.find(cloud)
    if image is None:
        finish(OperationError("RESOURCE_NOT_FOUND", f"{target.path} was deleted", 404, "NOT FOUND"))
        return

    def done(problem: str) -> None:
        if problem:
            finish(OperationError("INTERNAL_ERROR", problem, 500, "INTERNAL ERROR"))
            return
        present = target.find(cloud)
        if present is not None:
            resources.put(cloud, target, {**present, "status": READY})
        finish(None)

    source = image.get("sourceDisk")
    if source is None:
        done("")
        return
    project, _, rest = source.partition("/projects/")[2].partition("/")
    zone, _, name = rest.rpartition("/disks/")
    disk = Reference(project, zone, DISK.collection, name).find(cloud)
    if disk is None:
        done(f"the disk {source} was deleted")
    else:
        cloud.backend.create_image(image, disk, done)


@handler("compute.images.delete")
def delete(call: Call) -> Resource:
    """Delete an image; disks made from it stay."""
    target, image = resources.existing(call, IMAGE)
    return begin(
        call,
        "delete",
        target.location,
        target.path,
        image["id"],
        work="delete_image",
        arguments=resources.as_arguments(target, image),
    )


@work("delete_image")
def _delete(cloud: Cloud, arguments: Resource, finish: Finish) -> None:
    target = resources.from_arguments(arguments)
    image = target.find(cloud)
    if image is not None:
        cloud.backend.delete_image(image)
    resources.drop(cloud, target)
    finish(None)
