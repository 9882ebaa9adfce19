"""Placement policies: one per job, which places its nodes near each other.

https://cloud.google.com/compute/docs/instances/use-compact-placement-policies

A policy is created before its job's VMs and deleted when no VM uses it any more. Google refuses to
delete one that is in use, so a stale list of VMs does no harm.
"""

import logging
import threading
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from muster.autoscaler.clock import Clock
from muster.autoscaler.compute import errors
from muster.autoscaler.compute.api_client import Transport
from muster.autoscaler.compute.operations import Operations
from muster.autoscaler.compute.rate_limiter import Group
from muster.gcp.api import NOT_FOUND, PAGE, CloudError, last
from muster.gcp.names import job_placement, of_jobs

log = logging.getLogger("muster")

NO_RIGHTS = "forbidden"
"""The controller may change policies only while a node set is compact:
pulumi/components/role_bindings.py. Policies left after that cost nothing, and
muster/gcp/sweep.py deletes them with the cluster."""


class Placements:
    """The policies of a cluster's jobs."""

    def __init__(
        self,
        transport: Transport,
        operations: Operations,
        project: str,
        cluster: str,
        *,
        clock: Clock,
    ) -> None:
        self._transport = transport
        self._operations = operations
        self._project = f"projects/{project}"
        self._cluster = cluster
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[str, str] = {}
        """Name -> region."""
        self._held: Counter[str] = Counter()
        """Names of those whose VMs are being created."""
        self._listed = False

    @contextmanager
    def held(self, job: int, zone: str, until: float) -> Iterator[str]:
        """Create a job's policy if there is none, and keep it in the block; yields its name.

        Raises:
            CloudError: it can't be created.

        """
        name, region = job_placement(self._cluster, job), zone.rpartition("-")[0]
        with self._lock:
            self._held[name] += 1
        try:
            self._create(name, region, until)
            with self._lock:
                self._known[name] = region
            yield name
        finally:
            with self._lock:
                self._held[name] -= 1
                if not self._held[name]:
                    del self._held[name]

    def _create(self, name: str, region: str, until: float) -> None:
        try:
            operation = self._transport.call(
                "resourcePolicies.insert",
                "POST",
                f"{self._project}/regions/{region}/resourcePolicies",
                until=until,
                groups=(Group.MUTATE,),
                body={"name": name, "groupPlacementPolicy": {"collocation": "COLLOCATED"}},
                query={"requestId": uuid.uuid4()},
            )
        except CloudError as error:
            if error.reason in errors.EXISTS:
                return
            raise
        why = errors.of_operation(self._operations.wait(operation, until))
        if why and why.code not in errors.EXISTS:
            raise CloudError(f"placement policy {name}: {why.message}", why.status, why.code)

    def delete_unused(self, used: Mapping[str, str]) -> None:
        """Delete the policies that no VM uses; `used`: name -> region, by a list of all VMs.

        It raises nothing: errors go to the log, and the next call tries again.
        """
        try:
            self._sweep(used)
        except Exception:  # such as an answer that is not as Google documents it
            log.exception("placement policies of ended jobs may be left")

    def _sweep(self, used: Mapping[str, str]) -> None:
        with self._lock:
            # Other policies belong to node sets or to users, who delete them.
            ours = job_placement(self._cluster, 0).removesuffix("0")
            self._known |= {
                name: region
                for name, region in used.items()
                if name.startswith(ours) and name.removeprefix(ours).isdigit()
            }
            known = bool(self._known)
        if known and not self._listed:
            # An earlier run of the daemon may have left some.
            self._list()
        with self._lock:
            unused = {
                name: region
                for name, region in self._known.items()
                if name not in used and name not in self._held
            }
        for name, region in unused.items():
            self._delete(name, region)

    def _list(self) -> None:
        pages = self._transport.pages(
            "resourcePolicies.aggregatedList",
            f"{self._project}/aggregated/resourcePolicies",
            until=self._soon(),
            query={
                "filter": of_jobs(self._cluster),
                "fields": "items/*/resourcePolicies/name,nextPageToken",
                "maxResults": PAGE,
            },
        )
        try:
            policies = {
                policy["name"]: last(region)
                for page in pages
                for region, scope in page.get("items", {}).items()
                for policy in scope.get("resourcePolicies", ())
            }
        except CloudError as error:
            # Without the right to list policies it may not delete any, so it doesn't list again.
            self._listed = error.reason == NO_RIGHTS
            message = f"placement policies: {error}"
            self._transport.refusals.add("resourcePolicies.aggregatedList", error.reason, message)
            return
        with self._lock:
            self._known |= policies
        self._listed = True

    def _delete(self, name: str, region: str) -> None:
        with self._lock:
            if name in self._held:
                # Its job is queued again, and its VMs are created: other deletions took a while.
                return
        try:
            self._transport.call(
                "resourcePolicies.delete",
                "DELETE",
                f"{self._project}/regions/{region}/resourcePolicies/{name}",
                until=self._soon(),
                groups=(Group.MUTATE,),
                query={"requestId": uuid.uuid4()},
                urgent=False,
            )
        except CloudError as error:
            if error.reason == NO_RIGHTS:
                self._forget(name)
                log.warning(
                    "placement policy %s stays until `pulumi destroy` and costs nothing: %s",
                    name,
                    error,
                )
                return
            if error.status != NOT_FOUND:
                # Mostly because a VM that isn't listed yet uses it; the next call tries again.
                message = f"placement policy {name} stays: {error}"
                self._transport.refusals.add("resourcePolicies.delete", error.reason, message)
                return
        self._forget(name)

    def _forget(self, name: str) -> None:
        with self._lock:
            self._known.pop(name, None)

    def _soon(self) -> float:
        return self._clock.monotonic() + self._transport.limits.try_s
