"""Instance templates: never changed, only replaced."""

import secrets
import time
from collections.abc import Iterator, Mapping
from typing import Any

from muster_sandbox.provider.compute.base import FULL, ComputeResource
from muster_sandbox.provider.compute.images import resolve
from muster_sandbox.provider.compute.machine import SCHEDULING, common_fields, flat, rest_of
from muster_sandbox.provider.fields import Change, Field
from muster_sandbox.provider.links import number, same_link, same_name, same_number
from muster_sandbox.provider.resource import Made
from muster_sandbox.provider.values import has_unknown

DISK = {
    "autoDelete": Field(default=True, replace=True),
    "boot": Field(computed=True, replace=True),
    "deviceName": Field(computed=True, replace=True),
    "diskName": Field(api="initializeParams.diskName", replace=True),
    "diskSizeGb": Field(
        api="initializeParams.diskSizeGb",
        computed=True,
        replace=True,
        send=str,
        receive=number,
        same=same_number,
    ),
    "diskType": Field(api="initializeParams.diskType", computed=True, replace=True, same=same_name),
    "interface": Field(computed=True, replace=True),
    "labels": Field(api="initializeParams.labels", replace=True),
    "mode": Field(computed=True, replace=True),
    "source": Field(replace=True, same=same_link),
    "sourceImage": Field(
        api="initializeParams.sourceImage", computed=True, replace=True, same=same_link
    ),
    "type": Field(computed=True, replace=True),
}


class InstanceTemplate(ComputeResource):
    kind = "compute/instanceTemplate:InstanceTemplate"
    collection = "instanceTemplates"
    fields = {
        **common_fields(replace=True),
        "description": Field(replace=True),
        "disks": Field(many=True, replace=True, fields=DISK),
        "instanceDescription": Field(api="properties.description", replace=True),
        "namePrefix": Field(local=True, replace=True),
        "region": Field(local=True, replace=True, computed=True),
    }
    outputs = {
        "creationTimestamp": "creationTimestamp",
        "metadataFingerprint": "properties.metadata.fingerprint",
        "name": "name",
        "numericId": "id",
        "selfLink": "selfLink",
        "selfLinkUnique": "selfLink",
        "tagsFingerprint": "properties.tags.fingerprint",
    }

    @classmethod
    def refusals(cls, inputs: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        for index, disk in enumerate(inputs["disks"]):
            scratch, size = disk.get("type") == "SCRATCH", disk.get("diskSizeGb")
            if scratch != (disk.get("diskType") == "local-ssd"):
                yield f"disks[{index}].type", "SCRATCH disks, and only these, are local-ssd"
            elif scratch and size not in (375, 3000):
                where = f"disks[{index}].diskSizeGb"
                yield where, f"SCRATCH disks must be one of [375 3000] GB, disk {index} is {size}"

    def body(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        body = super().body(inputs)
        outer = {key: body.pop(key) for key in ("name", "description") if body.get(key)}
        inner = body.pop("properties", {})
        rest_of(body, inputs, self.project(inputs), lambda: self.region(inputs))
        body["scheduling"] = scheduling(body.get("scheduling"))
        body["disks"] = [disk_body(disk, index) for index, disk in enumerate(body["disks"])]
        return {**outer, "properties": without_false({**body, **inner})}

    def create(self, inputs: Mapping[str, Any]) -> Made:
        name = inputs.get("name") or f"{inputs['namePrefix']}{unique_suffix()}"
        disks = [
            {**disk, "sourceImage": self.image(inputs, disk["sourceImage"])}
            if disk.get("sourceImage")
            else disk
            for disk in inputs["disks"]
        ]
        body = self.body({**inputs, "name": name, "disks": disks})
        path = f"{self.place(inputs)}/{self.collection}"
        operation = self.act("POST", path, body, "Creating")
        answer = self.rest.call("GET", self.product, f"{path}/{operation['targetId']}", query=FULL)
        return Made(f"{path}/{answer['name']}", answer)

    def image(self, inputs: Mapping[str, Any], given: str) -> str:
        """Return the path that is sent for an image."""
        return resolve(self.rest, self.project(inputs), given)

    def read(self, identity: str, state: Mapping[str, Any]) -> dict[str, Any] | None:
        return self.rest.exists("GET", self.product, identity, query=FULL)

    def refine(
        self, changes: list[Change], state: Mapping[str, Any], inputs: Mapping[str, Any]
    ) -> list[Change]:
        """An image may be written in another form than the one that was sent: look it up."""
        return [change for change in changes if not self.same_source(change, state, inputs)]

    def same_source(
        self, change: Change, state: Mapping[str, Any], inputs: Mapping[str, Any]
    ) -> bool:
        """Say whether only the notation of an image has changed."""
        if not change.path.endswith(".sourceImage") or change.deleted:
            return False
        index = int(change.path.split("[")[1].split("]")[0])
        new = inputs["disks"][index]["sourceImage"]
        old = state["disks"][index].get("sourceImage")
        if has_unknown(new) or old is None:
            return False
        return same_link(self.image(inputs, new), old)

    def state(
        self, identity: str, answer: Mapping[str, Any], inputs: Mapping[str, Any]
    ) -> dict[str, Any]:
        properties = flat(answer["properties"], inputs)
        outer = {key: answer.get(key) for key in ("name", "description")}
        inner = {"properties": {"description": properties.get("description")}}
        state = super().state(identity, {**properties, **outer, **inner}, inputs)
        for disk in state["disks"]:
            disk.setdefault("boot", False)
        link, number_ = answer.get("selfLink"), answer.get("id")
        return state | {
            "creationTimestamp": answer.get("creationTimestamp"),
            "metadataFingerprint": properties["metadataFingerprint"],
            "tagsFingerprint": properties["tagsFingerprint"],
            "numericId": number_,
            "region": inputs.get("region") or self.rest.optional_region,
            "selfLink": link,
            "selfLinkUnique": f"{link}?uniqueId={number_}" if link else None,
        }


def scheduling(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the scheduling to send."""
    if given is None:
        return {"onHostMaintenance": "MIGRATE"}
    ends = {"onHostMaintenance": "TERMINATE"} if given.get("preemptible") else {}
    return {**SCHEDULING, **ends, **given}


def disk_body(given: dict[str, Any], index: int) -> dict[str, Any]:
    """Return a disk to send: its size stands in it twice, and only a boot disk says what it is."""
    disk = {"boot": index == 0, **given}
    if "source" not in disk:
        initial = {"diskType": "pd-standard", **disk.get("initializeParams", {})}
        disk["initializeParams"] = initial
        if "diskSizeGb" in initial:
            disk["diskSizeGb"] = initial["diskSizeGb"]
    return without_false(disk)


def without_false(given: dict[str, Any]) -> dict[str, Any]:
    """Return what Google's client library sends of a part of a template: no false."""
    return {name: value for name, value in given.items() if value is not False}


def unique_suffix() -> str:
    """Return the 26 digits that follow a name's prefix: the time first, so that names sort."""
    moment = time.strftime("%Y%m%d%H%M%S", time.gmtime())
    return f"{moment}{secrets.randbelow(10**12):012d}"
