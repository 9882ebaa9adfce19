"""Networks, subnets, firewall rules and routers.

https://cloud.google.com/compute/docs/reference/rest/v1/networks (and subnetworks, firewalls,
routers)
"""

from ipaddress import IPv4Network
from typing import Any

from muster_sandbox.fakecloud.api_errors import invalid
from muster_sandbox.fakecloud.call import Call, handler
from muster_sandbox.fakecloud.cloud import Cloud
from muster_sandbox.fakecloud.http import Resource
from muster_sandbox.fakecloud.operations import LINK
from muster_sandbox.fakecloud.services.compute import defaults, labels, resources
from muster_sandbox.fakecloud.services.compute.resources import USERS, Kind, Reference

NETWORK = Kind("networks", "network", "global")
SUBNETWORK = Kind("subnetworks", "subnetwork", "region")
FIREWALL = Kind("firewalls", "firewall", "global")
ROUTER = Kind("routers", "router", "region")

resources.serve(NETWORK, "get", "list", "delete")
resources.serve(SUBNETWORK, "get", "list", "delete", "aggregatedList")
resources.serve(FIREWALL, "get", "list", "delete")
resources.serve(ROUTER, "get", "list", "delete", "aggregatedList")


def network_link(call: Call, body: Resource) -> str:
    """The link of the network that a body names."""
    given = body.get("network", "global/networks/default")
    target, _ = resources.referenced(call, given, NETWORK, "resource.network")
    return target.link


def ip_range(text: str, field: str) -> IPv4Network:
    """An IPv4 range like 10.0.0.0/20; 400 if the text isn't one."""
    try:
        return IPv4Network(text)
    except ValueError as error:
        raise invalid(
            f"Invalid value for field '{field}': '{text}'. Must be a valid IPV4 range."
        ) from error


@handler("compute.networks.insert")
def insert_network(call: Call) -> Resource:
    """Make a network with custom subnets: fakecloud makes no subnets by itself."""
    body = resources.body(call)
    if body.get("autoCreateSubnetworks", True):
        raise invalid("fakecloud has custom networks only: set autoCreateSubnetworks to false")
    target, network = resources.new(call, NETWORK, defaults.filled(defaults.NETWORK, body))
    return resources.insert(call, target, network)


@handler("compute.networks.patch")
def patch_network(call: Call) -> Resource:
    """Change a network's routing or MTU; nothing else can be changed."""
    return patch(call, NETWORK)


@handler("compute.subnetworks.insert")
def insert_subnetwork(call: Call) -> Resource:
    """Make a subnet; its range must not overlap with another's in the same network."""
    body = resources.body(call)
    wanted = ip_range(body.get("ipCidrRange", ""), "resource.ipCidrRange")
    link = network_link(call, body)
    for scope, name, other in call.cloud.store.all(SUBNETWORK.store):
        if other["network"] == link and IPv4Network(other["ipCidrRange"]).overlaps(wanted):
            raise invalid(
                f"Invalid IPCidrRange: {wanted} conflicts with existing subnetwork '{name}' in "
                f"region '{scope.rpartition('/')[2]}'."
            )
    target, subnetwork = resources.new(
        call,
        SUBNETWORK,
        {
            **defaults.filled(defaults.SUBNETWORK, body),
            "network": link,
            "gatewayAddress": str(wanted[1]),
        },
    )
    return resources.insert(call, target, fingerprinted(subnetwork))


@handler("compute.subnetworks.patch")
def patch_subnetwork(call: Call) -> Resource:
    """Change a subnet; needs its present fingerprint."""
    return patch(call, SUBNETWORK)


@handler("compute.subnetworks.setPrivateIpGoogleAccess")
def set_private_ip_google_access(call: Call) -> Resource:
    """Set whether machines without a public address reach Google's APIs."""
    target, subnetwork = resources.existing(call, SUBNETWORK)
    access = resources.body(call).get("privateIpGoogleAccess", False)
    changed = fingerprinted({**subnetwork, "privateIpGoogleAccess": access})
    return resources.change(call, target, changed, "setPrivateIpGoogleAccess")


@handler("compute.subnetworks.expandIpCidrRange")
def expand_ip_cidr_range(call: Call) -> Resource:
    """Widen a subnet; it can't shrink or move."""
    target, subnetwork = resources.existing(call, SUBNETWORK)
    wanted = ip_range(resources.body(call).get("ipCidrRange", ""), "ipCidrRange")
    present = IPv4Network(subnetwork["ipCidrRange"])
    if wanted == present or not present.subnet_of(wanted):
        raise invalid(f"Invalid IPCidrRange: {wanted} must be larger than and contain {present}.")
    changed = fingerprinted({**subnetwork, "ipCidrRange": str(wanted)})
    return resources.change(call, target, changed, "expandIpCidrRange")


@handler("compute.firewalls.insert")
def insert_firewall(call: Call) -> Resource:
    """Make a firewall rule."""
    body = _firewall(call, {"direction": "INGRESS", "priority": 1000, **resources.body(call)})
    target, firewall = resources.new(call, FIREWALL, body)
    return resources.insert(call, target, firewall)


@handler("compute.firewalls.patch", "compute.firewalls.update")
def patch_firewall(call: Call) -> Resource:
    """Change a firewall rule."""
    return patch(call, FIREWALL)


def _firewall(call: Call, body: Resource) -> Resource:
    if bool(body.get("allowed")) == bool(body.get("denied")):
        raise invalid("Exactly one of allowed and denied must be specified for a firewall rule.")
    sources = {"sourceRanges", "sourceTags", "sourceServiceAccounts"}
    if body["direction"] == "INGRESS" and not body.keys() & sources:
        body = {**body, "sourceRanges": ["0.0.0.0/0"]}
    logging = body.get("logConfig", {"enable": False})
    return {"disabled": False, **body, "logConfig": logging, "network": network_link(call, body)}


@handler("compute.routers.insert")
def insert_router(call: Call) -> Resource:
    """Make a router, as Cloud NAT needs one."""
    body = {**defaults.ROUTER, **_with_nats(resources.body(call))}
    target, router = resources.new(call, ROUTER, {**body, "network": network_link(call, body)})
    return resources.insert(call, target, router)


@handler("compute.routers.patch")
def patch_router(call: Call) -> Resource:
    """Change a router; its NATs are a list in it."""
    call.body = _with_nats(call.body or {})
    return patch(call, ROUTER)


def _with_nats(router: Resource) -> Resource:
    """The body of a router, its NATs as they are answered."""
    nats = router.get("nats")
    return {**router, "nats": [defaults.nat(nat) for nat in nats]} if nats else router


def patch(call: Call, kind: Kind) -> Resource:
    """Replace the members that the body has; null removes one.

    https://cloud.google.com/compute/docs/api/how-tos/api-requests-responses#patch: lists are
    replaced as a whole.
    """
    target, resource = resources.existing(call, kind)
    given: dict[str, Any] = dict(call.body or {})
    if "fingerprint" in resource:
        labels.check(given.get("fingerprint"), resource["fingerprint"], "Resource")
    for name in ("id", "kind", "name", "selfLink", "creationTimestamp", kind.place):
        given.pop(name, None)
    if kind is not NETWORK and given.pop("network", None):
        given["network"] = network_link(call, call.body or {})
    changed = {**resource, **given}
    changed = {name: resources.without_nulls(v) for name, v in changed.items() if v is not None}
    if "fingerprint" in resource:
        changed = fingerprinted(changed)
    return resources.change(call, target, changed, "patch")


def fingerprinted(resource: Resource) -> Resource:
    """A resource with the fingerprint of its content."""
    content = {name: value for name, value in resource.items() if name != "fingerprint"}
    return {**content, "fingerprint": labels.fingerprint(content)}


def _in_network(cloud: Cloud, target: Reference, _network: Resource) -> str | None:
    """A resource that uses the network."""
    for collection in ("subnetworks", "firewalls", "routers"):
        for scope, name, resource in cloud.store.all(f"compute.{collection}"):
            if resource["network"] == target.link:
                project, _, where = scope.partition("/")
                return Reference(project, where, collection, name).path
    return None


def _in_subnetwork(cloud: Cloud, target: Reference, _subnetwork: Resource) -> str | None:
    """An instance or a reserved address with an address of the subnet."""
    for link in cloud.usage.addresses.get(target.link, {}).values():
        return link.removeprefix(LINK)
    for _, _, resource in cloud.store.all("compute.addresses"):
        if resource.get("subnetwork") == target.link:
            reservation: str = resource["selfLink"]
            return reservation.removeprefix(LINK)
    return None


USERS["networks"] = _in_network
USERS["subnetworks"] = _in_subnetwork
