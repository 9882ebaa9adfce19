"""Lists the VMs of a cluster's nodes, in all zones."""

import logging
from datetime import datetime
from typing import Any

from muster.autoscaler.compute.api_client import BAD_REQUEST, Transport
from muster.autoscaler.reconcile.model import Vm, VmList
from muster.catalog import accelerators
from muster.gcp.api import PAGE, CloudError, last
from muster.gcp.names import NODE, of_cluster

log = logging.getLogger("muster")

FIELDS = (
    "items/*(warning/code,instances(name,id,zone,status,creationTimestamp,machineType,"
    "scheduling/provisioningModel,guestAccelerators,resourcePolicies)),nextPageToken,unreachables"
)
PARTIAL = "returnPartialSuccess"
"""Without it Google may refuse the whole list if it does not reach one zone."""
# https://cloud.google.com/compute/docs/reference/rest/v1/instances/aggregatedList: such a zone is
# in `unreachables`, or has this warning in place of its VMs (InstancesScopedList).
UNREACHABLE = "UNREACHABLE"


class VmLister:
    """Lists the VMs; one thread reads, and others may use its `policies`.

    If Google does not reach a zone, its VMs are those of the last list that had it: they are not
    gone. A daemon that starts meanwhile does not know them.
    """

    def __init__(self, transport: Transport, project: str, cluster: str) -> None:
        self._transport = transport
        self._path = f"projects/{project}/aggregated/instances"
        self._filter = of_cluster(cluster, NODE)
        self._last: dict[str, list[Vm]] = {}
        """By zone."""
        self._lost: set[str] = set()
        """Zones that could not be listed."""
        self._policies: dict[str, set[str]] = {}
        """Zone -> placement policies of its VMs; as `_last`."""
        self._partial = True
        """Google knows the parameter PARTIAL."""

    @property
    def policies(self) -> dict[str, str]:
        """Placement policies of the VMs: name -> region."""
        return {
            policy: zone.rpartition("-")[0]
            for zone, policies in self._policies.items()
            for policy in policies
        }

    def read(self, until: float) -> VmList:
        """List them, with one call per 500.

        Raises:
            CloudError: they can't be listed; a part of a zone's VMs is never returned.

        """
        zones: dict[str, list[dict[str, Any]]] = {}
        lost: set[str] = set()
        for page in self._pages(until):
            lost |= {last(place) for place in page.get("unreachables", ())}
            for place, scope in page.get("items", {}).items():
                zones.setdefault(last(place), []).extend(scope.get("instances", ()))
                if scope.get("warning", {}).get("code") == UNREACHABLE:
                    lost.add(last(place))
        for zone in sorted(lost - self._lost):
            log.warning(
                "VMs in %s can't be listed: Google does not reach that zone; using the last list "
                "of it",
                zone,
            )
        self._lost = lost
        policies = {
            zone: {last(link) for vm in instances for link in vm.get("resourcePolicies", ())}
            for zone, instances in zones.items()
        }
        self._policies = policies | {zone: self._policies.get(zone, set()) for zone in lost}
        ahead_s = self._transport.server_time.ahead_s
        listed = {
            zone: [_vm(instance, zone, ahead_s) for instance in instances]
            for zone, instances in zones.items()
        }
        self._last = listed | {zone: self._last.get(zone, []) for zone in lost}
        return VmList((vm for vms in self._last.values() for vm in vms), lost)

    def _pages(self, until: float) -> list[dict[str, Any]]:
        query = {"filter": self._filter, "fields": FIELDS, "maxResults": PAGE}
        if self._partial:
            try:
                return self._list(until, {**query, PARTIAL: "true"})
            except CloudError as error:
                # The newest description of v1 recommends this parameter in its text, but does not
                # list it; that of beta does.
                if error.status != BAD_REQUEST or PARTIAL not in error.message:
                    raise
                self._partial = False
                log.warning(
                    "VMs are listed without %s, which Google refuses: while Google does not reach "
                    "one zone, those of all zones may not be listed: %s",
                    PARTIAL,
                    error,
                )
        return self._list(until, query)

    def _list(self, until: float, query: dict[str, Any]) -> list[dict[str, Any]]:
        method = "instances.aggregatedList"
        return list(self._transport.pages(method, self._path, until=until, query=query))


def _vm(instance: dict[str, Any], zone: str, ahead_s: float) -> Vm:
    """A VM of a list; `ahead_s`: Google's clock minus ours, see ServerTime."""
    machine_type = last(instance.get("machineType", ""))
    return Vm(
        name=instance["name"],
        zone=zone,
        id=instance["id"],
        status=instance["status"],
        created=datetime.fromisoformat(instance["creationTimestamp"]).timestamp() - ahead_s,
        machine_type=machine_type,
        spot=instance.get("scheduling", {}).get("provisioningModel") == "SPOT",
        gpus=attached_gpus(machine_type, instance.get("guestAccelerators", [])),
    )


def attached_gpus(machine_type: str, listed: list[dict[str, Any]]) -> str:
    """The GPUs that are attached to a VM, without those that its machine type includes."""
    shape = accelerators.machine(machine_type)
    if not listed or shape is None or not accelerators.taken_by(shape):
        return ""
    # One VM has GPUs of one type.
    return accelerators.of_api(listed[0]["acceleratorType"], listed[0]["acceleratorCount"])
