"""Reading operations: get, list, wait.

https://cloud.google.com/compute/docs/reference/rest/v1/zoneOperations
"""

from muster_sandbox.fakecloud.call import Call, handler
from muster_sandbox.fakecloud.http import Answer, Deferred, Resource
from muster_sandbox.fakecloud.services.compute import resources
from muster_sandbox.fakecloud.services.compute.resources import Kind

OPERATION = Kind("operations", "operation", "zone")
WAIT_SECONDS = 120
"""Maximum of a wait: .../rest/v1/zoneOperations/wait."""


@handler(
    "compute.zoneOperations.get", "compute.regionOperations.get", "compute.globalOperations.get"
)
def get(call: Call) -> Resource:
    """One operation, by name or id."""
    return resources.get(call, OPERATION)


@handler(
    "compute.zoneOperations.list", "compute.regionOperations.list", "compute.globalOperations.list"
)
def list_(call: Call) -> Answer:
    """The operations of a place."""
    return resources.list_(call, OPERATION)


@handler("compute.globalOperations.aggregatedList")
def aggregated_list(call: Call) -> Answer:
    """The operations of all places."""
    return resources.aggregated_list(call, OPERATION)


@handler(
    "compute.zoneOperations.wait", "compute.regionOperations.wait", "compute.globalOperations.wait"
)
def wait(call: Call) -> Resource | Deferred:
    """Answer when the operation is done, or after two minutes."""
    target, operation = resources.existing(call, OPERATION)
    if operation["status"] == "DONE":
        return operation
    cloud = call.cloud
    answer = Deferred(lambda: target.find(cloud) or operation)
    cloud.waiting.setdefault(target.name, []).append(answer)
    cloud.later(WAIT_SECONDS, answer.give_up)
    return answer
