"""What a machine's metadata server has: a tree of directories and values.

https://cloud.google.com/compute/docs/metadata/predefined-metadata-keys. A directory is a dict, a
list or a `Values` (whose keys are the user's and stay as they are); everything else is a value.
"""

import json
from ipaddress import IPv4Network
from typing import Any

from muster_sandbox.fakecloud.cloud import Cloud
from muster_sandbox.fakecloud.http import Resource
from muster_sandbox.fakecloud.services.compute.lifecycle import GUEST_ATTRIBUTES
from muster_sandbox.fakecloud.services.compute.resources import Reference, from_link
from muster_sandbox.fakecloud.usage import last


class Values(dict[str, Any]):
    """A directory whose names the user chose: attributes."""


def find(cloud: Cloud, address: str) -> tuple[Reference, Resource] | None:
    """The instance with this internal address, unless it is off."""
    for where, taken in cloud.usage.addresses.items():
        if where != "external" and address in taken:
            target = from_link(taken[address])
            instance = target.find(cloud)
            if instance is not None and instance["status"] != "TERMINATED":
                return target, instance
    return None


def attributes(instance: Resource) -> dict[str, str]:
    """The instance's own metadata."""
    return {item["key"]: item["value"] for item in instance["metadata"].get("items", [])}


def tree(cloud: Cloud, target: Reference, instance: Resource) -> dict[str, Any]:
    """All of /computeMetadata/v1/ except tokens, which are issued on request."""
    number = cloud.settings.project_number
    zone = last(instance["zone"])
    return {
        "instance": {
            "attributes": Values(attributes(instance)),
            "cpu-platform": instance["cpuPlatform"],
            "description": instance.get("description", ""),
            "disks": [_disk(disk) for disk in instance["disks"]],
            "guest-attributes": _guest_attributes(cloud, target, instance),
            "hostname": instance.get("hostname")
            or f"{instance['name']}.{zone}.c.{target.project}.internal",
            "id": int(instance["id"]),
            "image": _image(cloud, instance),
            "machine-type": f"projects/{number}/machineTypes/{last(instance['machineType'])}",
            "maintenance-event": "NONE",
            "name": instance["name"],
            "network-interfaces": [
                _interface(cloud, interface, number) for interface in instance["networkInterfaces"]
            ],
            "preempted": _upper(target.link in cloud.preempted),
            "scheduling": {
                "automatic-restart": _upper(instance["scheduling"]["automaticRestart"]),
                "on-host-maintenance": instance["scheduling"]["onHostMaintenance"],
                "preemptible": _upper(instance["scheduling"]["preemptible"]),
            },
            "service-accounts": _accounts(instance),
            "tags": Json(instance["tags"].get("items", [])),
            "zone": f"projects/{number}/zones/{zone}",
        },
        "project": {
            "attributes": Values(),
            "numeric-project-id": int(number),
            "project-id": target.project,
        },
    }


class Json(list[Any]):
    """A value that is a JSON list, as tags are, not a directory."""


class Lines(Json):
    """A list that becomes lines in an answer as text."""


def _upper(value: bool) -> str:
    return "TRUE" if value else "FALSE"


def _disk(disk: Resource) -> dict[str, Any]:
    kind = "LOCAL-SSD" if disk["type"] == "SCRATCH" else "PERSISTENT"
    return {
        "device-name": disk["deviceName"],
        "index": disk["index"],
        "interface": disk["interface"],
        "mode": disk["mode"],
        "type": kind,
    }


def _image(cloud: Cloud, instance: Resource) -> str:
    """The image of the boot disk, projects/P/global/images/N."""
    for disk in instance["disks"]:
        if disk["boot"] and "source" in disk:
            scope: str = "/".join(disk["source"].partition("/projects/")[2].split("/")[:3])
            resource = cloud.store.get("compute.disks", scope, last(disk["source"])) or {}
            image: str = resource.get("sourceImage", "")
            return "projects/" + image.partition("/projects/")[2]
    return ""


def _interface(cloud: Cloud, interface: Resource, number: str) -> dict[str, Any]:
    _, _, rest = interface["subnetwork"].partition("/projects/")
    project, region, name = rest.split("/")[0], rest.split("/")[2], rest.split("/")[4]
    subnet = cloud.store.get("compute.subnetworks", f"{project}/regions/{region}", name) or {}
    network = IPv4Network(subnet["ipCidrRange"])
    lan = cloud.store.get("compute.networks", f"{project}/global", last(interface["network"])) or {}
    return {
        "access-configs": [
            {"external-ip": access["natIP"], "type": access["type"]}
            for access in interface.get("accessConfigs", [])
        ],
        "dns-servers": Json(["169.254.169.254"]),
        "gateway": subnet["gatewayAddress"],
        "ip": interface["networkIP"],
        "mtu": lan["mtu"],
        "network": f"projects/{number}/networks/{last(interface['network'])}",
        "subnetmask": str(network.netmask),
    }


def _accounts(instance: Resource) -> Values:
    """Each account twice, by email and as "default"; none where the instance has none."""
    accounts = Values()
    for account in instance.get("serviceAccounts", []):
        entry = {
            "aliases": Lines(["default"]),
            "email": account["email"],
            "scopes": Lines(account["scopes"]),
        }
        accounts["default"] = accounts[account["email"]] = entry
    return accounts


def enabled(instance: Resource) -> bool:
    """Whether the machine may report guest attributes.

    https://cloud.google.com/compute/docs/metadata/manage-guest-attributes
    """
    return attributes(instance).get("enable-guest-attributes", "").lower() == "true"


def _guest_attributes(cloud: Cloud, target: Reference, instance: Resource) -> Values:
    namespaces = Values()
    if enabled(instance):
        for name, attribute in cloud.store.within(
            GUEST_ATTRIBUTES, f"{target.scope}/{target.name}"
        ).items():
            namespace, _, key = name.partition("/")
            namespaces.setdefault(namespace, Values())[key] = attribute["value"]
    return namespaces


def walk(value: Any, parts: list[str]) -> Any:
    """The value at a path in the tree; KeyError if there is none."""
    for part in parts:
        if isinstance(value, list) and not isinstance(value, Json):
            try:
                value = value[int(part)]
            except (ValueError, IndexError) as error:
                raise KeyError(part) from error
        elif isinstance(value, dict):
            value = value[part]
        else:
            raise KeyError(part)
    return value


def is_directory(value: Any) -> bool:
    """Whether the value is a directory."""
    return isinstance(value, dict) or (isinstance(value, list) and not isinstance(value, Json))


def listing(directory: Any) -> str:
    """A directory as text: a line for each entry, directories with a slash."""
    names = range(len(directory)) if isinstance(directory, list) else sorted(directory)
    return "".join(f"{name}/\n" if is_directory(directory[name]) else f"{name}\n" for name in names)


def as_json(value: Any) -> Any:
    """A directory as JSON with all below it; Google's names become camelCase."""
    if isinstance(value, Json):
        return list(value)
    if isinstance(value, list):
        return [as_json(inner) for inner in value]
    if isinstance(value, Values):
        return {name: as_json(inner) for name, inner in value.items()}
    if isinstance(value, dict):
        return {_camel(name): as_json(inner) for name, inner in value.items()}
    return value


def _camel(name: str) -> str:
    first, *rest = name.split("-")
    return first + "".join(word.capitalize() for word in rest)


def as_text(value: Any, prefix: str = "") -> str:
    """A value as text; a directory as lines "path value" with all below it."""
    if not is_directory(value):
        return value_text(value)
    names = range(len(value)) if isinstance(value, list) else sorted(value)
    lines = []
    for name in names:
        inner = value[name]
        if is_directory(inner):
            lines.append(as_text(inner, f"{prefix}{name}/"))
        else:
            lines.append(f"{prefix}{name} {value_text(inner)}\n")
    return "".join(lines)


def value_text(value: Any) -> str:
    """A value as the body of an answer."""
    if isinstance(value, Lines):
        return "".join(f"{line}\n" for line in value)
    if isinstance(value, list):
        return json.dumps(value)
    return str(value)
