"""getIamPolicy, setIamPolicy and testIamPermissions, as all services but Storage have them."""

from collections.abc import Iterable

from muster_sandbox.fakecloud import permissions, policies, resource_names
from muster_sandbox.fakecloud.call import Call
from muster_sandbox.fakecloud.http import Resource


def get(call: Call, resource: str) -> Resource:
    """The policy of a resource; the version that the reader knows is in the query or the body."""
    options = (call.body or {}).get("options") or {}
    version = (
        call.query.get("options.requestedPolicyVersion")
        or call.query.get("optionsRequestedPolicyVersion")
        or options.get("requestedPolicyVersion")
        or 0
    )
    return policies.read(call.cloud, resource, int(version))


def put(call: Call, resource: str) -> Resource:
    """Replace the policy of a resource by the one in the body."""
    return policies.write(call.cloud, resource, (call.body or {}).get("policy") or {})


def test(call: Call, resource: str, asked: Iterable[str] | None = None) -> Resource:
    """The requested permissions that the caller has; without the list if it has none."""
    if asked is None:
        asked = (call.body or {}).get("permissions") or []
    name = resource_names.canonical(call.cloud, resource)
    granted = [
        permission
        for permission in asked
        if permissions.allowed(call.cloud, call.identity, permission, name)
    ]
    return {"permissions": granted} if granted else {}
