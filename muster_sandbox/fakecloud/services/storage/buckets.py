"""Buckets and their policies: https://cloud.google.com/storage/docs/json_api/v1/buckets."""

import base64
import re
import time
from typing import Any

from muster_sandbox.fakecloud import policies, query
from muster_sandbox.fakecloud.api_errors import ApiError, invalid, precondition
from muster_sandbox.fakecloud.call import Call, handler
from muster_sandbox.fakecloud.clock import utc_timestamp
from muster_sandbox.fakecloud.http import Reply, Resource
from muster_sandbox.fakecloud.resource_names import BUCKETS, find_bucket
from muster_sandbox.fakecloud.services import iam_policy
from muster_sandbox.fakecloud.services.storage.blobs import NONCURRENT, OBJECTS

LINK = "https://www.googleapis.com/storage/v1/"
# https://cloud.google.com/storage/docs/buckets#naming, but for the limits of each dotted part.
NAME = re.compile(r"(?!goog)[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
MULTI_REGIONS = ("US", "EU", "ASIA")
PAGE = 1000
# Given by the server; a body may repeat them (a client that sends back what it got).
OUTPUT = (
    "kind",
    "id",
    "selfLink",
    "projectNumber",
    "metageneration",
    "generation",
    "etag",
    "timeCreated",
    "updated",
    "locationType",
)


def existing(call: Call) -> Resource:
    """The bucket in the path."""
    return find_bucket(call.cloud, call.parameters["bucket"])


def check_metageneration(call: Call, resource: Resource) -> None:
    """Refuse a call whose ifMetageneration... isn't true; 412."""
    present = resource["metageneration"]
    if call.query.get("ifMetagenerationMatch", present) != present:
        raise unmet()
    if call.query.get("ifMetagenerationNotMatch") == present:
        raise unmet()


def unmet() -> ApiError:
    """412 in Storage's words."""
    return precondition("At least one of the pre-conditions you specified did not hold.")


def refuse_acls(call: Call) -> None:
    """Refuse access lists: Muster's buckets have uniform access, which disables them."""
    for name in ("predefinedAcl", "predefinedDefaultObjectAcl"):
        if name in call.query:
            raise ApiError(501, "notImplemented", f"fakecloud has no access lists ({name})")
    for name in ("acl", "defaultObjectAcl"):
        if (call.body or {}).get(name):
            raise ApiError(501, "notImplemented", f"fakecloud has no access lists ({name})")


def etag(generation: str) -> str:
    """An etag that changes with a number."""
    return base64.b64encode(generation.encode()).decode()


@handler("storage.buckets.insert")
def insert(call: Call) -> Resource:
    """Make a bucket; 409 if the name is taken."""
    refuse_acls(call)
    cloud = call.cloud
    project = cloud.project_id(call.query.get("project", ""))
    body = {key: value for key, value in (call.body or {}).items() if key not in OUTPUT}
    name = body.get("name", "")
    if not NAME.fullmatch(name):
        raise invalid(f"Invalid bucket name: '{name}'")
    if cloud.store.get(BUCKETS, "", name) is not None:
        raise ApiError(
            409,
            "conflict",
            "Your previous request to create the named bucket succeeded and you already own it.",
        )
    now = utc_timestamp(cloud.clock.now())
    location = str(body.get("location") or "US").upper()
    bucket: Resource = {
        "kind": "storage#bucket",
        "id": name,
        "selfLink": f"{LINK}b/{name}",
        "projectNumber": cloud.settings.project_number,
        "generation": str(time.time_ns() // 1000),
        "metageneration": "1",
        "etag": etag("1"),
        "timeCreated": now,
        "updated": now,
        "storageClass": "STANDARD",
        **_without_nulls(body),
        "location": location,
        "locationType": "multi-region" if location in MULTI_REGIONS else "region",
        "iamConfiguration": _iam_configuration(body.get("iamConfiguration") or {}),
    }
    cloud.store.put(BUCKETS, "", name, bucket)
    policies.put(cloud, f"projects/_/buckets/{name}", _first_bindings(project))
    return bucket


def _iam_configuration(given: Resource) -> Resource:
    uniform = bool((given.get("uniformBucketLevelAccess") or {}).get("enabled"))
    return {
        "bucketPolicyOnly": {"enabled": uniform},
        "uniformBucketLevelAccess": {"enabled": uniform},
        "publicAccessPrevention": given.get("publicAccessPrevention") or "inherited",
    }


def _first_bindings(project: str) -> list[Resource]:
    """The policy of a new bucket: basic roles get access to objects only by this policy.

    https://cloud.google.com/storage/docs/access-control/iam-roles#basic-roles-modifiable
    """
    writers = [f"projectEditor:{project}", f"projectOwner:{project}"]
    readers = [f"projectViewer:{project}"]
    return [
        {"role": "roles/storage.legacyBucketOwner", "members": writers},
        {"role": "roles/storage.legacyBucketReader", "members": readers},
        {"role": "roles/storage.legacyObjectOwner", "members": writers},
        {"role": "roles/storage.legacyObjectReader", "members": readers},
    ]


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return value


@handler("storage.buckets.get")
def get(call: Call) -> Resource:
    """One bucket."""
    bucket = existing(call)
    check_metageneration(call, bucket)
    return bucket


@handler("storage.buckets.list")
def list_(call: Call) -> Resource:
    """The project's buckets by prefix."""
    call.cloud.project_id(call.query.get("project", ""))
    buckets = call.cloud.store.within(BUCKETS, "")
    prefix = call.query.get("prefix", "")
    names = [name for name in buckets if name.startswith(prefix)]
    page, token = query.page(names, call.query, default=PAGE)
    answer: Resource = {"kind": "storage#buckets"}
    if page:
        answer["items"] = [buckets[name] for name in page]
    return {**answer, **({"nextPageToken": token} if token else {})}


@handler("storage.buckets.patch")
def patch(call: Call) -> Resource:
    """Merge the body into the bucket: a null removes (RFC 7386)."""
    bucket = existing(call)
    return _changed(call, bucket, _merged(bucket, _given(call)))


def _given(call: Call) -> Resource:
    refuse_acls(call)
    return {key: value for key, value in (call.body or {}).items() if key not in OUTPUT}


def _changed(call: Call, bucket: Resource, changed: Resource) -> Resource:
    check_metageneration(call, bucket)
    for field in ("name", "location"):
        if changed[field].upper() != bucket[field].upper():
            raise invalid(f"The bucket's {field} can't be changed.")
    metageneration = str(int(bucket["metageneration"]) + 1)
    changed = {
        **changed,
        "location": bucket["location"],
        "iamConfiguration": _iam_configuration(changed.get("iamConfiguration") or {}),
        "metageneration": metageneration,
        "etag": etag(metageneration),
        "updated": utc_timestamp(call.cloud.clock.now()),
    }
    call.cloud.store.put(BUCKETS, "", bucket["name"], changed)
    return changed


def _merged(present: Any, given: Any) -> Any:
    if not isinstance(given, dict):
        return given
    merged = dict(present) if isinstance(present, dict) else {}
    for key, value in given.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), value)
    # A bucket without labels has no `labels`.
    return {key: value for key, value in merged.items() if key != "labels" or value}


@handler("storage.buckets.delete")
def delete(call: Call) -> Reply:
    """Remove an empty bucket; 409 while it has an object or an older version of one."""
    bucket = existing(call)
    check_metageneration(call, bucket)
    name = bucket["name"]
    store = call.cloud.store
    if store.within(OBJECTS, name) or store.within(NONCURRENT, name):
        raise ApiError(409, "conflict", "The bucket you tried to delete is not empty.")
    store.delete(BUCKETS, "", name)
    policies.forget(call.cloud, _policy_name(name))
    return Reply(status=204)


def _policy_name(name: str) -> str:
    return f"projects/_/buckets/{name}"


def _policy(name: str, policy: Resource) -> Resource:
    return {"kind": "storage#policy", "resourceId": _policy_name(name), **policy}


@handler("storage.buckets.getIamPolicy")
def get_iam_policy(call: Call) -> Resource:
    """The policy of the bucket."""
    name = existing(call)["name"]
    return _policy(name, iam_policy.get(call, _policy_name(name)))


@handler("storage.buckets.setIamPolicy")
def set_iam_policy(call: Call) -> Resource:
    """Replace the policy of the bucket; conditions need uniform access, as with Google."""
    bucket = existing(call)
    name = bucket["name"]
    body = call.body or {}
    uniform = bucket["iamConfiguration"]["uniformBucketLevelAccess"]["enabled"]
    if not uniform and any(binding.get("condition") for binding in body.get("bindings") or []):
        raise ApiError(
            412,
            "conditionNotMet",
            "Conditions need uniform bucket-level access, which is not enabled on this bucket.",
        )
    policy = policies.write(call.cloud, _policy_name(name), body, stale_status=412)
    return _policy(name, policy)


@handler("storage.buckets.testIamPermissions")
def test_iam_permissions(call: Call) -> Resource:
    """The caller's permissions on the bucket."""
    name = existing(call)["name"]
    asked = call.repeated.get("permissions", [])
    answer = iam_policy.test(call, _policy_name(name), asked)
    return {"kind": "storage#testIamPermissionsResponse", **answer}


@handler("storage.buckets.getStorageLayout")
def get_storage_layout(call: Call) -> Resource:
    """Where a bucket is; fakecloud's have no folders (hierarchical namespace)."""
    bucket = existing(call)
    return {
        "kind": "storage#storageLayout",
        "bucket": bucket["name"],
        "location": bucket["location"],
        "locationType": bucket["locationType"],
        "hierarchicalNamespace": {"enabled": False},
    }


@handler("storage.managedFolders.list")
def list_managed_folders(call: Call) -> Resource:
    """Always empty; gcloud asks before it removes what is in a bucket."""
    existing(call)
    return {"kind": "storage#managedFolders"}


@handler("storage.anywhereCaches.list")
def list_caches(call: Call) -> Resource:
    """Always empty; Pulumi's provider asks before it deletes a bucket."""
    existing(call)
    return {"kind": "storage#anywhereCaches"}
