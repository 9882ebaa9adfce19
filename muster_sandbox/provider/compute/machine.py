"""The inputs that an instance and an instance template have in common."""

from collections.abc import Callable, Mapping
from typing import Any

from muster_sandbox.provider.fields import Field
from muster_sandbox.provider.links import (
    global_link,
    last,
    regional_link,
    relative,
    same_link,
    same_name,
    same_set,
)

STARTUP = "startup-script"

SCOPES = {
    "cloud-platform": "https://www.googleapis.com/auth/cloud-platform",
    "compute-ro": "https://www.googleapis.com/auth/compute.readonly",
    "compute-rw": "https://www.googleapis.com/auth/compute",
    "logging-write": "https://www.googleapis.com/auth/logging.write",
    "monitoring-write": "https://www.googleapis.com/auth/monitoring.write",
    "storage-ro": "https://www.googleapis.com/auth/devstorage.read_only",
    "storage-rw": "https://www.googleapis.com/auth/devstorage.read_write",
}
"""Short names; https://cloud.google.com/sdk/gcloud/reference/compute/instances/create#--scopes"""


def full_scopes(given: Any) -> Any:
    """Return scopes as URLs."""
    return [SCOPES.get(scope, scope) for scope in given or []]


def access_fields(*, replace: bool) -> dict[str, Field]:
    """Return the table of a network interface's public address."""
    return {
        "natIp": Field(api="natIP", computed=True, replace=replace),
        "networkTier": Field(computed=True, replace=replace),
    }


def interface_fields(*, replace: bool) -> dict[str, Field]:
    """Return the table of a network interface.

    Args:
        replace: a change of its access configuration replaces the machine (templates).

    """
    return {
        "accessConfigs": Field(many=True, replace=replace, fields=access_fields(replace=replace)),
        "name": Field(computed=True, replace=True),
        "network": Field(computed=True, replace=True, same=same_link),
        "networkIp": Field(api="networkIP", computed=True, replace=True),
        "nicType": Field(replace=True, computed=True),
        "queueCount": Field(replace=True),
        "stackType": Field(computed=True, replace=replace),
        "subnetwork": Field(computed=True, replace=True, same=same_link),
    }


def scheduling_fields(*, replace: bool) -> dict[str, Field]:
    """Return the table of scheduling."""
    return {
        "automaticRestart": Field(default=True, replace=replace),
        "instanceTerminationAction": Field(replace=replace),
        "maxRunDuration": Field(
            replace=True,
            fields={
                "nanos": Field(replace=True),
                "seconds": Field(replace=True, send=str, receive=int),
            },
        ),
        "onHostMaintenance": Field(computed=True, replace=replace),
        "preemptible": Field(default=False, replace=True),
        "provisioningModel": Field(computed=True, replace=True),
    }


def common_fields(*, replace: bool) -> dict[str, Field]:
    """Return the inputs that an instance and a template share.

    Args:
        replace: every change replaces the resource (templates).

    """
    return {
        "advancedMachineFeatures": Field(
            replace=True,
            fields={
                "enableNestedVirtualization": Field(replace=True),
                "threadsPerCore": Field(replace=True),
                "visibleCoreCount": Field(replace=True),
            },
        ),
        "canIpForward": Field(default=False, replace=True),
        "guestAccelerators": Field(
            many=True,
            computed=True,
            replace=True,
            fields={
                "count": Field(api="acceleratorCount", replace=True),
                "type": Field(api="acceleratorType", replace=True, same=same_name),
            },
        ),
        "labels": Field(replace=replace),
        "machineType": Field(receive=last, same=same_name, replace=replace),
        "metadata": Field(replace=replace),
        "metadataStartupScript": Field(replace=True),
        "minCpuPlatform": Field(computed=True, replace=replace),
        "name": Field(replace=True, computed=True),
        "networkInterfaces": Field(
            many=True, replace=True, fields=interface_fields(replace=replace)
        ),
        "project": Field(local=True, replace=True, computed=True),
        # One policy in the program, a list of one in the REST interface.
        "resourcePolicies": Field(
            same=same_name,
            replace=replace,
            send=lambda given: [given],
            receive=lambda answer: answer[0] if answer else None,
        ),
        "scheduling": Field(
            computed=True, replace=replace, fields=scheduling_fields(replace=replace)
        ),
        "serviceAccount": Field(
            replace=replace,
            fields={
                "email": Field(computed=True, replace=replace),
                "scopes": Field(
                    replace=replace,
                    send=full_scopes,
                    same=lambda new, old: same_set(full_scopes(new), full_scopes(old)),
                ),
            },
        ),
        "shieldedInstanceConfig": Field(
            computed=True,
            replace=replace,
            fields={
                "enableIntegrityMonitoring": Field(default=True, replace=replace),
                "enableSecureBoot": Field(default=False, replace=replace),
                "enableVtpm": Field(default=True, replace=replace),
            },
        ),
        "tags": Field(replace=replace, same=same_set),
    }


def rest_of(
    body: dict[str, Any], inputs: Mapping[str, Any], project: str, region: Callable[[], str]
) -> None:
    """Rewrite the parts of a body that have another form in the REST interface.

    Args:
        body: the body to send; it is changed.
        inputs: the program's.
        project: for links without a project.
        region: called only for a subnetwork given by its bare name.

    """
    metadata = dict(inputs.get("metadata") or {})
    if inputs.get("metadataStartupScript"):
        metadata[STARTUP] = inputs["metadataStartupScript"]
    body.pop("metadataStartupScript", None)
    body["metadata"] = {"items": items_of(metadata)} if metadata else {}
    body["tags"] = {"items": list(inputs["tags"])} if inputs.get("tags") else {}
    account = body.pop("serviceAccount", None)
    if account is not None:
        body["serviceAccounts"] = [{"email": "default", **account}]
    for interface in body["networkInterfaces"]:
        for access in interface.get("accessConfigs", []):
            access["type"] = "ONE_TO_ONE_NAT"
        if "network" in interface:
            interface["network"] = global_link(project, "networks", interface["network"])
        if "subnetwork" in interface:
            link = relative(interface["subnetwork"])
            if "/" not in link:
                link = regional_link(project, region(), "subnetworks", link)
            interface["subnetwork"] = link


SCHEDULING: Mapping[str, Any] = {
    "hostErrorTimeoutSeconds": None,
    "instanceTerminationAction": "",
    "nodeAffinities": [None],
    "onHostMaintenance": "",
    "provisioningModel": "",
    "skipGuestOsShutdown": False,
}
"""What is sent of scheduling where a program gives some of it, but not this."""


def items_of(metadata: Mapping[str, str]) -> list[dict[str, str]]:
    """Return metadata as the REST interface has it."""
    return [{"key": key, "value": str(metadata[key])} for key in sorted(metadata)]


def flat(answer: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer with metadata, tags and service account in the program's form.

    Raises:
        KeyError: it has no metadata. The real provider panics there, which ends it for the
            whole operation.

    """
    metadata = {item["key"]: item.get("value", "") for item in answer["metadata"].get("items", [])}
    script = None
    if inputs.get("metadataStartupScript") is not None:
        script = metadata.pop(STARTUP, None)
    accounts = answer.get("serviceAccounts") or []
    tags = answer.get("tags") or {}
    return {
        **answer,
        "metadata": metadata,
        "metadataFingerprint": answer["metadata"].get("fingerprint"),
        "metadataStartupScript": script,
        "serviceAccount": accounts[0] if accounts else None,
        "tags": tags.get("items", []),
        "tagsFingerprint": tags.get("fingerprint"),
    }
