"""Networks, subnetworks, firewall rules."""

import ipaddress
from collections.abc import Mapping
from typing import Any

from muster_sandbox.provider.compute.base import ComputeResource
from muster_sandbox.provider.fields import Change, Field
from muster_sandbox.provider.links import global_link, number, same_link, same_set
from muster_sandbox.provider.resource import PROJECT, REGION, Made

SELF = {"selfLink": "selfLink"}
STAMPED = {**SELF, "creationTimestamp": "creationTimestamp"}


ORDERS = {"networkFirewallPolicyEnforcementOrder", "routingMode"}
ORDERS_SENT = ("networkFirewallPolicyEnforcementOrder", "routingConfig")
"""What one PATCH of a network changes: inputs, and members of its body."""


class Network(ComputeResource):
    kind = "compute/network:Network"
    collection = "networks"
    fields = {
        "autoCreateSubnetworks": Field(default=True, replace=True),
        "description": Field(replace=True),
        "mtu": Field(computed=True),
        "name": Field(replace=True, computed=True),
        "networkFirewallPolicyEnforcementOrder": Field(default="AFTER_CLASSIC_FIREWALL"),
        "project": PROJECT,
        "routingMode": Field(api="routingConfig.routingMode", computed=True),
    }
    outputs = {**SELF, "gatewayIpv4": "gatewayIPv4", "networkId": "id", "numericId": "id"}

    def body(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        body = super().body(inputs)
        if "routingConfig" in body:
            body["routingConfig"]["deleteBgpAlwaysCompareMed"] = False
        return body

    def update(
        self, identity: str, state: Mapping[str, Any], inputs: Mapping[str, Any], changed: set[str]
    ) -> dict[str, Any]:
        if changed & ORDERS:
            body = self.body(inputs)
            self.act("PATCH", identity, {key: body[key] for key in ORDERS_SENT if key in body})
        if "mtu" in changed:
            # A network has no fingerprint: the provider sends null.
            fingerprint = self.get(identity).get("fingerprint")
            self.act("PATCH", identity, {"fingerprint": fingerprint, "mtu": inputs["mtu"]})
        return self.get(identity)


class Subnetwork(ComputeResource):
    kind = "compute/subnetwork:Subnetwork"
    collection = "subnetworks"
    scope = "region"
    fields = {
        "description": Field(replace=True),
        "ipCidrRange": Field(computed=True),
        "name": Field(replace=True, computed=True),
        "network": Field(replace=True, same=same_link),
        "privateIpGoogleAccess": Field(computed=True),
        "project": PROJECT,
        "purpose": Field(replace=True, computed=True),
        "region": REGION,
        "stackType": Field(computed=True),
    }
    outputs = {
        **STAMPED,
        "fingerprint": "fingerprint",
        "gatewayAddress": "gatewayAddress",
        "subnetworkId": "id",
    }

    def body(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        body = super().body(inputs)
        body["network"] = global_link(self.project(inputs), "networks", inputs["network"])
        return body | {"logConfig": {"enable": False}}

    def state(
        self, identity: str, answer: Mapping[str, Any], inputs: Mapping[str, Any]
    ) -> dict[str, Any]:
        state = super().state(identity, answer, inputs)
        return state | {"subnetworkId": number(state["subnetworkId"])}

    def refine(
        self, changes: list[Change], state: Mapping[str, Any], inputs: Mapping[str, Any]
    ) -> list[Change]:
        """A range can grow; any other change of a range replaces the subnetwork."""
        return [
            Change(change.path, replace=True)
            if change.path == "ipCidrRange"
            and not grows(state.get("ipCidrRange"), inputs.get("ipCidrRange"))
            else change
            for change in changes
        ]

    def update(
        self, identity: str, state: Mapping[str, Any], inputs: Mapping[str, Any], changed: set[str]
    ) -> dict[str, Any]:
        if "ipCidrRange" in changed:
            self.act(
                "POST", f"{identity}/expandIpCidrRange", {"ipCidrRange": inputs["ipCidrRange"]}
            )
        if "privateIpGoogleAccess" in changed:
            self.act(
                "POST",
                f"{identity}/setPrivateIpGoogleAccess",
                {"privateIpGoogleAccess": inputs["privateIpGoogleAccess"]},
            )
        if "stackType" in changed:
            fingerprint = self.get(identity).get("fingerprint")
            self.act(
                "PATCH", identity, {"stackType": inputs["stackType"], "fingerprint": fingerprint}
            )
        return self.get(identity)


def grows(old: Any, new: Any) -> bool:
    """Say whether a range of addresses contains the old one; False if it isn't known yet."""
    try:
        return ipaddress.IPv4Network(old).subnet_of(ipaddress.IPv4Network(new))
    except (ValueError, TypeError):
        return False


RULE = {
    "ports": Field(same=same_set),
    "protocol": Field(api="IPProtocol", same=lambda new, old: str(new).lower() == old),
}


WHO = ("sourceServiceAccounts", "sourceTags", "targetServiceAccounts", "targetTags")
"""Lists of a firewall rule that a change sends even if they are empty."""


class Firewall(ComputeResource):
    kind = "compute/firewall:Firewall"
    collection = "firewalls"
    fields = {
        "allows": Field(api="allowed", many=True, fields=RULE),
        "denies": Field(api="denied", many=True, fields=RULE),
        "description": Field(),
        "destinationRanges": Field(computed=True, same=same_set),
        "direction": Field(replace=True, computed=True),
        "disabled": Field(),
        "logConfig": Field(
            fields={"metadata": Field()},
            send=lambda given: {"enable": True, **given},
            receive=lambda answer: answer if answer.get("enable") else None,
        ),
        "name": Field(replace=True, computed=True),
        "network": Field(replace=True, same=same_link),
        "priority": Field(default=1000),
        "project": PROJECT,
        "sourceRanges": Field(computed=True, same=same_set),
        "sourceServiceAccounts": Field(same=same_set),
        "sourceTags": Field(same=same_set),
        "targetServiceAccounts": Field(same=same_set),
        "targetTags": Field(same=same_set),
    }
    outputs = STAMPED

    def body(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        body = super().body(inputs)
        body["network"] = global_link(self.project(inputs), "networks", inputs["network"])
        body.setdefault("logConfig", {"enable": False})
        return body

    def update(
        self, identity: str, state: Mapping[str, Any], inputs: Mapping[str, Any], changed: set[str]
    ) -> dict[str, Any]:
        empty: dict[str, Any] = {name: [] for name in WHO}
        self.act("PATCH", identity, {**empty, **self.body(inputs)})
        return self.get(identity)


class Address(ComputeResource):
    kind = "compute/address:Address"
    collection = "addresses"
    scope = "region"
    fields = {
        "address": Field(replace=True, computed=True),
        "addressType": Field(replace=True, default="EXTERNAL"),
        "description": Field(replace=True),
        "labels": Field(),
        "name": Field(replace=True, computed=True),
        "networkTier": Field(replace=True, computed=True),
        "project": PROJECT,
        "purpose": Field(replace=True, computed=True),
        "region": REGION,
        "subnetwork": Field(replace=True, computed=True, same=same_link),
    }
    outputs = {
        **STAMPED,
        "addressId": "id",
        "labelFingerprint": "labelFingerprint",
        "users": "users",
    }

    def create(self, inputs: Mapping[str, Any]) -> Made:
        made = super().create(inputs)
        # The provider sets the labels once more, with the fingerprint that the insert gave.
        self.set_labels(made.id, made.answer, self.body(inputs)["labels"])
        return Made(made.id, self.get(made.id))

    def update(
        self, identity: str, state: Mapping[str, Any], inputs: Mapping[str, Any], changed: set[str]
    ) -> dict[str, Any]:
        self.set_labels(identity, state, self.body(inputs)["labels"])
        return self.get(identity)
