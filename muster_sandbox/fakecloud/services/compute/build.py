"""From the body of an insert to an instance and its new disks.

https://cloud.google.com/compute/docs/reference/rest/v1/instances/insert
"""

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Any

from muster.catalog.machine_types import MachineType, machine_types
from muster_sandbox.fakecloud.api_errors import in_use, invalid
from muster_sandbox.fakecloud.call import Call
from muster_sandbox.fakecloud.clock import timestamp
from muster_sandbox.fakecloud.http import Resource
from muster_sandbox.fakecloud.operations import LINK
from muster_sandbox.fakecloud.places import region_of
from muster_sandbox.fakecloud.resource_names import ACCOUNTS
from muster_sandbox.fakecloud.services.compute import (
    accelerators,
    addresses,
    defaults,
    disks,
    labels,
    resources,
    scratch,
)
from muster_sandbox.fakecloud.services.compute.images import DISK
from muster_sandbox.fakecloud.services.compute.networks import NETWORK, SUBNETWORK
from muster_sandbox.fakecloud.services.compute.policies import POLICY
from muster_sandbox.fakecloud.services.compute.resources import Kind, Reference
from muster_sandbox.fakecloud.services.compute.templates import TEMPLATE
from muster_sandbox.fakecloud.usage import shape_of

INSTANCE = Kind("instances", "instance", "zone")


@dataclass(frozen=True, slots=True)
class Built:
    """An instance that isn't stored yet, its new disks, and the existing disks that it attaches."""

    target: Reference
    instance: Resource
    new_disks: list[tuple[Reference, Resource]]
    taken_disks: list[str]


def build(call: Call, body: Resource) -> Built:
    """Make an instance of a body that is merged with its template; ApiError for an invalid one.

    Addresses are chosen here, so call `store` before building the next instance.
    """
    target, instance = resources.new(call, INSTANCE, body)
    instance |= {
        "status": "PROVISIONING",
        "machineType": machine_type_link(call, body.get("machineType", "")),
        "cpuPlatform": "Intel Broadwell",
        "metadata": labels.metadata(body.get("metadata", {}), "resource.metadata"),
        "tags": labels.tags(body.get("tags", {})),
        "canIpForward": body.get("canIpForward", False),
        "deletionProtection": body.get("deletionProtection", False),
        "startRestricted": False,
        "networkInterfaces": _interfaces(call, body.get("networkInterfaces", [])),
        "shieldedInstanceConfig": {
            "enableSecureBoot": False,
            "enableVtpm": True,
            "enableIntegrityMonitoring": True,
            **body.get("shieldedInstanceConfig", {}),
        },
        "shieldedInstanceIntegrityPolicy": {"updateAutoLearnPolicy": True},
    }
    if body.get("guestAccelerators"):
        instance["guestAccelerators"] = accelerators.attached(
            call, body["guestAccelerators"], body["machineType"]
        )
    instance["scheduling"] = scheduling(body.get("scheduling", {}), shape_of(instance))
    if "serviceAccounts" in body:
        instance["serviceAccounts"] = service_accounts(call, body["serviceAccounts"])
    if "resourcePolicies" in body:
        instance["resourcePolicies"] = _policies(call, body["resourcePolicies"])
    attached, made, taken = _disks(call, target, body.get("disks", []))
    scratch.refuse_number(body["machineType"], attached)
    instance["disks"] = attached
    instance = labels.labelled(instance)
    instance["fingerprint"] = labels.fingerprint([instance["id"], instance["metadata"]])
    return Built(target, instance, made, taken)


def from_template(call: Call, reference: str, body: Resource) -> Resource:
    """A template's properties, each replaced as a whole by the body's member of that name.

    https://cloud.google.com/compute/docs/instances/create-vm-from-instance-template#override
    """
    _, template = resources.referenced(call, reference, TEMPLATE, "sourceInstanceTemplate")
    properties = template["properties"]
    # Its fingerprint is the template's, and read-only.
    metadata = {"items": properties["metadata"].get("items", [])}
    return {**properties, "metadata": metadata, **body}


def machine_type_link(call: Call, text: str) -> str:
    """The link of a machine type; 400 if the zone doesn't have it."""
    name = text.rpartition("/")[2]
    place = resources.location(call)
    given = text.partition("zones/")[2].partition("/")[0]
    if name not in machine_types() or (given and f"zones/{given}" != place):
        raise invalid(
            f"Invalid value for field 'resource.machineType': '{text}'. "
            f"Machine type with name '{name}' does not exist in zone '{place[6:]}'."
        )
    return f"{LINK}projects/{call.project}/{place}/machineTypes/{name}"


def scheduling(given: Resource, shape: MachineType | None) -> Resource:
    """An instance's scheduling, with the defaults of a spot or of a standard one.

    https://cloud.google.com/compute/docs/instances/create-use-spot
    """
    spot = defaults.is_spot(given)
    if spot and (given.get("automaticRestart") or given.get("onHostMaintenance") == "MIGRATE"):
        raise invalid(
            "Invalid value for field 'scheduling': Scheduling must have automaticRestart be false "
            "and onHostMaintenance be TERMINATE when the instance is preemptible."
        )
    if shape and shape.gpus and not spot and given.get("onHostMaintenance") != "TERMINATE":
        raise invalid("Instances with guest accelerators do not support live migration.")
    return defaults.scheduling(given)


def service_accounts(call: Call, given: list[Resource]) -> list[Resource]:
    """The accounts of an instance: at most one; "default" is the project's default account."""
    if len(given) > 1:
        raise invalid("Invalid value for field 'serviceAccounts': at most one service account.")
    number = call.cloud.settings.project_number
    default = f"{number}-compute@developer.gserviceaccount.com"
    accounts = [
        {
            "email": default if account.get("email", "default") == "default" else account["email"],
            "scopes": account.get("scopes", []),
        }
        for account in given
    ]
    for account in accounts:
        if call.cloud.store.get(ACCOUNTS, call.project, account["email"]) is None:
            raise invalid(
                f"The resource '{account['email']}' of type 'serviceAccount' was not found."
            )
    return accounts


def _policies(call: Call, given: list[str]) -> list[str]:
    field = "resource.resourcePolicies"
    return [resources.referenced(call, text, POLICY, field)[0].link for text in given]


def _interfaces(call: Call, given: list[Resource]) -> list[Resource]:
    if not given:
        raise invalid(
            "Invalid value for field 'resource.networkInterfaces': ''. "
            "At least one network interface is required."
        )
    return [interface(call, entry, number) for number, entry in enumerate(given)]


def interface(call: Call, given: Resource, number: int) -> Resource:
    """A network interface with an address of its subnet."""
    field = f"resource.networkInterfaces[{number}]"
    subnet, subnetwork = _subnet(call, given, field)
    chosen = _internal_address(call, given.get("networkIP"), subnet, subnetwork)
    resource = {
        "kind": "compute#networkInterface",
        "stackType": "IPV4_ONLY",
        **given,
        "name": f"nic{number}",
        "network": subnetwork["network"],
        "subnetwork": subnet.link,
        "networkIP": chosen,
    }
    if given.get("accessConfigs"):
        resource["accessConfigs"] = [
            access_config(call, config) for config in given["accessConfigs"]
        ]
    resource["fingerprint"] = labels.fingerprint([resource["subnetwork"], chosen])
    return resource


def _subnet(call: Call, given: Mapping[str, Any], field: str) -> tuple[Reference, Resource]:
    text = given.get("subnetwork")
    if text is None:
        if "network" in given:
            resources.referenced(call, given["network"], NETWORK, f"{field}.network")
        raise invalid(
            f"Invalid value for field '{field}': Network interface must specify a subnet if the "
            "network resource is in custom subnet mode."
        )
    region = region_of(call.parameters["zone"])
    subnet, subnetwork = resources.referenced(call, text, SUBNETWORK, f"{field}.subnetwork")
    if subnet.location != f"regions/{region}":
        raise invalid(
            f"Invalid value for field '{field}.subnetwork': '{text}'. Cross region referencing is "
            "not allowed for this resource."
        )
    if "network" in given:
        network, _ = resources.referenced(call, given["network"], NETWORK, f"{field}.network")
        if network.link != subnetwork["network"]:
            raise invalid(
                f"Invalid value for field '{field}': '{text}'. The subnetwork is not in the "
                f"network '{given['network']}'."
            )
    return subnet, subnetwork


def _internal_address(
    call: Call, wanted: str | None, subnet: Reference, subnetwork: Resource
) -> str:
    cloud = call.cloud
    network = IPv4Network(subnetwork["ipCidrRange"])
    if wanted is None:
        return addresses.choose(cloud, subnet.link, network, None)
    if "/" in wanted:
        # The link of a reserved address.
        field = "resource.networkInterfaces.networkIP"
        wanted = str(resources.referenced(call, wanted, addresses.ADDRESS, field)[1]["address"])
    user = cloud.usage.addresses.get(subnet.link, {}).get(wanted)
    if user is not None:
        raise invalid(
            f"IP_IN_USE_BY_ANOTHER_RESOURCE: IP '{wanted}' is already being used by "
            f"another resource '{user.removeprefix(LINK)}'."
        )
    if wanted in addresses.reserved(cloud, subnet.link):
        return wanted
    return addresses.choose(cloud, subnet.link, network, wanted)


def access_config(call: Call, given: Resource) -> Resource:
    """An external address for an interface: the reserved one that is given, or any."""
    cloud = call.cloud
    wanted = given.get("natIP")
    taken = cloud.usage.addresses.get("external", {})
    if wanted is None:
        wanted = addresses.choose(cloud, "external", addresses.EXTERNAL, None)
    elif wanted in taken or wanted not in addresses.reserved(cloud, "external"):
        raise invalid(
            f"Invalid value for field 'natIP': '{wanted}'. The specified external IP address "
            f"'{wanted}' was not found or is in use."
        )
    return {
        **defaults.ACCESS_CONFIG,
        "name": "External NAT",
        **given,
        "natIP": wanted,
    }


def _disks(
    call: Call, target: Reference, given: list[Resource]
) -> tuple[list[Resource], list[tuple[Reference, Resource]], list[str]]:
    """Attached disks, new disks, and links of existing disks."""
    if not given or not any(disk.get("boot", number == 0) for number, disk in enumerate(given)):
        raise invalid("Invalid value for field 'resource.disks': ''. Boot disk must be specified.")
    attached: list[Resource] = []
    made: list[tuple[Reference, Resource]] = []
    taken: list[str] = []
    for number, disk in enumerate(given):
        if disk.get("type") == "SCRATCH":
            attached.append(attachment(scratch.named(disk, attached), "", scratch.SIZE_GB, number))
        elif "source" in disk:
            where, existing = resources.referenced(
                call, disk["source"], DISK, f"resource.disks[{number}].source"
            )
            refuse_writers(where, existing, disk)
            taken.append(where.link)
            attached.append(attachment(disk, where.link, existing["sizeGb"], number))
        else:
            fresh = _new_disk(call, target.name, disk, number)
            made.append(fresh)
            attached.append(
                {
                    **attachment(disk, fresh[0].link, fresh[1]["sizeGb"], number),
                    "architecture": fresh[1].get("architecture", "X86_64"),
                }
            )
    return attached, made, taken


def refuse_writers(where: Reference, disk: Resource, attaching: Resource) -> None:
    """400 if another instance has the disk, unless both only read it."""
    users = disk.get("users", [])
    if users and attaching.get("mode", "READ_WRITE") == "READ_WRITE":
        raise in_use(where.path, users[0].removeprefix(LINK))


def _new_disk(
    call: Call, instance: str, given: Resource, number: int
) -> tuple[Reference, Resource]:
    parameters = given.get("initializeParams", {})
    if number == 0 and not parameters.keys() & {"sourceImage", "sourceSnapshot"}:
        raise invalid(
            "Invalid value for field 'resource.disks[0]': ''. Boot disk must have a source."
        )
    name = parameters.get("diskName") or (instance if number == 0 else f"{instance}-{number}")
    copied = {"sourceImage", "sourceSnapshot", "labels", "resourcePolicies", "description"}
    body = {key: value for key, value in parameters.items() if key in copied}
    if "diskSizeGb" in parameters:
        body["sizeGb"] = parameters["diskSizeGb"]
    return disks.new(
        call, {**body, "name": name, "type": parameters.get("diskType", "pd-standard")}
    )


def attachment(given: Resource, link: str, size_gb: str, number: int) -> Resource:
    """A disk as it is listed in an instance."""
    kept = {key: value for key, value in given.items() if key != "initializeParams"}
    entry = {
        **defaults.ATTACHED_DISK,
        "deviceName": f"persistent-disk-{number}",
        "boot": number == 0,
        "autoDelete": False,
        "interface": "SCSI",
        **kept,
        "index": number,
        "diskSizeGb": size_gb,
    }
    return {**entry, "source": link} if link else entry


def store(call: Call, built: Built) -> None:
    """Store a built instance and its disks."""
    cloud = call.cloud
    for where, disk in built.new_disks:
        resources.put(cloud, where, {**disk, "users": [built.target.link]})
    for link in built.taken_disks:
        disks.attached(cloud, link, built.target.link, now=True)
    stamp = timestamp(cloud.clock.now())
    resources.put(cloud, built.target, {**built.instance, "lastStartTimestamp": stamp})
