"""Functions that a program calls through the provider: `gcp.compute.get_image` and the like.

They also run in previews.
"""

from collections.abc import Callable, Mapping
from typing import Any

from muster_sandbox.provider.links import last, number
from muster_sandbox.provider.rest import CloudError, Rest

Arguments = Mapping[str, Any]


def client_config(rest: Rest, arguments: Arguments) -> dict[str, Any]:
    """Project, region and zone of the stack; no call."""
    names = {"project": "GOOGLE_PROJECT", "region": "GOOGLE_REGION", "zone": "GOOGLE_ZONE"}
    settings = {name: rest.setting(name, variable) or "" for name, variable in names.items()}
    return {**settings, "id": "projects/{project}/regions/{region}/zones/{zone}".format(**settings)}


def image(rest: Rest, arguments: Arguments) -> dict[str, Any]:
    """An image by name, or the newest of a family."""
    project = arguments.get("project") or rest.project
    if arguments.get("family"):
        path = f"projects/{project}/global/images/family/{arguments['family']}"
    else:
        path = f"projects/{project}/global/images/{arguments['name']}"
    answer = rest.call("GET", "compute", path)
    return {
        "archiveSizeBytes": number(answer.get("archiveSizeBytes")),
        "creationTimestamp": answer.get("creationTimestamp", ""),
        "description": answer.get("description", ""),
        "diskSizeGb": number(answer.get("diskSizeGb")),
        "family": answer.get("family", ""),
        "id": f"projects/{project}/global/images/{answer['name']}",
        "imageId": str(answer.get("id", "")),
        "labels": answer.get("labels", {}),
        "licenses": answer.get("licenses", []),
        "name": answer["name"],
        "project": project,
        "selfLink": answer.get("selfLink", ""),
        "status": answer.get("status", ""),
    }


def zones(rest: Rest, arguments: Arguments) -> dict[str, Any]:
    """The zones of a region with status UP."""
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
    answer = rest.call("GET", "resource_manager", f"projects/{name}")
    billing = rest.call("GET", "cloud_billing", f"projects/{name}/billingInfo")
    return {
        "billingAccount": last(billing.get("billingAccountName", "")),
        "effectiveLabels": answer.get("labels", {}),
        "id": f"projects/{name}",
        "labels": answer.get("labels", {}),
        "name": answer.get("name", ""),
        "number": str(answer.get("projectNumber", "")),
        "projectId": name,
        "pulumiLabels": answer.get("labels", {}),
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
        CloudError: the stand-in doesn't know it, or the cloud refused.

    """
    if token not in FUNCTIONS:
        raise CloudError(
            "the stand-in has no such function: add it to muster_sandbox/provider/invokes.py"
        )
    return FUNCTIONS[token](rest, arguments)
