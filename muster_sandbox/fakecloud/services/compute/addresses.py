"""Static addresses: https://cloud.google.com/compute/docs/reference/rest/v1/addresses."""

from ipaddress import IPv4Address, IPv4Network

from muster_sandbox.fakecloud.api_errors import in_use, invalid, quota
from muster_sandbox.fakecloud.call import Call, handler
from muster_sandbox.fakecloud.cloud import Cloud
from muster_sandbox.fakecloud.http import Resource
from muster_sandbox.fakecloud.operations import LINK
from muster_sandbox.fakecloud.services.compute import labels, resources
from muster_sandbox.fakecloud.services.compute.capacity import exceeded
from muster_sandbox.fakecloud.services.compute.networks import SUBNETWORK
from muster_sandbox.fakecloud.services.compute.resources import Kind

ADDRESS = Kind("addresses", "address", "region")
# TEST-NET-3: addresses for examples, never in use. https://www.rfc-editor.org/rfc/rfc5737
EXTERNAL = IPv4Network("203.0.113.0/24")

resources.serve(ADDRESS, "list", "aggregatedList")
labels.serve(ADDRESS)


@handler("compute.addresses.insert")
def insert(call: Call) -> Resource:
    """Reserve an address, internal (of a subnet) or external."""
    body = {"addressType": "EXTERNAL", "ipVersion": "IPV4", **resources.body(call)}
    if body["addressType"] == "INTERNAL":
        given = body.get("subnetwork", "")
        subnet, subnetwork = resources.referenced(call, given, SUBNETWORK, "resource.subnetwork")
        body |= {"subnetwork": subnet.link, "purpose": body.get("purpose", "GCE_ENDPOINT")}
        network = IPv4Network(subnetwork["ipCidrRange"])
        body["address"] = choose(call.cloud, subnet.link, network, body.get("address"))
    else:
        body["networkTier"] = body.get("networkTier", "PREMIUM")
        body["address"] = choose(call.cloud, "external", EXTERNAL, body.get("address"))
    target, address = resources.new(call, ADDRESS, {**body, "status": "RESERVED"})
    problem = exceeded(call.cloud, call.parameters["region"], {"STATIC_ADDRESSES": 1})
    if problem:
        raise quota(problem)
    return resources.insert(call, target, labels.labelled(address))


@handler("compute.addresses.get")
def get(call: Call) -> Resource:
    """An address, with its present users."""
    _, address = resources.existing(call, ADDRESS)
    return shown(call.cloud, address)


@handler("compute.addresses.delete")
def delete(call: Call) -> Resource:
    """Release an address, unless an instance has it."""
    target, address = resources.existing(call, ADDRESS)
    user = user_of(call.cloud, address)
    if user:
        raise in_use(target.path, user.removeprefix(LINK))
    return resources.delete(call, ADDRESS)


def shown(cloud: Cloud, address: Resource) -> Resource:
    """An address with its `users` and `status`."""
    user = user_of(cloud, address)
    return {**address, "status": "IN_USE", "users": [user]} if user else address


def user_of(cloud: Cloud, address: Resource) -> str | None:
    """The link of the instance that has a reserved address."""
    where = address.get("subnetwork", "external")
    return cloud.usage.addresses.get(where, {}).get(address["address"])


def reserved(cloud: Cloud, where: str) -> frozenset[str]:
    """The addresses that are reserved in a subnet (its link), or "external"."""
    return frozenset(
        address["address"]
        for _, _, address in cloud.store.all(ADDRESS.store)
        if address.get("subnetwork", "external") == where
    )


def choose(cloud: Cloud, where: str, network: IPv4Network, wanted: str | None) -> str:
    """The address that was asked for if it is free, or a free one."""
    taken = reserved(cloud, where)
    if wanted is None:
        free = cloud.usage.free_address(where, network, taken)
        if free is None:
            raise invalid(f"IP space of '{where}' is exhausted.")
        return free
    try:
        inside = IPv4Address(wanted) in network or where == "external"
    except ValueError:
        inside = False
    if not inside:
        raise invalid(
            f"Invalid value for field 'resource.address': '{wanted}'. "
            f"Requested address is not in the range of the subnetwork: {network}."
        )
    if wanted in taken or wanted in cloud.usage.addresses.get(where, ()):
        raise invalid(
            f"Invalid value for field 'resource.address': '{wanted}'. Specified IP address is "
            "already reserved."
        )
    return wanted
