"""Disks, images, snapshot schedules, and their attachments."""

from collections.abc import Mapping
from typing import Any

from muster_sandbox.provider.compute.base import ComputeResource, project_of
from muster_sandbox.provider.compute.images import resolve, same_image
from muster_sandbox.provider.compute.network import SELF, STAMPED
from muster_sandbox.provider.fields import Change, Field
from muster_sandbox.provider.links import (
    global_link,
    last,
    number,
    region_of,
    regional_link,
    relative,
    same_link,
    same_name,
    same_number,
    same_set,
    zonal_link,
)
from muster_sandbox.provider.resource import PROJECT, REGION, ZONE, Made


class Disk(ComputeResource):
    kind = "compute/disk:Disk"
    collection = "disks"
    scope = "zone"
    fields = {
        "description": Field(replace=True),
        "image": Field(api="sourceImage", replace=True, same=same_image),
        "labels": Field(),
        "name": Field(replace=True, computed=True),
        "physicalBlockSizeBytes": Field(
            replace=True, computed=True, receive=number, same=same_number
        ),
        "project": PROJECT,
        "size": Field(api="sizeGb", computed=True, receive=number, same=same_number),
        "snapshot": Field(api="sourceSnapshot", replace=True, same=same_link),
        "type": Field(default="pd-standard", replace=True, receive=last, same=same_name),
        "zone": ZONE,
    }
    outputs = {
        **STAMPED,
        "diskId": "id",
        "labelFingerprint": "labelFingerprint",
        "lastAttachTimestamp": "lastAttachTimestamp",
        "lastDetachTimestamp": "lastDetachTimestamp",
        "sourceImageId": "sourceImageId",
        "users": "users",
    }

    def body(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        body, project = super().body(inputs), self.project(inputs)
        body["type"] = zonal_link(project, self.zone(inputs), "diskTypes", body["type"])
        if "sourceSnapshot" in body:
            body["sourceSnapshot"] = global_link(project, "snapshots", body["sourceSnapshot"])
        return body

    def create(self, inputs: Mapping[str, Any]) -> Made:
        if inputs.get("image"):
            image = resolve(self.rest, self.project(inputs), inputs["image"])
            inputs = {**inputs, "image": image}
        return super().create(inputs)

    def refine(
        self, changes: list[Change], state: Mapping[str, Any], inputs: Mapping[str, Any]
    ) -> list[Change]:
        """A disk can grow; a smaller size replaces it."""
        old, new = number(state.get("size")), inputs.get("size")
        shrinks = isinstance(old, int) and isinstance(new, int) and new < old
        return [
            Change("size", replace=True) if change.path == "size" and shrinks else change
            for change in changes
        ]

    def update(
        self, identity: str, state: Mapping[str, Any], inputs: Mapping[str, Any], changed: set[str]
    ) -> dict[str, Any]:
        if "labels" in changed:
            self.set_labels(identity, state, self.body(inputs)["labels"])
        if "size" in changed:
            self.act("POST", f"{identity}/resize", {"sizeGb": inputs["size"]})
        return self.get(identity)

    def delete(self, identity: str, state: Mapping[str, Any]) -> None:
        disk = self.read(identity, state)
        if disk is None:
            return
        for user in disk.get("users", []):
            self.detach(relative(user), identity)
        super().delete(identity, state)

    def detach(self, instance: str, disk: str) -> None:
        """Detach the disk from an instance that still has it."""
        document = self.rest.exists("GET", self.product, instance)
        for attached in (document or {}).get("disks", []):
            if same_link(attached.get("source"), disk):
                device = {"deviceName": attached["deviceName"]}
                self.act("POST", f"{instance}/detachDisk", None, "Detaching", device)


class Image(ComputeResource):
    kind = "compute/image:Image"
    collection = "images"
    fields = {
        "description": Field(replace=True),
        "diskSizeGb": Field(
            replace=True, computed=True, send=str, receive=number, same=same_number
        ),
        "family": Field(replace=True),
        "guestOsFeatures": Field(replace=True, computed=True, many=True, fields={"type": Field()}),
        "labels": Field(),
        "licenses": Field(replace=True, computed=True),
        "name": Field(replace=True, computed=True),
        "project": PROJECT,
        "rawDisk": Field(
            replace=True,
            fields={
                "containerType": Field(default="TAR"),
                "sha1": Field(api="sha1Checksum"),
                "source": Field(),
            },
            receive=lambda _: None,
        ),
        "sourceDisk": Field(replace=True, same=same_link),
        "storageLocations": Field(replace=True, computed=True, same=same_set),
    }
    outputs = {
        **STAMPED,
        "archiveSizeBytes": "archiveSizeBytes",
        "labelFingerprint": "labelFingerprint",
    }

    def body(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        body = super().body(inputs)
        if "sourceDisk" in body:
            body["sourceDisk"] = relative(body["sourceDisk"])
        return body

    def state(
        self, identity: str, answer: Mapping[str, Any], inputs: Mapping[str, Any]
    ) -> dict[str, Any]:
        # The provider keeps the image's source in the state: the cloud doesn't return it.
        state = super().state(identity, answer, inputs) | {"rawDisk": inputs.get("rawDisk")}
        return state | {"archiveSizeBytes": number(state["archiveSizeBytes"])}

    def update(
        self, identity: str, state: Mapping[str, Any], inputs: Mapping[str, Any], changed: set[str]
    ) -> dict[str, Any]:
        self.set_labels(identity, state, self.body(inputs)["labels"])
        return self.get(identity)


SCHEDULE = {
    "dailySchedule": Field(fields={"daysInCycle": Field(), "startTime": Field()}),
    "hourlySchedule": Field(fields={"hoursInCycle": Field(), "startTime": Field()}),
}


class ResourcePolicy(ComputeResource):
    kind = "compute/resourcePolicy:ResourcePolicy"
    collection = "resourcePolicies"
    scope = "region"
    fields = {
        "description": Field(replace=True),
        "groupPlacementPolicy": Field(
            replace=True,
            fields={
                "availabilityDomainCount": Field(replace=True),
                "collocation": Field(replace=True),
                "maxDistance": Field(replace=True),
                "vmCount": Field(replace=True),
            },
        ),
        "name": Field(replace=True, computed=True),
        "project": PROJECT,
        "region": REGION,
        "snapshotSchedulePolicy": Field(
            fields={
                "retentionPolicy": Field(
                    fields={
                        "maxRetentionDays": Field(),
                        "onSourceDiskDelete": Field(default="KEEP_AUTO_SNAPSHOTS"),
                    }
                ),
                "schedule": Field(fields=SCHEDULE),
                "snapshotProperties": Field(
                    fields={
                        "guestFlush": Field(),
                        "labels": Field(),
                        "storageLocations": Field(same=same_set),
                    }
                ),
            }
        ),
    }
    outputs = SELF

    def body(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return super().body(inputs) | {"diskConsistencyGroupPolicy": None}

    def update(
        self, identity: str, state: Mapping[str, Any], inputs: Mapping[str, Any], changed: set[str]
    ) -> dict[str, Any]:
        self.act("PATCH", identity, self.body(inputs))
        return self.get(identity)


class DiskResourcePolicyAttachment(ComputeResource):
    """`name` is the policy's; the id is `project/zone/disk/policy`."""

    kind = "compute/diskResourcePolicyAttachment:DiskResourcePolicyAttachment"
    scope = "zone"
    fields = {
        "disk": Field(local=True, replace=True, same=same_name),
        "name": Field(local=True, replace=True, computed=True),
        "project": PROJECT,
        "zone": Field(local=True, replace=True, computed=True),
    }

    def disk(self, identity: str) -> tuple[str, str]:
        """Return the paths of disk and policy."""
        project, zone, disk, policy = identity.split("/")
        return (
            f"projects/{project}/zones/{zone}/disks/{disk}",
            regional_link(project, region_of(zone), "resourcePolicies", policy),
        )

    def create(self, inputs: Mapping[str, Any]) -> Made:
        place = (self.project(inputs), self.zone(inputs), last(inputs["disk"]), inputs["name"])
        disk, policy = self.disk("/".join(place))
        self.act("POST", f"{disk}/addResourcePolicies", {"resourcePolicies": [policy]}, "Creating")
        return Made("/".join(place), self.get(disk))

    def read(self, identity: str, state: Mapping[str, Any]) -> dict[str, Any] | None:
        path, policy = self.disk(identity)
        disk = self.rest.exists("GET", self.product, path)
        attached = [relative(item) for item in (disk or {}).get("resourcePolicies", [])]
        return disk if policy in attached else None

    def state(
        self, identity: str, answer: Mapping[str, Any], inputs: Mapping[str, Any]
    ) -> dict[str, Any]:
        project, zone, disk, policy = identity.split("/")
        return {"project": project, "zone": zone, "disk": disk, "name": policy}

    def delete(self, identity: str, state: Mapping[str, Any]) -> None:
        if self.read(identity, state) is None:
            return
        disk, policy = self.disk(identity)
        body = {"resourcePolicies": [policy]}
        self.act("POST", f"{disk}/removeResourcePolicies", body, "Deleting")


class AttachedDisk(ComputeResource):
    """The id is the instance's path and the disk's name."""

    kind = "compute/attachedDisk:AttachedDisk"
    scope = "zone"
    named_by = None
    fields = {
        "deviceName": Field(replace=True, computed=True),
        "disk": Field(api="source", replace=True, same=same_link),
        "instance": Field(local=True, replace=True, same=same_link),
        "mode": Field(replace=True, default="READ_WRITE"),
        "project": PROJECT,
        "zone": Field(local=True, replace=True, computed=True),
    }

    def create(self, inputs: Mapping[str, Any]) -> Made:
        instance = relative(inputs["instance"])
        if "/" not in instance:
            instance = f"{self.place(inputs)}/instances/{instance}"
        # The disk is in the zone of the instance.
        disk = f"{instance.split('/instances/')[0]}/disks/{last(inputs['disk'])}"
        body = {"source": disk, "mode": inputs.get("mode", "READ_WRITE")}
        if inputs.get("deviceName"):
            body["deviceName"] = inputs["deviceName"]
        self.act("POST", f"{instance}/attachDisk", body, "Creating")
        identity = f"{instance}/{last(disk)}"
        return Made(identity, self.read(identity, {}) or {})

    def read(self, identity: str, state: Mapping[str, Any]) -> dict[str, Any] | None:
        instance, disk = identity.rsplit("/", 1)
        document = self.rest.exists("GET", self.product, instance) or {}
        return next(
            (item for item in document.get("disks", []) if last(item.get("source")) == disk), None
        )

    def state(
        self, identity: str, answer: Mapping[str, Any], inputs: Mapping[str, Any]
    ) -> dict[str, Any]:
        state = super().state(identity, answer, inputs)
        return state | {
            "instance": inputs.get("instance") or identity.rsplit("/", 1)[0],
            "project": project_of(identity),
            "zone": identity.split("/")[3],
        }

    def delete(self, identity: str, state: Mapping[str, Any]) -> None:
        attached = self.read(identity, state)
        if attached is not None:
            instance = identity.rsplit("/", 1)[0]
            device = {"deviceName": attached["deviceName"]}
            self.act("POST", f"{instance}/detachDisk", None, "Deleting", device)
