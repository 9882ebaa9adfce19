"""Cloud routers and their NAT, which is an entry in the router."""

from collections.abc import Mapping
from typing import Any

from muster_sandbox.provider.compute.base import ComputeResource
from muster_sandbox.provider.compute.network import STAMPED
from muster_sandbox.provider.fields import Field
from muster_sandbox.provider.links import global_link, last, same_link, same_set
from muster_sandbox.provider.resource import PROJECT, REGION, Made
from muster_sandbox.provider.rest import CloudError


class Router(ComputeResource):
    kind = "compute/router:Router"
    collection = "routers"
    scope = "region"
    fields = {
        "description": Field(),
        "name": Field(replace=True, computed=True),
        "network": Field(replace=True, same=same_link),
        "project": PROJECT,
        "region": REGION,
    }
    outputs = STAMPED

    def body(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        network = global_link(self.project(inputs), "networks", inputs["network"])
        return super().body(inputs) | {"network": network, "bgp": None}

    def update(
        self, identity: str, state: Mapping[str, Any], inputs: Mapping[str, Any], changed: set[str]
    ) -> dict[str, Any]:
        self.act("PATCH", identity, {"description": inputs.get("description", ""), "bgp": None})
        return self.get(identity)


EMPTY: tuple[str, ...] = ("drainNatIps", "natIps", "nat64Subnetworks", "rules", "subnetworks")
"""Lists of a NAT that are sent even if they are empty."""

FIXED = ("endpointTypes", "initialNatIps", "type")
"""Members of a NAT that a change sends as the cloud has them."""


class RouterNat(ComputeResource):
    """Its id is `project/region/router/name`; creating and changing is PATCH of the router."""

    kind = "compute/routerNat:RouterNat"
    collection = "routers"
    scope = "region"
    fields = {
        "enableDynamicPortAllocation": Field(computed=True),
        "enableEndpointIndependentMapping": Field(computed=True),
        "icmpIdleTimeoutSec": Field(default=30),
        "logConfig": Field(fields={"enable": Field(), "filter": Field()}),
        "maxPortsPerVm": Field(),
        "minPortsPerVm": Field(computed=True),
        "name": Field(replace=True, computed=True),
        "natIpAllocateOption": Field(default="AUTO_ONLY"),
        "natIps": Field(
            computed=True, same=lambda new, old: same_set(map(last, new), map(last, old or []))
        ),
        "project": PROJECT,
        "region": Field(local=True, replace=True, computed=True),
        "router": Field(local=True, replace=True, same=same_link),
        "sourceSubnetworkIpRangesToNat": Field(),
        "subnetworks": Field(
            many=True,
            fields={
                "name": Field(same=same_link),
                "sourceIpRangesToNats": Field(api="sourceIpRangesToNat", same=same_set),
            },
        ),
        "tcpEstablishedIdleTimeoutSec": Field(default=1200),
        "tcpTimeWaitTimeoutSec": Field(default=120),
        "tcpTransitoryIdleTimeoutSec": Field(default=30),
        "type": Field(default="PUBLIC", replace=True),
        "udpIdleTimeoutSec": Field(default=30),
    }

    def body(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        empty: dict[str, Any] = {name: [] for name in (*EMPTY, "initialNatIps")}
        return {"logConfig": None, **empty, **super().body(inputs)}

    def router(self, inputs: Mapping[str, Any]) -> str:
        """Return the path of the router."""
        return f"{self.place(inputs)}/routers/{last(inputs['router'])}"

    def patch(self, path: str, router: Mapping[str, Any], name: str, nat: Any) -> None:
        """Replace the NAT of that name; remove it if `nat` is None."""
        others = [item for item in router.get("nats", []) if item["name"] != name]
        self.act("PATCH", path, {"nats": others + ([nat] if nat else [])})

    def create(self, inputs: Mapping[str, Any]) -> Made:
        path, name = self.router(inputs), inputs["name"]
        with self.rest.lock(path):
            router = self.get(path)
            if find(router, name) is not None:
                raise CloudError(f"RouterNat {name} already exists in {path}")
            self.patch(path, router, name, self.body(inputs))
        place = (self.project(inputs), self.region(inputs), last(inputs["router"]), name)
        return Made("/".join(place), self.written(path, name))

    def update(
        self, identity: str, state: Mapping[str, Any], inputs: Mapping[str, Any], changed: set[str]
    ) -> dict[str, Any]:
        path, name = self.router(inputs), inputs["name"]
        with self.rest.lock(path):
            router = self.get(path)
            there = find(router, name) or {}
            fixed = {member: there.get(member) for member in FIXED}
            self.patch(path, router, name, {**self.body(inputs), **fixed})
        return self.written(path, name)

    def written(self, router: str, name: str) -> dict[str, Any]:
        """Return the NAT that was just written.

        Raises:
            CloudError: the router doesn't have it.

        """
        nat = find(self.get(router), name)
        if nat is None:
            raise CloudError(f"RouterNat {name} is not in {router} after it was written")
        return nat

    def read(self, identity: str, state: Mapping[str, Any]) -> dict[str, Any] | None:
        router = self.rest.exists("GET", self.product, router_path(identity))
        return None if router is None else find(router, last(identity))

    def state(
        self, identity: str, answer: Mapping[str, Any], inputs: Mapping[str, Any]
    ) -> dict[str, Any]:
        project, region, router, _ = identity.split("/")
        state = super().state(identity, answer, inputs)
        return state | {"project": project, "region": region, "router": router}

    def delete(self, identity: str, state: Mapping[str, Any]) -> None:
        path, name = router_path(identity), last(identity)
        with self.rest.lock(path):
            router = self.rest.exists("GET", self.product, path)
            if router is not None and find(router, name) is not None:
                self.patch(path, router, name, None)


def router_path(identity: str) -> str:
    """Return the router's path for the id of a NAT."""
    project, region, router, _ = identity.split("/")
    return f"projects/{project}/regions/{region}/routers/{router}"


def find(router: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """Return a router's NAT of that name."""
    return next((nat for nat in router.get("nats", []) if nat["name"] == name), None)
