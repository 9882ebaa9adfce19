"""Resource policies: snapshot schedules of disks, placement of instances.

https://cloud.google.com/compute/docs/reference/rest/v1/resourcePolicies
"""

from muster_sandbox.fakecloud.api_errors import invalid
from muster_sandbox.fakecloud.call import Call, handler
from muster_sandbox.fakecloud.cloud import Cloud
from muster_sandbox.fakecloud.http import Resource
from muster_sandbox.fakecloud.operations import LINK
from muster_sandbox.fakecloud.services.compute import networks, resources
from muster_sandbox.fakecloud.services.compute.resources import USERS, Kind, Reference

POLICY = Kind("resourcePolicies", "resourcePolicy", "region")
WHAT = {
    "snapshotSchedulePolicy",
    "groupPlacementPolicy",
    "instanceSchedulePolicy",
    "diskConsistencyGroupPolicy",
    "workloadPolicy",
}

resources.serve(POLICY, "get", "list", "delete", "aggregatedList")


@handler("compute.resourcePolicies.insert")
def insert(call: Call) -> Resource:
    """Make a policy of exactly one kind."""
    body = resources.body(call)
    if len(body.keys() & WHAT) != 1:
        raise invalid("Invalid value for field 'resource': ''. Exactly one policy must be set.")
    target, policy = resources.new(call, POLICY, {**body, "status": "READY"})
    return resources.insert(call, target, policy)


@handler("compute.resourcePolicies.patch")
def patch(call: Call) -> Resource:
    """Change a policy."""
    return networks.patch(call, POLICY)


def _users(cloud: Cloud, target: Reference, _policy: Resource) -> str | None:
    """A disk or an instance that has the policy."""
    for collection in ("disks", "instances"):
        for _, _, resource in cloud.store.all(f"compute.{collection}"):
            if target.link in resource.get("resourcePolicies", []):
                link: str = resource["selfLink"]
                return link.removeprefix(LINK)
    return None


USERS["resourcePolicies"] = _users
