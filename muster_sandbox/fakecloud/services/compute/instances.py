"""Reading instances and changing them while they exist.

https://cloud.google.com/compute/docs/reference/rest/v1/instances
"""

from muster_sandbox.fakecloud import byte_values
from muster_sandbox.fakecloud.api_errors import ApiError, invalid, not_found
from muster_sandbox.fakecloud.call import Call, handler
from muster_sandbox.fakecloud.http import Resource
from muster_sandbox.fakecloud.operations import LINK
from muster_sandbox.fakecloud.services.compute import build, disks, labels, resources
from muster_sandbox.fakecloud.services.compute.build import INSTANCE
from muster_sandbox.fakecloud.services.compute.images import DISK
from muster_sandbox.fakecloud.services.compute.lifecycle import GUEST_ATTRIBUTES
from muster_sandbox.fakecloud.services.compute.resources import Reference
from muster_sandbox.fakecloud.usage import shape_of

CONSOLE_BYTES = 1024 * 1024
"""Bytes of console output that are kept: .../docs/troubleshooting/viewing-serial-port-output."""

resources.serve(INSTANCE, "get", "list", "aggregatedList")


@handler("compute.instances.setLabels")
def set_labels(call: Call) -> Resource:
    """Replace the labels."""
    target, instance = resources.existing(call, INSTANCE)
    body = resources.body(call)
    labels.check(body.get("labelFingerprint"), instance["labelFingerprint"], "Labels")
    changed = labels.labelled({**instance, "labels": body.get("labels", {})})
    return resources.change(call, target, changed, "setLabels")


@handler("compute.instances.setMetadata")
def set_metadata(call: Call) -> Resource:
    """Replace the metadata; waits at the metadata server are answered."""
    target, instance = resources.existing(call, INSTANCE)
    body = resources.body(call)
    if not byte_values.same(body.get("fingerprint"), instance["metadata"]["fingerprint"]):
        raise ApiError(
            412,
            "conditionNotMet",
            "Supplied fingerprint does not match current metadata fingerprint.",
        )
    metadata = labels.metadata(body, "metadata")
    answer = resources.change(call, target, {**instance, "metadata": metadata}, "setMetadata")
    call.cloud.notify(target.link)
    return answer


@handler("compute.instances.setTags")
def set_tags(call: Call) -> Resource:
    """Replace the network tags."""
    target, instance = resources.existing(call, INSTANCE)
    body = resources.body(call)
    labels.check(body.get("fingerprint"), instance["tags"]["fingerprint"], "Tags")
    return resources.change(call, target, {**instance, "tags": labels.tags(body)}, "setTags")


@handler("compute.instances.setScheduling")
def set_scheduling(call: Call) -> Resource:
    """Replace the scheduling; whether the instance is spot can't be changed."""
    target, instance = resources.existing(call, INSTANCE)
    changed = build.scheduling(
        {**instance["scheduling"], **resources.body(call)}, shape_of(instance)
    )
    if changed["preemptible"] != instance["scheduling"]["preemptible"]:
        raise invalid("Invalid value for field 'preemptible': it can't be changed.")
    return resources.change(call, target, {**instance, "scheduling": changed}, "setScheduling")


@handler("compute.instances.setMachineType")
def set_machine_type(call: Call) -> Resource:
    """Change the machine type of an instance that is off."""
    target, instance = _off(call)
    link = build.machine_type_link(call, resources.body(call).get("machineType", ""))
    return resources.change(call, target, {**instance, "machineType": link}, "setMachineType")


@handler("compute.instances.setServiceAccount")
def set_service_account(call: Call) -> Resource:
    """Change the service account of an instance that is off; a body without one takes it away."""
    target, instance = _off(call)
    given = resources.body(call)
    changed = {name: value for name, value in instance.items() if name != "serviceAccounts"}
    if given.get("email") or given.get("scopes"):
        changed["serviceAccounts"] = build.service_accounts(call, [given])
    return resources.change(call, target, changed, "setServiceAccount")


def _off(call: Call) -> tuple[Reference, Resource]:
    target, instance = resources.existing(call, INSTANCE)
    if instance["status"] != "TERMINATED":
        raise invalid(f"Invalid resource state: '{target.path}' must be TERMINATED (stopped).")
    return target, instance


@handler("compute.instances.setDeletionProtection")
def set_deletion_protection(call: Call) -> Resource:
    """Set or clear the protection of the instance from deletion."""
    target, instance = resources.existing(call, INSTANCE)
    protected = call.query.get("deletionProtection", "true") == "true"
    changed = {**instance, "deletionProtection": protected}
    return resources.change(call, target, changed, "setDeletionProtection")


@handler("compute.instances.attachDisk")
def attach_disk(call: Call) -> Resource:
    """Attach an existing disk of the zone."""
    target, instance = resources.existing(call, INSTANCE)
    body = resources.body(call)
    where, disk = resources.referenced(call, body.get("source", ""), DISK, "resource.source")
    build.refuse_writers(where, disk, body)
    number = max((attached["index"] for attached in instance["disks"]), default=-1) + 1
    fresh = build.attachment({"boot": False, **body}, where.link, disk["sizeGb"], number)
    if any(attached["deviceName"] == fresh["deviceName"] for attached in instance["disks"]):
        raise invalid(
            f"Invalid value for field 'resource.deviceName': '{fresh['deviceName']}'. "
            "The device name is already in use."
        )
    disks.attached(call.cloud, where.link, target.link, now=True)
    changed = {**instance, "disks": [*instance["disks"], fresh]}
    return resources.change(call, target, changed, "attachDisk")


@handler("compute.instances.detachDisk")
def detach_disk(call: Call) -> Resource:
    """Detach the disk of a device name; the boot disk only while the instance is off."""
    target, instance = resources.existing(call, INSTANCE)
    gone = _device(call, instance)
    if gone["boot"] and instance["status"] != "TERMINATED":
        raise invalid("Invalid resource usage: 'Boot disk can't be detached while running'.")
    disks.attached(call.cloud, gone["source"], target.link, now=False)
    kept = [disk for disk in instance["disks"] if disk is not gone]
    return resources.change(call, target, {**instance, "disks": kept}, "detachDisk")


@handler("compute.instances.setDiskAutoDelete")
def set_disk_auto_delete(call: Call) -> Resource:
    """Set whether a disk is deleted with its instance."""
    target, instance = resources.existing(call, INSTANCE)
    chosen = _device(call, instance)
    auto_delete = call.query.get("autoDelete") == "true"
    attached = [
        {**disk, "autoDelete": auto_delete} if disk is chosen else disk
        for disk in instance["disks"]
    ]
    return resources.change(call, target, {**instance, "disks": attached}, "setDiskAutoDelete")


def _device(call: Call, instance: Resource) -> Resource:
    name = call.query.get("deviceName", "")
    disks: list[Resource] = [disk for disk in instance["disks"] if disk["deviceName"] == name]
    if not disks:
        raise invalid(
            f"Invalid value for field 'deviceName': '{name}'. No attached disk found with device "
            f"name '{name}'."
        )
    return disks[0]


@handler("compute.instances.addAccessConfig")
def add_access_config(call: Call) -> Resource:
    """Add an external address to an interface."""
    target, instance, number = _interface(call)
    interface = instance["networkInterfaces"][number]
    if interface.get("accessConfigs"):
        raise invalid("At most one access config currently supported.")
    access = build.access_config(call, resources.body(call))
    changed = {**interface, "accessConfigs": [access]}
    return _with_interface(
        call, target, instance, number, changed, operation_type="addAccessConfig"
    )


@handler("compute.instances.deleteAccessConfig")
def delete_access_config(call: Call) -> Resource:
    """Remove the external address from an interface."""
    target, instance, number = _interface(call)
    interface = dict(instance["networkInterfaces"][number])
    name = call.query.get("accessConfig", "")
    if name not in [access["name"] for access in interface.get("accessConfigs", [])]:
        raise invalid(f"Invalid value for field 'accessConfig': '{name}'. Not found.")
    del interface["accessConfigs"]
    return _with_interface(
        call, target, instance, number, interface, operation_type="deleteAccessConfig"
    )


def _interface(call: Call) -> tuple[Reference, Resource, int]:
    target, instance = resources.existing(call, INSTANCE)
    name = call.query.get("networkInterface", "")
    for number, interface in enumerate(instance["networkInterfaces"]):
        if interface["name"] == name:
            return target, instance, number
    raise invalid(f"Invalid value for field 'networkInterface': '{name}'. Not found.")


def _with_interface(
    call: Call,
    target: Reference,
    instance: Resource,
    number: int,
    interface: Resource,
    *,
    operation_type: str,
) -> Resource:
    interfaces = list(instance["networkInterfaces"])
    interfaces[number] = interface
    changed = {**instance, "networkInterfaces": interfaces}
    return resources.change(call, target, changed, operation_type)


@handler("compute.instances.setSecurityPolicy")
def set_security_policy(call: Call) -> Resource:
    """Remove a Cloud Armor policy, as Pulumi's provider does; setting one is not implemented."""
    target, instance = resources.existing(call, INSTANCE)
    if resources.body(call).get("securityPolicy"):
        raise ApiError(501, "notImplemented", "fakecloud has no security policies")
    return resources.change(call, target, instance, "setSecurityPolicy")


@handler("compute.instances.getSerialPortOutput")
def serial_output(call: Call) -> Resource:
    """The output on serial port 1 from byte `start` on; a negative `start` counts from the end."""
    target, instance = resources.existing(call, INSTANCE)
    output = call.cloud.backend.console(instance) if call.query.get("port", "1") == "1" else b""
    first = max(0, len(output) - CONSOLE_BYTES)
    wanted = int(call.query.get("start", 0))
    start = max(first, wanted if wanted >= 0 else len(output) + wanted)
    return {
        "kind": "compute#serialPortOutput",
        "selfLink": f"{target.link}/serialPort",
        "contents": output[start:].decode("utf-8", errors="replace"),
        "start": str(min(start, len(output))),
        "next": str(len(output)),
    }


@handler("compute.instances.getGuestAttributes")
def guest_attributes(call: Call) -> Resource:
    """The machine's guest attributes: one value, or all below a path."""
    target, instance = resources.existing(call, INSTANCE)
    enabled = {item["key"]: item["value"] for item in instance["metadata"].get("items", [])}
    attributes = call.cloud.store.within(GUEST_ATTRIBUTES, f"{target.scope}/{target.name}")
    key, path = call.query.get("variableKey"), call.query.get("queryPath", "")
    where = f"{target.path}/guestAttributes/{key or path}"
    answer: Resource = {
        "kind": "compute#guestAttributes",
        "selfLink": f"{LINK}{target.path}/getGuestAttributes",
    }
    if enabled.get("enable-guest-attributes", "").lower() != "true":
        raise not_found(where)
    if key is not None:
        if key not in attributes:
            raise not_found(where)
        return {**answer, "variableKey": key, "variableValue": attributes[key]["value"]}
    path = path.strip("/")
    items = [
        {
            "namespace": name.partition("/")[0],
            "key": name.partition("/")[2],
            "value": attribute["value"],
        }
        for name, attribute in sorted(attributes.items())
        if not path or name == path or name.startswith(f"{path}/")
    ]
    if not items:
        raise not_found(where)
    return {**answer, "queryPath": f"{path}/", "queryValue": {"items": items}}
