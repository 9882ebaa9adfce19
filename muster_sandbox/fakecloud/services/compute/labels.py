"""Labels, and the fingerprints that keep two writers from overwriting each other.

https://cloud.google.com/compute/docs/labeling-resources#fingerprint
"""

import base64
import hashlib
import json
from typing import Any

from muster_sandbox.fakecloud import byte_values
from muster_sandbox.fakecloud.api_errors import invalid, precondition
from muster_sandbox.fakecloud.call import Call, handler
from muster_sandbox.fakecloud.http import Resource
from muster_sandbox.fakecloud.services.compute import resources
from muster_sandbox.fakecloud.services.compute.resources import Kind

VALUE_BYTES = 256 * 1024
TOTAL_BYTES = 512 * 1024


def fingerprint(value: Any) -> str:
    """The fingerprint of a JSON value: 8 bytes in base64, the same for the same value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return base64.b64encode(hashlib.sha256(text.encode()).digest()[:8]).decode()


def check(given: str | None, present: str, what: str) -> None:
    """412 if a writer's fingerprint is not the present one."""
    if not byte_values.same(given, present):
        raise precondition(f"{what} fingerprint either invalid or the {what.lower()} changed")


def labelled(resource: Resource) -> Resource:
    """A resource with the fingerprint of its labels."""
    return {**resource, "labelFingerprint": fingerprint(resource.get("labels", {}))}


def metadata(given: Resource, field: str) -> Resource:
    """Metadata as it is stored, with the fingerprint of its items; 400 if it is too large.

    Limits: https://cloud.google.com/compute/docs/metadata/setting-custom-metadata#limitations
    """
    items = [{"value": "", **item} for item in given.get("items", [])]
    keys = [item["key"] for item in items]
    if len(set(keys)) != len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        raise invalid(f"Invalid value for field '{field}': duplicate metadata key '{twice}'")
    for item in items:
        if len(item["value"].encode()) > VALUE_BYTES:
            raise invalid(
                f"Value for field '{field}.items.{item['key']}' is too large: maximum size "
                f"{VALUE_BYTES} character(s); actual size {len(item['value'])}."
            )
    if sum(len(item["key"]) + len(item["value"].encode()) for item in items) > TOTAL_BYTES:
        raise invalid(f"Value for field '{field}' is too large: maximum size {TOTAL_BYTES}")
    stored: Resource = {"kind": "compute#metadata", "fingerprint": fingerprint(items)}
    return {**stored, "items": items} if items else stored


def tags(given: Resource) -> Resource:
    """Network tags as they are stored, with their fingerprint."""
    items = given.get("items", [])
    stored: Resource = {"fingerprint": fingerprint(items)}
    return {**stored, "items": items} if items else stored


def serve(kind: Kind) -> None:
    """Register setLabels for a kind."""

    @handler(f"compute.{kind.collection}.setLabels")
    def set_labels(call: Call) -> Resource:
        target, resource = resources.existing(call, kind)
        body = resources.body(call)
        check(body.get("labelFingerprint"), resource["labelFingerprint"], "Labels")
        changed = labelled({**resource, "labels": body.get("labels", {})})
        return resources.change(call, target, changed, "setLabels")
