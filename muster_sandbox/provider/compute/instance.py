"""Instances: create, read, delete; changes are in instance_changes.py."""

from collections.abc import Mapping
from typing import Any

from muster_sandbox.provider.compute import instance_changes
from muster_sandbox.provider.compute.base import FULL, ComputeResource
from muster_sandbox.provider.compute.images import resolve, same_image
from muster_sandbox.provider.compute.machine import SCHEDULING, common_fields, flat, rest_of
from muster_sandbox.provider.fields import Field
from muster_sandbox.provider.links import (
    last,
    number,
    region_of,
    relative,
    same_link,
    same_name,
    same_number,
    zonal_link,
)
from muster_sandbox.provider.resource import ZONE, Made
from muster_sandbox.provider.rest import CloudError

INITIAL = {
    "image": Field(api="sourceImage", computed=True, replace=True, same=same_image),
    "labels": Field(computed=True),
    "size": Field(api="diskSizeGb", computed=True, send=str, receive=number, same=same_number),
    "type": Field(api="diskType", computed=True, replace=True, same=same_name),
}
NO_DURATIONS = dict.fromkeys(
    (
        "gracefulShutdown",
        "localSsdRecoveryTimeout",
        "maxRunDuration",
        "onInstanceStopAction",
        "preemptionNoticeDuration",
    )
)
"""What an instance sends of scheduling as null, besides what a template sends, too."""

BOOT_DISK = {
    "autoDelete": Field(default=True),
    "deviceName": Field(computed=True, replace=True),
    "initializeParams": Field(computed=True, replace=True, fields=INITIAL),
    "mode": Field(default="READ_WRITE", replace=True),
    "source": Field(computed=True, replace=True, same=same_link),
}
ATTACHED_DISK = {
    "deviceName": Field(computed=True),
    "mode": Field(default="READ_WRITE"),
    "source": Field(same=same_link),
}


class Instance(ComputeResource):
    kind = "compute/instance:Instance"
    collection = "instances"
    scope = "zone"
    fields = {
        **common_fields(replace=False),
        "allowStoppingForUpdate": Field(local=True),
        # A disk of an AttachedDisk shows as a change here, once the state is refreshed.
        "attachedDisks": Field(local=True, many=True, fields=ATTACHED_DISK),
        "bootDisk": Field(local=True, replace=True, fields=BOOT_DISK),
        "deletionProtection": Field(default=False),
        "description": Field(replace=True),
        "desiredStatus": Field(local=True),
        "hostname": Field(replace=True),
        "zone": ZONE,
    }
    outputs = {
        "cpuPlatform": "cpuPlatform",
        "creationTimestamp": "creationTimestamp",
        "currentStatus": "status",
        "instanceId": "id",
        "labelFingerprint": "labelFingerprint",
        "metadataFingerprint": "metadataFingerprint",
        "selfLink": "selfLink",
        "tagsFingerprint": "tagsFingerprint",
    }

    def body(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        body = super().body(inputs)
        project, zone = self.project(inputs), self.zone(inputs)
        rest_of(body, inputs, project, lambda: region_of(zone))
        del body["zone"]
        given = body.get("scheduling")
        body["params"] = {}
        body["scheduling"] = (
            {"automaticRestart": True} if given is None else {**SCHEDULING, **NO_DURATIONS, **given}
        )
        body["machineType"] = zonal_link(project, zone, "machineTypes", body["machineType"])
        for accelerator in body.get("guestAccelerators", []):
            accelerator["acceleratorType"] = zonal_link(
                project, zone, "acceleratorTypes", accelerator["acceleratorType"]
            )
        body["disks"] = [
            self.boot_disk(inputs),
            *(attached_disk(project, zone, disk) for disk in inputs.get("attachedDisks") or []),
        ]
        return body

    def boot_disk(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the boot disk to send."""
        given, project, zone = inputs["bootDisk"], self.project(inputs), self.zone(inputs)
        disk: dict[str, Any] = {
            "autoDelete": given.get("autoDelete", True),
            "boot": True,
            "mode": given.get("mode", "READ_WRITE"),
        }
        if given.get("deviceName"):
            disk["deviceName"] = given["deviceName"]
        if given.get("source"):
            disk["source"] = zonal_link(project, zone, "disks", given["source"])
        wanted = given.get("initializeParams")
        if wanted:
            disk["initializeParams"] = parameters = {}
            if wanted.get("image"):
                parameters["sourceImage"] = wanted["image"]
            if wanted.get("size"):
                parameters["diskSizeGb"] = str(wanted["size"])
            if wanted.get("type"):
                parameters["diskType"] = zonal_link(project, zone, "diskTypes", wanted["type"])
            if wanted.get("labels"):
                parameters["labels"] = wanted["labels"]
        return disk

    def create(self, inputs: Mapping[str, Any]) -> Made:
        body = self.body(inputs)
        initial = body["disks"][0].get("initializeParams", {})
        if "sourceImage" in initial:
            image = resolve(self.rest, self.project(inputs), initial["sourceImage"])
            initial["sourceImage"] = image
        self.act("POST", f"{self.place(inputs)}/{self.collection}", body, "creating")
        identity = self.identity(inputs)
        # The real provider sleeps 5 s here; that tests nothing, so it is left out.
        self.wait_for_status(identity, "RUNNING")
        if inputs.get("desiredStatus") == "TERMINATED":
            self.act("POST", f"{identity}/stop", activity="stopping")
        return Made(identity, self.whole(identity))

    def wait_for_status(self, identity: str, status: str) -> None:
        """Wait until the instance is in the status."""
        self.rest.wait_until(
            lambda: self.rest.call("GET", self.product, identity, query=FULL),
            lambda answer: answer["status"] == status,
        )

    def whole(self, identity: str) -> dict[str, Any]:
        """Return the instance as `read` does; it must be there.

        Raises:
            CloudError: it is not.

        """
        answer = self.read(identity, {})
        if answer is None:
            raise CloudError(f"{identity} is gone")
        return answer

    def read(self, identity: str, state: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the instance, with its boot disk as `bootDisk`."""
        answer = self.rest.exists("GET", self.product, identity, query=FULL)
        if answer is None:
            return None
        boot = next((disk for disk in answer["disks"] if disk.get("boot")), None)
        if boot is None:
            return answer
        disk = self.rest.exists("GET", self.product, relative(boot["source"])) or {}
        return {**answer, "bootDisk": disk}

    def state(
        self, identity: str, answer: Mapping[str, Any], inputs: Mapping[str, Any]
    ) -> dict[str, Any]:
        state = super().state(identity, flat(answer, inputs), inputs)
        boot = next((disk for disk in answer["disks"] if disk.get("boot")), None)
        others = [disk for disk in answer["disks"] if not disk.get("boot")]
        if boot is not None:
            state["bootDisk"] = boot_state(boot, answer.get("bootDisk", {}))
        state["attachedDisks"] = [
            {name: disk.get(name) for name in ("deviceName", "mode", "source")}
            for disk in in_order(others, inputs.get("attachedDisks") or [])
        ]
        if inputs.get("desiredStatus"):
            state["desiredStatus"] = answer["status"]
        return state

    def update(
        self, identity: str, state: Mapping[str, Any], inputs: Mapping[str, Any], changed: set[str]
    ) -> dict[str, Any]:
        instance_changes.apply(self, identity, state, inputs, changed)
        return self.whole(identity)

    def delete(self, identity: str, state: Mapping[str, Any]) -> None:
        if state.get("deletionProtection"):
            raise CloudError(
                f"Cannot delete instance {last(identity)}: instance Deletion Protection is enabled."
                " Set deletion_protection to false for this resource and run `pulumi up` first"
            )
        super().delete(identity, state)


def attached_disk(project: str, zone: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a further disk to send."""
    disk = {
        "mode": given.get("mode", "READ_WRITE"),
        "source": zonal_link(project, zone, "disks", given["source"]),
    }
    if given.get("deviceName"):
        disk["deviceName"] = given["deviceName"]
    return disk


def boot_state(attached: Mapping[str, Any], disk: Mapping[str, Any]) -> dict[str, Any]:
    """Return the output `bootDisk`, from the instance's and the disk's own answers."""
    return {
        "autoDelete": attached.get("autoDelete"),
        "deviceName": attached.get("deviceName"),
        "mode": attached.get("mode"),
        "source": attached["source"],
        "initializeParams": {
            "image": disk.get("sourceImage"),
            "labels": disk.get("labels", {}),
            "size": number(disk.get("sizeGb")),
            "type": last(disk.get("type")),
        },
    }


def in_order(disks: list[dict[str, Any]], given: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return attached disks in the program's order, then all others."""
    wanted = [last(item.get("source")) for item in given]

    def place(disk: Mapping[str, Any]) -> int:
        name = last(disk["source"])
        return wanted.index(name) if name in wanted else len(wanted)

    return sorted(disks, key=place)
