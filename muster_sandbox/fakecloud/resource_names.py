"""Canonical resource names for permissions, and the resources they inherit policies from.

One resource has several names: by project id or number, as an address, as a part of one. Policies
are stored by the canonical one, which errors name too: projects/<id>/zones/Z/instances/I.
"""

from typing import Any

from muster_sandbox.fakecloud import families
from muster_sandbox.fakecloud.api_errors import ApiError
from muster_sandbox.fakecloud.cloud import Cloud

ACCOUNTS = "iam.serviceAccounts"
"""The store's kind of service accounts; scope: project id, name: email."""

BUCKETS = "storage.buckets"
"""The store's kind of buckets; scope "", name: the bucket's, which is unique in the world."""

# Collection -> resource.type. Those that aren't here have no attributes in conditions, not even a
# name: https://cloud.google.com/iam/docs/conditions-resource-attributes#resource-type
TYPES = {
    "disks": "compute.googleapis.com/Disk",
    "firewalls": "compute.googleapis.com/Firewall",
    "images": "compute.googleapis.com/Image",
    "instanceTemplates": "compute.googleapis.com/InstanceTemplate",
    "instances": "compute.googleapis.com/Instance",
    "snapshots": "compute.googleapis.com/Snapshot",
    "buckets": "storage.googleapis.com/Bucket",
    "objects": "storage.googleapis.com/Object",
    "secrets": "secretmanager.googleapis.com/Secret",
    "versions": "secretmanager.googleapis.com/SecretVersion",
    "projects": "cloudresourcemanager.googleapis.com/Project",
}
TUNNELS = {
    "iap_tunnel": "iap.googleapis.com/Tunnel",
    "zones": "iap.googleapis.com/TunnelZone",
    "instances": "iap.googleapis.com/TunnelInstance",
}
BY_NUMBER = ("secretmanager.googleapis.com", "iap.googleapis.com")
"""Services whose resource.name in conditions holds the project's number, not its id."""


def default_account(cloud: Cloud) -> str:
    """The email of the account that instances get when "default" is asked for."""
    return f"{cloud.settings.project_number}-compute@developer.gserviceaccount.com"


def account_email(cloud: Cloud, name: str) -> str:
    """The email of an account given by email, unique id or "default"; unknown ones stay."""
    if name == "default":
        return default_account(cloud)
    if name.isdigit():
        for email, account in cloud.store.within(ACCOUNTS, cloud.settings.project).items():
            if account["uniqueId"] == name:
                return email
    return name


def find_bucket(cloud: Cloud, name: str) -> dict[str, Any]:
    """The bucket; 404 if it doesn't exist."""
    bucket = cloud.store.get(BUCKETS, "", name)
    if bucket is None:
        raise ApiError(404, "notFound", "The specified bucket does not exist.")
    return bucket


def canonical(cloud: Cloud, name: str) -> str:
    """The canonical name of the resource that `name` (an address, or a part of one) means.

    A family of images means its newest image; a family without one means an image of its name.
    """
    settings = cloud.settings
    at = name.find("projects/")
    name = name[at:] if at >= 0 else f"projects/{settings.project}/{name.lstrip('/')}"
    parts = name.split("/")
    if len(parts) > 3 and parts[2] == "serviceAccounts":
        return f"projects/{settings.project}/serviceAccounts/{account_email(cloud, parts[3])}"
    if parts[1] in {settings.project_number, "-"}:
        parts[1] = settings.project
    named = families.named("/".join(parts))
    if named:
        image = families.newest(cloud, *named)
        parts[2:] = ["global", "images", image["name"] if image else named[1]]
    return "/".join(parts)


def levels(cloud: Cloud, name: str) -> list[str]:
    """The canonical names whose policies apply to `name`: itself first, its project last."""
    parts = name.split("/")
    project = f"projects/{cloud.settings.project if parts[1] == '_' else parts[1]}"
    if len(parts) <= 2:
        return [project]
    if parts[2] in {"buckets", "secrets"}:
        return ["/".join(parts[:4]), project]
    if parts[2] == "iap_tunnel":
        tunnels = ["/".join(parts[:length]) for length in range(len(parts), 2, -2)]
        return [*tunnels, project]
    if parts[2] == "serviceAccounts":
        return ["/".join(parts[:4]), project]
    return [name, project]


def attributes(cloud: Cloud, name: str) -> dict[str, str]:
    """The attributes of a resource for conditions; all "" for types that have none."""
    parts = name.split("/")
    collection = parts[2] if len(parts) == 3 else parts[-2]
    if parts[1] == "_":
        collection = "objects" if len(parts) > 4 else "buckets"
    table = TUNNELS if len(parts) > 2 and parts[2] == "iap_tunnel" else TYPES
    kind = table.get(collection, "")
    service = kind.partition("/")[0]
    shown = name
    if service in BY_NUMBER:
        shown = "/".join(["projects", cloud.settings.project_number, *parts[2:]])
    return {
        "resource.name": shown if kind else "",
        "resource.type": kind,
        "resource.service": service,
    }
