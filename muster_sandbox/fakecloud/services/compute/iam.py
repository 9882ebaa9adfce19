"""Policies on single resources of Compute Engine: an instance, a subnet, an image...

https://cloud.google.com/compute/docs/access/granting-access-to-resources.
"""

from muster_sandbox.fakecloud import policies
from muster_sandbox.fakecloud.call import Call, handler
from muster_sandbox.fakecloud.http import Resource
from muster_sandbox.fakecloud.services import iam_policy
from muster_sandbox.fakecloud.services.compute.disks import SNAPSHOT
from muster_sandbox.fakecloud.services.compute.images import DISK, IMAGE
from muster_sandbox.fakecloud.services.compute.networks import SUBNETWORK
from muster_sandbox.fakecloud.services.compute.policies import POLICY
from muster_sandbox.fakecloud.services.compute.resources import Kind, existing
from muster_sandbox.fakecloud.services.compute.templates import TEMPLATE

KINDS = (
    Kind("instances", "instance", "zone"),
    SUBNETWORK,
    DISK,
    IMAGE,
    TEMPLATE,
    POLICY,
    SNAPSHOT,
)


def serve(kind: Kind) -> None:
    """Register the three methods of a kind."""

    @handler(f"compute.{kind.collection}.getIamPolicy")
    def get(call: Call) -> Resource:
        return iam_policy.get(call, existing(call, kind)[0].path)

    @handler(f"compute.{kind.collection}.setIamPolicy")
    def put(call: Call) -> Resource:
        body = call.body or {}
        # The policy may be in `policy` or, in an older form, be the body itself.
        policy = body.get("policy") or {key: body[key] for key in body if key != "policy"}
        return policies.write(call.cloud, existing(call, kind)[0].path, policy)

    @handler(f"compute.{kind.collection}.testIamPermissions")
    def test(call: Call) -> Resource:
        return iam_policy.test(call, existing(call, kind)[0].path)


for kind in KINDS:
    serve(kind)
