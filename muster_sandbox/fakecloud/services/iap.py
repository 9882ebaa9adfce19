"""Policies of the Identity-Aware Proxy: who may use its tunnel to which machines.

https://cloud.google.com/iap/docs/managing-access#tcp_resources: policies on
projects/P/iap_tunnel, .../zones/Z and .../zones/Z/instances/I; lower levels inherit policies.
fakecloud has no tunnel and no web resources (iap_web).
"""

import re

from muster_sandbox.fakecloud.api_errors import not_implemented
from muster_sandbox.fakecloud.call import Call, handler
from muster_sandbox.fakecloud.http import Resource
from muster_sandbox.fakecloud.services import iam_policy

TUNNEL = re.compile(r"projects/([^/]+)/iap_tunnel(?:/zones/[^/]+(?:/instances/[^/]+)?)?")


def _resource(call: Call) -> str:
    name = call.parameters["resource"]
    match = TUNNEL.fullmatch(name)
    if not match:
        raise not_implemented(f"IAP for {name}")
    call.cloud.project_id(match[1])
    return name


@handler("iap.getIamPolicy")
def get_iam_policy(call: Call) -> Resource:
    """The policy of a tunnel resource."""
    return iam_policy.get(call, _resource(call))


@handler("iap.setIamPolicy")
def set_iam_policy(call: Call) -> Resource:
    """Replace the policy of a tunnel resource."""
    return iam_policy.put(call, _resource(call))


@handler("iap.testIamPermissions")
def test_iam_permissions(call: Call) -> Resource:
    """The caller's permissions on a tunnel resource."""
    return iam_policy.test(call, _resource(call))
