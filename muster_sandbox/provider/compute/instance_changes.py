"""Changes of an instance: each input has its own method; some need a stopped machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster_sandbox.provider.compute.base import FULL, ComputeResource
from muster_sandbox.provider.compute.machine import STARTUP, full_scopes, items_of
from muster_sandbox.provider.links import relative, same_link, zonal_link
from muster_sandbox.provider.resource import effective_labels
from muster_sandbox.provider.rest import CloudError

NEED_STOP = {
    "machineType": "machine_type",
    "minCpuPlatform": "min_cpu_platform",
    "serviceAccount": "service_account",
    "shieldedInstanceConfig": "shielded_instance_config",
}
"""Inputs that can only change while the machine is off -> their names in the error sentence."""


def apply(
    instance: ComputeResource,
    identity: str,
    state: Mapping[str, Any],
    inputs: Mapping[str, Any],
    changed: set[str],
) -> None:
    """Make each change.

    Raises:
        CloudError: one needs a stop, and the program doesn't allow it.

    """
    now = instance.rest.call("GET", "compute", identity, query=FULL)
    if "metadata" in changed:
        metadata = dict(inputs.get("metadata") or {})
        if inputs.get("metadataStartupScript"):
            metadata[STARTUP] = inputs["metadataStartupScript"]
        fingerprint = instance.get(identity)["metadata"].get("fingerprint")
        post(instance, identity, "setMetadata", fingerprint=fingerprint, items=items_of(metadata))
    if "labels" in changed:
        fingerprint = instance.get(identity).get("labelFingerprint")
        labels = effective_labels(inputs)
        post(instance, identity, "setLabels", labelFingerprint=fingerprint, labels=labels)
    if "tags" in changed:
        fingerprint = (now.get("tags") or {}).get("fingerprint")
        post(instance, identity, "setTags", fingerprint=fingerprint, items=inputs.get("tags") or [])
    if "scheduling" in changed:
        scheduling = instance.body(inputs)["scheduling"]
        post(instance, identity, "setScheduling", **scheduling)
    if "resourcePolicies" in changed:
        change_policies(instance, identity, now, inputs)
    if "networkInterfaces" in changed:
        change_access(instance, identity, now, inputs)
    if "bootDisk" in changed:
        change_boot_disk(instance, identity, now, inputs)
    if "attachedDisks" in changed:
        change_disks(instance, identity, now, inputs)
    if "deletionProtection" in changed:
        protection = str(bool(inputs.get("deletionProtection"))).lower()
        query = {"deletionProtection": protection}
        instance.act("POST", f"{identity}/setDeletionProtection", query=query)
    change_stopped(instance, identity, now, inputs, changed)


def post(instance: ComputeResource, identity: str, method: str, **body: Any) -> None:
    """Call a method of the instance and wait for the operation."""
    instance.act("POST", f"{identity}/{method}", body)


def change_boot_disk(
    instance: ComputeResource, identity: str, now: Mapping[str, Any], inputs: Mapping[str, Any]
) -> None:
    """Enlarge the boot disk, and change its labels and whether it goes with the instance.

    Raises:
        CloudError: the program's disk is smaller; the cloud refuses that.

    """
    boot = next(disk for disk in now["disks"] if disk.get("boot"))
    path = relative(boot["source"])
    disk, wanted = instance.get(path), inputs["bootDisk"]
    initial = wanted.get("initializeParams") or {}
    if "size" in initial and str(initial["size"]) != disk["sizeGb"]:
        instance.act("POST", f"{path}/resize", {"sizeGb": initial["size"]})
    if "labels" in initial and initial["labels"] != disk.get("labels", {}):
        instance.set_labels(path, disk, initial["labels"])
    keep = bool(wanted.get("autoDelete", True))
    if keep != boot["autoDelete"]:
        query = {"autoDelete": str(keep).lower(), "deviceName": boot["deviceName"]}
        instance.act("POST", f"{identity}/setDiskAutoDelete", query=query)


def change_policies(
    instance: ComputeResource, identity: str, now: Mapping[str, Any], inputs: Mapping[str, Any]
) -> None:
    """Replace the instance's resource policies."""
    if now.get("resourcePolicies"):
        post(instance, identity, "removeResourcePolicies", resourcePolicies=now["resourcePolicies"])
    wanted = inputs.get("resourcePolicies")
    if wanted:
        post(instance, identity, "addResourcePolicies", resourcePolicies=[wanted])


def change_access(
    instance: ComputeResource, identity: str, now: Mapping[str, Any], inputs: Mapping[str, Any]
) -> None:
    """Replace public addresses: any other change of an interface replaces the instance."""
    wanted = instance.body(inputs)["networkInterfaces"]
    for interface, new in zip(now["networkInterfaces"], wanted, strict=True):
        nic = {"networkInterface": interface["name"]}
        old = interface.get("accessConfigs", [])
        if len(old) == len(new.get("accessConfigs", [])) and all(
            given.get("natIP", there.get("natIP")) == there.get("natIP")
            for there, given in zip(old, new.get("accessConfigs", []), strict=True)
        ):
            continue
        for access in old:
            query = {**nic, "accessConfig": access["name"]}
            instance.act("POST", f"{identity}/deleteAccessConfig", query=query)
        for access in new.get("accessConfigs", []):
            instance.act("POST", f"{identity}/addAccessConfig", access, query=nic)
        # The provider takes away a security policy after each such change.
        instance.get(identity)
        post(instance, identity, "setSecurityPolicy", networkInterfaces=[interface["name"]])


def change_disks(
    instance: ComputeResource, identity: str, now: Mapping[str, Any], inputs: Mapping[str, Any]
) -> None:
    """Detach disks that the program no longer has, attach new ones."""
    project, zone = instance.project(inputs), instance.zone(inputs)
    wanted = inputs.get("attachedDisks") or []
    there = [disk for disk in now["disks"] if not disk.get("boot")]

    def matches(disk: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
        same_device = given.get("deviceName") in (None, disk.get("deviceName"))
        return same_link(given["source"], disk["source"]) and same_device

    for disk in there:
        if not any(matches(disk, given) for given in wanted):
            query = {"deviceName": disk["deviceName"]}
            instance.act("POST", f"{identity}/detachDisk", query=query)
    for given in wanted:
        if not any(matches(disk, given) for disk in there):
            disk = {
                "mode": given.get("mode", "READ_WRITE"),
                "source": zonal_link(project, zone, "disks", given["source"]),
            }
            if given.get("deviceName"):
                disk["deviceName"] = given["deviceName"]
            post(instance, identity, "attachDisk", **disk)


def change_stopped(
    instance: ComputeResource,
    identity: str,
    now: Mapping[str, Any],
    inputs: Mapping[str, Any],
    changed: set[str],
) -> None:
    """Make the changes that need a stopped machine, and start or stop it as the program says.

    Raises:
        CloudError: it runs, and the program doesn't allow a stop.

    """
    needed = sorted(NEED_STOP.keys() & changed)
    wish = inputs.get("desiredStatus")
    runs = now["status"] == "RUNNING"
    if needed and runs and not (inputs.get("allowStoppingForUpdate") or wish == "TERMINATED"):
        names = ", ".join(NEED_STOP[name] for name in needed)
        raise CloudError(
            f"Changing the {names} on a started instance requires stopping it. To acknowledge"
            " this, please set allow_stopping_for_update = true in your config"
        )
    if runs and (needed or wish == "TERMINATED"):
        instance.act("POST", f"{identity}/stop", activity="stopping")
        runs = False
    body = instance.body(inputs) if needed else {}
    if "machineType" in needed:
        post(instance, identity, "setMachineType", machineType=body["machineType"])
    if "minCpuPlatform" in needed:
        platform = inputs.get("minCpuPlatform", "")
        post(instance, identity, "setMinCpuPlatform", minCpuPlatform=platform)
    if "serviceAccount" in needed:
        account = inputs.get("serviceAccount") or {}
        post(
            instance,
            identity,
            "setServiceAccount",
            email=account.get("email"),
            scopes=full_scopes(account.get("scopes")),
        )
    if "shieldedInstanceConfig" in needed:
        path = f"{identity}/updateShieldedInstanceConfig"
        instance.act("PATCH", path, body["shieldedInstanceConfig"])
    restart = needed and now["status"] == "RUNNING" and wish != "TERMINATED"
    if not runs and (restart or (wish == "RUNNING" and "desiredStatus" in changed)):
        instance.act("POST", f"{identity}/start", activity="starting")
