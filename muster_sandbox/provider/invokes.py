"""Functions that a program asks the provider for: `gcp.compute.get_image` and the like.

They run in previews too.
"""

from collections.abc import Callable, Mapping
from typing import Any

from muster_sandbox.provider.links import last, number
from muster_sandbox.provider.rest import CloudError, Rest

Arguments = Mapping[str, Any]


def client_config(rest: Rest, arguments: Arguments) -> dict[str, Any]:
    """Project, region and zone of the stack; no call."""
    names = {"project": "GOOGLE_PROJECT", "region": "GOOGLE_REGION", "zone": "GOOGLE_ZONE"}
    found = {name: rest.setting(name, variable) or "" for name, variable in names.items()}
    return {**found, "id": "projects/{project}/regions/{region}/zones/{zone}".format(**found)}


def image(rest: Rest, arguments: Arguments) -> dict[str, Any]:
    """An image by name, or the newest of a family."""
    project = arguments.get("project") or rest.project
    if arguments.get("family"):
        path = f"projects/{project}/global/images/family/{arguments['family']}"
    else:
        path = f"projects/{project}/global/images/{arguments['name']}"
    found = rest.call("GET", "compute", path)
    return {
        "archiveSizeBytes": number(found.get("archiveSizeBytes")),
        "creationTimestamp": found.get("creationTimestamp", ""),
        "description": found.get("description", ""),
        "diskSizeGb": number(found.get("diskSizeGb")),
        "family": found.get("family", ""),
        "id": f"projects/{project}/global/images/{found['name']}",
        "imageId": str(found.get("id", "")),
        "labels": found.get("labels", {}),
        "licenses": found.get("licenses", []),
        "name": found["name"],
        "project": project,
        "selfLink": found.get("selfLink", ""),
        "status": found.get("status", ""),
    }


def zones(rest: Rest, arguments: Arguments) -> dict[str, Any]:
    """The zones of a region that are up."""
    project = arguments.get("project") or rest.project
    region = arguments.get("region") or rest.region
    path = f"projects/{project}/zones"
    link = f"{rest.base('compute')}projects/{project}/regions/{region}"
    listed = rest.call("GET", "compute", path, query={"filter": f'(region eq "{link}")'})
    status = arguments.get("status")
    names = [
        item["name"]
        for item in listed.get("items", [])
        if last(item["region"]) == region and status in (None, item.get("status"))
    ]
    return {"id": f"projects/{project}/regions/{region}", "names": sorted(names)}


def project(rest: Rest, arguments: Arguments) -> dict[str, Any]:
    """A project and its billing account."""
    name = arguments.get("projectId") or rest.project
    found = rest.call("GET", "resource_manager", f"projects/{name}")
    billing = rest.call("GET", "cloud_billing", f"projects/{name}/billingInfo")
    return {
        "billingAccount": last(billing.get("billingAccountName", "")),
        "effectiveLabels": found.get("labels", {}),
        "id": f"projects/{name}",
        "labels": found.get("labels", {}),
        "name": found.get("name", ""),
        "number": str(found.get("projectNumber", "")),
        "projectId": name,
        "pulumiLabels": found.get("labels", {}),
    }


FUNCTIONS: dict[str, Callable[[Rest, Arguments], dict[str, Any]]] = {
    "gcp:compute/getImage:getImage": image,
    "gcp:compute/getZones:getZones": zones,
    "gcp:organizations/getClientConfig:getClientConfig": client_config,
    "gcp:organizations/getProject:getProject": project,
}


def invoke(rest: Rest, token: str, arguments: Arguments) -> dict[str, Any]:
    """Run a function.

    Raises:
        CloudError: the double doesn't know it, or the cloud refused.

    """
    if token not in FUNCTIONS:
        raise CloudError(
            "the test double has no such function: add it to muster_sandbox/provider/invokes.py"
        )
    return FUNCTIONS[token](rest, arguments)
