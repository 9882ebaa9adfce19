"""Who may use the Identity-Aware Proxy's tunnel to which machines.

https://cloud.google.com/iap/docs/managing-access#tcp_resources: policies on
projects/P/iap_tunnel, .../zones/Z and .../zones/Z/instances/I; what holds above holds below.
There is no tunnel here, and web resources (iap_web) aren't either.
"""

import re

from muster_sandbox.fakecloud.call import Call, handler
from muster_sandbox.fakecloud.errors import not_implemented
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
    """Who may use a tunnel resource."""
    return iam_policy.get(call, _resource(call))


@handler("iap.setIamPolicy")
def set_iam_policy(call: Call) -> Resource:
    """Replace who may use a tunnel resource."""
    return iam_policy.put(call, _resource(call))


@handler("iap.testIamPermissions")
def test_iam_permissions(call: Call) -> Resource:
    """What the caller may do with a tunnel resource."""
    return iam_policy.test(call, _resource(call))
