"""Buckets and the objects in them."""

import base64
import hashlib
import json
import mimetypes
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from muster_sandbox.provider.fields import Change, Field
from muster_sandbox.provider.links import last
from muster_sandbox.provider.resource import PROVISIONED, Made, Resource, effective_labels
from muster_sandbox.provider.rest import CloudError
from muster_sandbox.provider.values import ASSET, SIGNATURE

RULE = {
    "action": Field(fields={"storageClass": Field(), "type": Field()}),
    "condition": Field(
        fields={
            "age": Field(),
            "matchesPrefixes": Field(api="matchesPrefix"),
            "numNewerVersions": Field(),
            "withState": Field(local=True),
        }
    ),
}


class Bucket(Resource):
    """The id is its name."""

    kind = "storage/bucket:Bucket"
    product = "storage"
    fields = {
        "forceDestroy": Field(local=True),
        "labels": Field(),
        "lifecycleRules": Field(api="lifecycle.rule", many=True, fields=RULE),
        "location": Field(replace=True, same=lambda new, old: new.upper() == str(old).upper()),
        "name": Field(replace=True, computed=True),
        "project": Field(local=True, replace=True, computed=True),
        "publicAccessPrevention": Field(
            api="iamConfiguration.publicAccessPrevention", computed=True
        ),
        "softDeletePolicy": Field(
            computed=True,
            fields={"retentionDurationSeconds": Field(send=str, receive=int)},
        ),
        "storageClass": Field(default="STANDARD"),
        "uniformBucketLevelAccess": Field(
            api="iamConfiguration.uniformBucketLevelAccess.enabled", computed=True
        ),
        "versioning": Field(computed=True, fields={"enabled": Field()}),
    }
    outputs = {
        "projectNumber": "projectNumber",
        "selfLink": "selfLink",
        "timeCreated": "timeCreated",
        "updated": "updated",
    }

    def create(self, inputs: Mapping[str, Any]) -> Made:
        query = {"project": self.project(inputs), "prettyPrint": "false"}
        name = inputs["name"]
        body = {"lifecycle": {"rule": []}, **self.body(inputs)}
        self.rest.call("POST", self.product, "b", query=query, body=body)
        self.get(name)
        answer = self.get(name)
        if "projectNumber" in answer:
            self.rest.call("GET", "compute", f"projects/{answer['projectNumber']}")
        return Made(name, answer)

    def get(self, name: str) -> dict[str, Any]:
        """Return the bucket, which must be there."""
        return self.rest.call("GET", self.product, f"b/{name}")

    def read(self, identity: str, state: Mapping[str, Any]) -> dict[str, Any] | None:
        return self.rest.exists("GET", self.product, f"b/{identity}")

    def state(
        self, identity: str, answer: Mapping[str, Any], inputs: Mapping[str, Any]
    ) -> dict[str, Any]:
        return super().state(identity, answer, inputs) | {"url": f"gs://{identity}"}

    def planned(self, inputs: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
        return super().planned(inputs, state) | {"url": f"gs://{inputs['name']}"}

    def update(
        self, identity: str, state: Mapping[str, Any], inputs: Mapping[str, Any], changed: set[str]
    ) -> dict[str, Any]:
        whole = self.body(inputs)
        body: dict[str, Any] = {}
        for name in changed - {"forceDestroy"}:
            key = (self.fields[name].api or name).split(".")[0]
            body[key] = whole.get(key)
        if "labels" in changed:
            # A label that is gone is sent as null.
            gone = set(state.get("pulumiLabels", {})) - {*whole["labels"], PROVISIONED}
            body["labels"] = {**effective_labels(inputs), **dict.fromkeys(gone)}
        if body:
            self.rest.call("PATCH", self.product, f"b/{identity}", body=body)
        return self.get(identity)

    def delete(self, identity: str, state: Mapping[str, Any]) -> None:
        if self.read(identity, state) is None:
            return
        self.rest.exists("GET", self.product, f"b/{identity}/anywhereCaches/")
        listed = self.rest.call("GET", self.product, f"b/{identity}/o", query={"versions": "true"})
        objects = listed.get("items", [])
        if objects and not state.get("forceDestroy"):
            raise CloudError(
                f"Error trying to delete bucket {identity} containing objects without"
                " `force_destroy` set to true"
            )
        for item in objects:
            path = f"b/{identity}/o/{quote(item['name'], safe='')}"
            self.rest.exists(
                "DELETE", self.product, path, query={"generation": str(item["generation"])}
            )
        self.rest.exists("DELETE", self.product, f"b/{identity}")


class BucketObject(Resource):
    """The id is `bucket-name`; what is in it comes from `source` (an asset) or `content`."""

    kind = "storage/bucketObject:BucketObject"
    product = "storage"
    fields = {
        "bucket": Field(local=True, replace=True),
        "cacheControl": Field(),
        "content": Field(local=True),
        "contentType": Field(computed=True, replace=True),
        "metadata": Field(),
        "name": Field(replace=True, computed=True),
        "source": Field(local=True, same=lambda new, old: digest(new) == digest(old)),
    }
    outputs = {
        "crc32c": "crc32c",
        "generation": "generation",
        "md5hash": "md5Hash",
        "mediaLink": "mediaLink",
        "outputName": "name",
        "selfLink": "selfLink",
        "storageClass": "storageClass",
    }

    def path(self, bucket: str, name: str) -> str:
        """Return the object's path: slashes of its name are escaped."""
        return f"b/{last(bucket)}/o/{quote(name, safe='')}"

    def create(self, inputs: Mapping[str, Any]) -> Made:
        bucket, name = last(inputs["bucket"]), inputs["name"]
        return Made(f"{bucket}-{name}", self.upload(inputs, bucket, name))

    def upload(self, inputs: Mapping[str, Any], bucket: str, name: str) -> dict[str, Any]:
        """Write the object, as two parts in one request to the root of the host."""
        data = content_of(inputs)
        kind = inputs.get("contentType") or mimetypes.guess_type(name)[0] or guess(data)
        about = {"bucket": bucket, "name": name, "contentType": kind}
        for key in ("cacheControl", "metadata"):
            if inputs.get(key):
                about[key] = inputs[key]
        boundary = secrets.token_hex(30)
        first = f"--{boundary}\r\nContent-Type: application/json\r\n\r\n{json.dumps(about)}\r\n"
        second = f"--{boundary}\r\nContent-Type: {kind}\r\n\r\n"
        end = f"\r\n--{boundary}--\r\n"
        self.rest.call(
            "POST",
            self.product,
            f"/upload/storage/v1/b/{bucket}/o",
            query={"name": name, "uploadType": "multipart", "prettyPrint": "false"},
            content=f"{first}{second}".encode() + data + end.encode(),
            headers={"Content-Type": f"multipart/related; boundary={boundary}"},
        )
        return self.rest.call("GET", self.product, self.path(bucket, name))

    def read(self, identity: str, state: Mapping[str, Any]) -> dict[str, Any] | None:
        return self.rest.exists("GET", self.product, self.path(state["bucket"], state["name"]))

    def state(
        self, identity: str, answer: Mapping[str, Any], inputs: Mapping[str, Any]
    ) -> dict[str, Any]:
        state = super().state(identity, answer, inputs)
        known = state.get("md5hash")
        state["md5hexhash"] = base64.b64decode(known).hex() if known else None
        # The hash of the upload: it shows a change of the object that others make.
        return state | {"detectMd5hash": known, "generation": int(state["generation"] or 0)}

    def refine(
        self, changes: list[Change], state: Mapping[str, Any], inputs: Mapping[str, Any]
    ) -> list[Change]:
        """The stored object's hash is compared, so that a changed one is uploaded again."""
        if not any(change.name in ("source", "content") for change in changes):
            try:
                wanted = base64.b64encode(hashlib.md5(content_of(inputs)).digest())  # noqa: S324
            except (CloudError, KeyError, TypeError):
                return changes
            if wanted.decode() != state.get("md5hash"):
                return [*changes, Change("detectMd5hash", replace=False)]
        return changes

    def update(
        self, identity: str, state: Mapping[str, Any], inputs: Mapping[str, Any], changed: set[str]
    ) -> dict[str, Any]:
        return self.upload(inputs, last(inputs["bucket"]), inputs["name"])

    def delete(self, identity: str, state: Mapping[str, Any]) -> None:
        self.rest.exists("DELETE", self.product, self.path(state["bucket"], state["name"]))


def digest(asset: Any) -> Any:
    """Return an asset's identity: the engine hashes its content."""
    return asset.get("hash") if isinstance(asset, Mapping) else asset


def content_of(inputs: Mapping[str, Any]) -> bytes:
    """Return an object's content.

    Raises:
        CloudError: it is neither a text nor a file.

    """
    if inputs.get("content") is not None:
        return str(inputs["content"]).encode()
    asset = inputs["source"]
    if asset.get(SIGNATURE) == ASSET:
        if asset.get("text"):
            return str(asset["text"]).encode()
        if asset.get("path"):
            return Path(asset["path"]).read_bytes()
    raise CloudError("the stand-in uploads files and texts only, no archives and no URLs")


def guess(data: bytes) -> str:
    """Guess a content type from the first bytes, as the provider's library does."""
    if data.startswith(b"\x1f\x8b"):
        return "application/x-gzip"
    text = b"\x00" not in data[:512]
    return "text/plain; charset=utf-8" if text else "application/octet-stream"
