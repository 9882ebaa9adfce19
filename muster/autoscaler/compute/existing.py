"""VMs that stand already where one of their name is to be made: ours and wanted, or in the way."""

from collections.abc import Iterable
from typing import Any

from muster.autoscaler.compute.http import Transport
from muster.autoscaler.compute.rate_limiter import Group
from muster.gcp.api import NOT_FOUND, PAGE, CloudError
from muster.gcp.names import CLUSTER_LABEL, of_cluster

UP = {"PROVISIONING", "STAGING", "RUNNING", "REPAIRING"}
"""https://cloud.google.com/compute/docs/instances/instance-lifecycle; others are going or gone."""
FIELDS = "name,status,labels"


class Standing:
    """The VMs of a project, as a cluster sees them."""

    def __init__(self, transport: Transport, project: str, cluster: str) -> None:
        self._transport = transport
        self._project = project
        self._cluster = cluster

    def find(
        self, zone: str, names: Iterable[str], taken: Iterable[str], until: float
    ) -> dict[str, str]:
        """Return which of the names have a VM, with what is wrong with it; "" = it is wanted.

        `taken` are names of which Google says so: they are asked for one by one where the list of
        VMs, which may be behind, has not got them.

        Raises:
            CloudError: Google can't be asked.

        """
        found = self._list(zone, until)
        for name in set(taken) - found.keys():
            vm = self._get(zone, name, until)
            if vm:
                found[name] = vm
        return {name: self._problem(found[name], zone) for name in names if name in found}

    def _problem(self, vm: dict[str, Any], zone: str) -> str:
        if vm.get("labels", {}).get(CLUSTER_LABEL) != self._cluster:
            return (
                f"a VM of this name in {zone} is not one of cluster {self._cluster}; delete it, "
                "or give it another name"
            )
        if vm["status"] not in UP:
            return f"its VM of before in {zone} is {vm['status']} and not gone yet"
        return ""

    def _list(self, zone: str, until: float) -> dict[str, dict[str, Any]]:
        """The cluster's own VMs in a zone by name."""
        query: dict[str, Any] = {
            "filter": of_cluster(self._cluster),
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
