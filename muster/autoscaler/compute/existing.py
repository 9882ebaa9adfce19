"""VMs that exist already under a name that is to be created: to be used, or an error."""

from collections.abc import Iterable
from typing import Any

from muster.autoscaler.compute.api_client import Transport
from muster.autoscaler.compute.rate_limiter import Group
from muster.autoscaler.reconcile.model import NOT_UP, Failure
from muster.gcp.api import ALREADY_EXISTS, NOT_FOUND, PAGE, CloudError
from muster.gcp.names import NODE, is_node_of, of_cluster

FIELDS = "name,status,labels"
EXISTS, STOPPING = "alreadyExists", "stillStopping"
"""Codes of failures: the VM is somebody else's, and has the name in its zone; it is ours, and goes
away by itself or is deleted as soon as a list of VMs has it."""


class ExistingVms:
    """Finds a cluster's VMs by name."""

    def __init__(self, transport: Transport, project: str, cluster: str) -> None:
        self._transport = transport
        self._project = project
        self._cluster = cluster

    def find(
        self, zone: str, names: Iterable[str], reported: Iterable[str], until: float
    ) -> dict[str, Failure | None]:
        """Return which of the names have a VM, and why it can't be used; None: it can.

        `reported` are names that exist by Google's answer. Each one that is not in the list of VMs,
        which may be stale, is read by its name.

        Raises:
            CloudError: the VMs can't be read.

        """
        vms = self._list(zone, until)
        for name in set(reported) - vms.keys():
            vm = self._get(zone, name, until)
            if vm:
                vms[name] = vm
        return {name: self._problem(vms[name], zone) for name in names if name in vms}

    def _problem(self, vm: dict[str, Any], zone: str) -> Failure | None:
        if not is_node_of(self._cluster, vm.get("labels", {})):
            message = (
                f"a VM of this name in {zone} is not a node of cluster {self._cluster}; delete it, "
                "or give it another name"
            )
            return Failure(EXISTS, message, ALREADY_EXISTS)
        status = vm["status"]
        if status not in NOT_UP:
            return None
        return Failure(STOPPING, f"the previous VM is still {status} in {zone}", ALREADY_EXISTS)

    def _list(self, zone: str, until: float) -> dict[str, dict[str, Any]]:
        """The cluster's VMs in a zone by name."""
        query: dict[str, Any] = {
            "filter": of_cluster(self._cluster, NODE),
            "fields": f"items({FIELDS}),nextPageToken",
            "maxResults": PAGE,
        }
        pages = self._transport.pages(
            "instances.list",
            f"projects/{self._project}/zones/{zone}/instances",
            until=until,
            query=query,
        )
        return {vm["name"]: vm for page in pages for vm in page.get("items", ())}

    def _get(self, zone: str, name: str, until: float) -> dict[str, Any] | None:
        try:
            return self._transport.call(
                "instances.get",
                "GET",
                f"projects/{self._project}/zones/{zone}/instances/{name}",
                until=until,
                groups=(Group.READ,),
                query={"fields": FIELDS},
            )
        except CloudError as error:
            if error.status == NOT_FOUND:
                return None
            raise
