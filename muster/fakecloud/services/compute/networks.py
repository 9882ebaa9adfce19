"""Networks: https://cloud.google.com/compute/docs/reference/rest/v1/networks."""

from muster.fakecloud.call import Call, Resource, handler
from muster.fakecloud.cloud import Cloud
from muster.fakecloud.errors import invalid
from muster.fakecloud.services.compute import resources
from muster.fakecloud.services.compute.resources import USERS, Kind, Reference

NETWORK = Kind("networks", "network", "global")

resources.serve(NETWORK, "get", "list", "delete")


@handler("compute.networks.insert")
def insert(call: Call) -> Resource:
    """Make a network; only the custom kind, since fakecloud makes no subnets of its own."""
    body = resources.body(call)
    if body.get("autoCreateSubnetworks", True):
        raise invalid("fakecloud has custom networks only: set autoCreateSubnetworks to false")
    target, network = resources.new(
        call, NETWORK, {"mtu": 1460, "routingConfig": {"routingMode": "REGIONAL"}, **body}
    )
    return resources.insert(call, target, network)


def _users(cloud: Cloud, target: Reference, _network: Resource) -> str | None:
    """What is in the network."""
    for collection in ("subnetworks", "firewalls", "routers"):
        for scope, name, resource in cloud.store.all(f"compute.{collection}"):
            if resource["network"] == target.link:
                project, _, where = scope.partition("/")
                return Reference(project, where, collection, name).path
    return None


USERS["networks"] = _users
