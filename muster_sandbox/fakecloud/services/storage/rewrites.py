"""Copies of objects: https://cloud.google.com/storage/docs/json_api/v1/objects/rewrite."""

from dataclasses import replace

from muster_sandbox.fakecloud.api_errors import not_implemented
from muster_sandbox.fakecloud.call import Call, handler
from muster_sandbox.fakecloud.http import Resource
from muster_sandbox.fakecloud.services.storage import blobs, buckets, objects

# The parameters about the source, by those that a call about one object has.
OF_SOURCE = {
    "sourceGeneration": "generation",
    "ifSourceGenerationMatch": "ifGenerationMatch",
    "ifSourceGenerationNotMatch": "ifGenerationNotMatch",
    "ifSourceMetagenerationMatch": "ifMetagenerationMatch",
    "ifSourceMetagenerationNotMatch": "ifMetagenerationNotMatch",
}
UNSUPPORTED = ("destinationPredefinedAcl", "destinationKmsKeyName", "rewriteToken")


@handler("storage.objects.rewrite")
def rewrite(call: Call) -> Resource:
    """Copy an object, in one call whatever its size; a body has the metadata of the copy."""
    buckets.refuse_acls(call)
    for name in UNSUPPORTED:
        if name in call.query:
            raise not_implemented(f"rewrites with {name}")
    stored = _source(call)
    given = {key: value for key, value in (call.body or {}).items() if key in objects.SETTABLE}
    metadata = given or {key: stored[key] for key in objects.SETTABLE if key in stored}
    content = blobs.blobs_of(call.cloud).read(stored["blob"])
    bucket, name = call.parameters["destinationBucket"], call.parameters["destinationObject"]
    return {
        "kind": "storage#rewriteResponse",
        "done": True,
        "objectSize": stored["size"],
        "totalBytesRewritten": stored["size"],
        "resource": objects.store(call, bucket, name, metadata, content),
    }


def _source(call: Call) -> Resource:
    """The object to copy, as stored.

    Raises:
        ApiError: 404 if it doesn't exist, 412 if a precondition about it isn't true.

    """
    source = replace(
        call,
        parameters={
            "bucket": call.parameters["sourceBucket"],
            "object": call.parameters["sourceObject"],
        },
        query={OF_SOURCE[name]: call.query[name] for name in OF_SOURCE if name in call.query},
    )
    _, stored = objects.find(source)
    objects.check_generation(source, stored)
    return stored
