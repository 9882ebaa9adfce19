"""Objects: metadata, downloads, lists, versions.

https://cloud.google.com/storage/docs/json_api/v1/objects. Uploads are in uploads.py.
"""

import base64
import hashlib
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from muster_sandbox.fakecloud import permissions, query, resource_names
from muster_sandbox.fakecloud.api_errors import ApiError, invalid
from muster_sandbox.fakecloud.call import Call, handler
from muster_sandbox.fakecloud.clock import utc_timestamp
from muster_sandbox.fakecloud.cloud import Cloud
from muster_sandbox.fakecloud.crc32c import crc32c
from muster_sandbox.fakecloud.http import Reply, Resource
from muster_sandbox.fakecloud.services.storage import blobs, buckets
from muster_sandbox.fakecloud.services.storage.blobs import NONCURRENT, OBJECTS

# What a caller may set; the rest of an object is the server's.
SETTABLE = (
    "cacheControl",
    "contentDisposition",
    "contentEncoding",
    "contentLanguage",
    "contentType",
    "customTime",
    "metadata",
)
PAGE = 1000
RANGE = re.compile(r"bytes=(?:(\d+)-(\d*)|-(\d+))")


def missing(bucket: str, name: str) -> ApiError:
    """404 in Storage's words."""
    return ApiError(404, "notFound", f"No such object: {bucket}/{name}")


def shown(call: Call, stored: Resource) -> Resource:
    """An object as callers see it: without its blob's name, and with links to fakecloud."""
    here = f"http://{call.headers.get('host', '127.0.0.1')}"
    path = f"b/{stored['bucket']}/o/{quote(stored['name'], safe='')}"
    return {
        "kind": "storage#object",
        "id": f"{stored['bucket']}/{stored['name']}/{stored['generation']}",
        "selfLink": f"{buckets.LINK}{path}",
        # Clients download from this address, so it must be fakecloud's.
        "mediaLink": f"{here}/download/storage/v1/{path}"
        f"?generation={stored['generation']}&alt=media",
        **{key: value for key, value in stored.items() if key != "blob"},
    }


def find(call: Call) -> tuple[str, Resource]:
    """The object in the path (the generation asked for, else the live one) and its store kind.

    Without the permission to list, a missing object is 403:
    https://cloud.google.com/storage/docs/access-control/iam-json
    """
    bucket, name = call.parameters["bucket"], call.parameters["object"]
    resource_names.find_bucket(call.cloud, bucket)
    store = call.cloud.store
    live = store.get(OBJECTS, bucket, name)
    generation = call.query.get("generation")
    if live and generation in {None, live["generation"]}:
        return OBJECTS, live
    older = store.get(NONCURRENT, bucket, f"{name}#{generation}") if generation else None
    if older:
        return NONCURRENT, older
    permissions.require(call, "storage.objects.list", f"projects/_/buckets/{bucket}")
    raise missing(bucket, name)


def check_generation(call: Call, present: Resource | None) -> None:
    """Refuse a call whose ifGeneration... or ifMetageneration... isn't true; 412.

    `present` is the live object or None, whose generation is 0.
    """
    generation = present["generation"] if present else "0"
    if call.query.get("ifGenerationMatch", generation) != generation:
        raise buckets.unmet()
    if call.query.get("ifGenerationNotMatch") == generation:
        raise buckets.unmet()
    if present:
        buckets.check_metageneration(call, present)
    elif "ifMetagenerationMatch" in call.query:
        raise buckets.unmet()


def check_creation(call: Call, bucket: str, name: str) -> Resource | None:
    """The object that an upload would replace, or None; 403 or 412 if it may not."""
    target = f"projects/_/buckets/{bucket}/objects/{name}"
    permissions.require(call, "storage.objects.create", target)
    present = call.cloud.store.get(OBJECTS, bucket, name)
    check_generation(call, present)
    if present:
        permissions.require(call, "storage.objects.delete", target)
    return present


def store(call: Call, bucket: str, name: str, given: Resource, content: bytes) -> Resource:
    """Make `content` the live object of a name and return it as it is shown.

    Raises:
        ApiError: 400 if the caller's checksum isn't the content's, else as check_creation.

    """
    cloud = call.cloud
    present = check_creation(call, bucket, name)
    checksums = _checksums(content)
    for field, actual in checksums.items():
        if given.get(field) and given[field] != actual:
            raise invalid(
                f'Provided {field} "{given[field]}" doesn\'t match calculated {field} "{actual}".'
            )
    now = cloud.clock.now()
    # Microseconds, and later than all before even where the clock stands still.
    generation = max(int(now * 1e6), int(present["generation"]) + 1 if present else 0)
    stamp = utc_timestamp(now)
    metadata: Resource = {
        "name": name,
        "bucket": bucket,
        "generation": str(generation),
        "metageneration": "1",
        "contentType": "application/octet-stream",
        "storageClass": resource_names.find_bucket(cloud, bucket)["storageClass"],
        "size": str(len(content)),
        **checksums,
        "etag": buckets.etag(f"{generation}/1"),
        "timeCreated": stamp,
        "updated": stamp,
        "timeStorageClassUpdated": stamp,
        **{key: given[key] for key in SETTABLE if given.get(key) is not None},
        "blob": blobs.blobs_of(cloud).add(content),
    }
    if present:
        _retire(cloud, OBJECTS, present, replaced=True)
    cloud.store.put(OBJECTS, bucket, name, metadata)
    return shown(call, metadata)


def _checksums(content: bytes) -> dict[str, str]:
    digest = hashlib.md5(content, usedforsecurity=False).digest()
    return {
        "md5Hash": base64.b64encode(digest).decode(),
        "crc32c": base64.b64encode(crc32c(content).to_bytes(4, "big")).decode(),
    }


def _retire(cloud: Cloud, kind: str, stored: Resource, *, replaced: bool = False) -> None:
    """Remove an object; in a bucket with versions a live one becomes noncurrent."""
    bucket, name, generation = stored["bucket"], stored["name"], stored["generation"]
    versioning = (resource_names.find_bucket(cloud, bucket).get("versioning") or {}).get("enabled")
    if kind == OBJECTS and versioning:
        gone = {**stored, "timeDeleted": utc_timestamp(cloud.clock.now())}
        cloud.store.put(NONCURRENT, bucket, f"{name}#{generation}", gone)
        if not replaced:
            cloud.store.delete(OBJECTS, bucket, name)
        return
    cloud.store.delete(kind, bucket, name if kind == OBJECTS else f"{name}#{generation}")
    blobs.blobs_of(cloud).remove(stored["blob"])


@handler("storage.objects.get")
def get(call: Call) -> Resource | Reply:
    """An object's metadata, or with alt=media its content or a range of it."""
    _, stored = find(call)
    check_generation(call, stored)
    if call.media == "download":
        return _content(call, stored)
    return shown(call, stored)


def _content(call: Call, stored: Resource) -> Reply:
    size = int(stored["size"])
    headers = {
        "content-type": stored["contentType"],
        "accept-ranges": "bytes",
        "etag": stored["etag"],
        "x-goog-generation": stored["generation"],
        "x-goog-metageneration": stored["metageneration"],
        "x-goog-hash": f"crc32c={stored['crc32c']},md5={stored['md5Hash']}",
        "x-goog-stored-content-length": stored["size"],
        "x-goog-stored-content-encoding": stored.get("contentEncoding", "identity"),
    }
    content = blobs.blobs_of(call.cloud)
    asked = RANGE.fullmatch(call.headers.get("range", ""))
    if not asked:
        return Reply(content.read(stored["blob"]), 200, headers)
    first, last, suffix = asked.groups()
    start = max(0, size - int(suffix)) if suffix else int(first)
    end = min(size, int(last) + 1) if last else size
    if start >= size or end <= start:
        raise ApiError(416, "requestedRangeNotSatisfiable", "Request range not satisfiable")
    headers["content-range"] = f"bytes {start}-{end - 1}/{size}"
    return Reply(content.read(stored["blob"], start, end), 206, headers)


@handler("storage.objects.patch")
def patch(call: Call) -> Resource:
    """Merge the body into what a caller may set; null removes."""
    kind, stored = find(call)
    check_generation(call, stored)
    buckets.refuse_acls(call)
    changed = dict(stored)
    given = {key: value for key, value in (call.body or {}).items() if key in SETTABLE}
    if given.get("metadata"):
        merged = {**stored.get("metadata", {}), **given["metadata"]}
        given["metadata"] = {key: value for key, value in merged.items() if value is not None}
    for field, value in given.items():
        if value is None or value == {}:
            changed.pop(field, None)
        else:
            changed[field] = value
    metageneration = str(int(stored["metageneration"]) + 1)
    changed |= {
        "metageneration": metageneration,
        "etag": buckets.etag(f"{stored['generation']}/{metageneration}"),
        "updated": utc_timestamp(call.cloud.clock.now()),
    }
    key = stored["name"] if kind == OBJECTS else f"{stored['name']}#{stored['generation']}"
    call.cloud.store.put(kind, stored["bucket"], key, changed)
    return shown(call, changed)


@handler("storage.objects.delete")
def delete(call: Call) -> Reply:
    """Remove an object: the version of the generation for good, else the live one."""
    kind, stored = find(call)
    check_generation(call, stored)
    if call.query.get("generation") and kind == OBJECTS:
        call.cloud.store.delete(OBJECTS, stored["bucket"], stored["name"])
        blobs.blobs_of(call.cloud).remove(stored["blob"])
    else:
        _retire(call.cloud, kind, stored)
    return Reply(status=204)


@handler("storage.objects.list")
def list_(call: Call) -> Resource:
    """List objects by prefix, and with a delimiter their folders."""
    buckets.existing(call)
    for name in ("matchGlob", "softDeleted", "filter"):
        if call.query.get(name):
            raise ApiError(501, "notImplemented", f"fakecloud lists no objects by {name}")
    entries = dict(_entries(call))
    page, token = query.page(entries, call.query, default=PAGE)
    items = [shown(call, entries[key]) for key in page if entries[key] is not None]
    prefixes = [key.rstrip("\0") for key in page if entries[key] is None]
    answer: Resource = {"kind": "storage#objects"}
    answer |= {"items": items} if items else {}
    answer |= {"prefixes": prefixes} if prefixes else {}
    return {**answer, **({"nextPageToken": token} if token else {})}


def _entries(call: Call) -> Iterator[tuple[str, Any]]:
    """Sort key -> object, or None where the key is a folder."""
    cloud, asked = call.cloud, call.query
    bucket = call.parameters["bucket"]
    resources = [*cloud.store.within(OBJECTS, bucket).values()]
    if asked.get("versions") == "true":
        resources += cloud.store.within(NONCURRENT, bucket).values()
    prefix, delimiter = asked.get("prefix", ""), asked.get("delimiter", "")
    start, end = asked.get("startOffset", ""), asked.get("endOffset", "")
    trailing = asked.get("includeTrailingDelimiter") == "true"
    for resource in resources:
        name = resource["name"]
        if not name.startswith(prefix) or name < start or (end and name >= end):
            continue
        folder, met, rest = name[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
        if met:
            yield prefix + folder + delimiter, None
            if rest or not trailing:
                continue
        # \0 sorts before any character of a longer name, and generations sort by age.
        yield f"{name}\0{int(resource['generation']):020}", resource
