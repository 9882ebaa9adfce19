"""Fields that Google's servers take, though its published descriptions lack them.

They are only for input: no answer has them. Each has its source; the files are those of
https://github.com/hashicorp/terraform-provider-google, from which Google's Pulumi provider is made,
in google/services/compute.
"""

from collections.abc import Mapping
from typing import Any

FIELDS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    # Sent with null at a change of the MTU: resource_compute_network.go, and its acceptance test
    # TestAccComputeNetwork_mtuAndUpdate.
    "Network": {"fingerprint": {"type": "string", "format": "byte"}},
    # Sent with each routing mode: resource_compute_network.go. Its acceptance tests leave it out
    # where they compare with an answer.
    "NetworkRoutingConfig": {"deleteBgpAlwaysCompareMed": {"type": "boolean"}},
    # Sent as an empty list, or else under the name natIps: resource_compute_router_nat.go.
    "RouterNat": {"initialNatIps": {"type": "array", "items": {"type": "string"}}},
}
"""Schema of compute v1 and beta -> field -> its own schema, as in a description."""


def fields(api: str, schema: str) -> Mapping[str, Mapping[str, Any]]:
    """Return such fields of a schema of an API, by name."""
    return FIELDS.get(schema, {}) if api == "compute" else {}
