"""Placement policies: the nodes of one job near each other, by a policy that is theirs alone.

https://cloud.google.com/compute/docs/instances/use-compact-placement-policies

A policy is made before its job's VMs and deleted when no VM has it any more. Google refuses to
delete one that is in use, so a list of VMs that is behind does no harm.
"""

import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from muster.autoscaler.compute import errors
from muster.autoscaler.compute.http import Transport
from muster.autoscaler.compute.operations import Operations
from muster.autoscaler.compute.rate_limiter import Group
from muster.gcp.api import NOT_FOUND, PAGE, CloudError, last
from muster.gcp.names import job_placement, of_jobs

log = logging.getLogger("muster")

NO_RIGHTS = "forbidden"
"""The controller has rights to policies while a node set is compact: pulumi/components/rights.py.
What it may not delete then costs nothing, and goes with the cluster (muster/gcp/sweep.py)."""


class Placements:
    """The policies of a cluster's jobs."""

    def __init__(
        self, transport: Transport, operations: Operations, project: str, cluster: str
    ) -> None:
        self._transport = transport
        self._operations = operations
        self._project = f"projects/{project}"
        self._cluster = cluster
        self._lock = threading.Lock()
        self._known: dict[str, str] = {}
        """Name -> region."""
        self._held: Counter[str] = Counter()
        """Names of those whose VMs are being made."""
        self._listed = False

    @contextmanager
    def held(self, job: int, zone: str, until: float) -> Iterator[str]:
        """Make a job's policy where there is none, and keep it meanwhile; gives its name.

        Raises:
            CloudError: it can't be made.

        """
        name, region = job_placement(self._cluster, job), zone.rpartition("-")[0]
        with self._lock:
            self._held[name] += 1
        try:
            self._make(name, region, until)
            with self._lock:
                self._known[name] = region
            yield name
        finally:
            with self._lock:
                self._held[name] -= 1

    def _make(self, name: str, region: str, until: float) -> None:
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

    def seen(self, used: Mapping[str, str]) -> None:
        """Delete the policies that no VM has; `used`: name -> region, by a list of all VMs.

        It raises nothing: whatever goes wrong is in the log, and the next list tries again.
        """
        try:
            self._sweep(used)
        except Exception:  # such as an answer that is not as Google documents it
            log.exception("placement policies of jobs that have ended may be left")

    def _sweep(self, used: Mapping[str, str]) -> None:
        with self._lock:
            # Others are node sets' or somebody's, who deletes them.
            ours = job_placement(self._cluster, 0).removesuffix("0")
            self._known |= {
                name: region
                for name, region in used.items()
                if name.startswith(ours) and name.removeprefix(ours).isdigit()
            }
            known = bool(self._known)
        if known and not self._listed:
            # A daemon before this one may have left some.
            self._list()
        with self._lock:
            idle = {
                name: region
                for name, region in self._known.items()
                if name not in used and not self._held[name]
            }
        for name, region in idle.items():
            self._delete(name, region)

    def _list(self) -> None:
        found = self._transport.pages(
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
                each["name"]: last(region)
                for page in found
                for region, scope in page.get("items", {}).items()
                for each in scope.get("resourcePolicies", ())
            }
        except CloudError as error:
            # Without rights it could not delete what it found, either.
            self._listed = error.reason == NO_RIGHTS
            log.warning("placement policies: %s", error)
            return
        with self._lock:
            self._known |= policies
        self._listed = True

    def _delete(self, name: str, region: str) -> None:
        try:
            self._transport.call(
                "resourcePolicies.delete",
                "DELETE",
                f"{self._project}/regions/{region}/resourcePolicies/{name}",
                until=self._soon(),
                groups=(Group.MUTATE,),
                query={"requestId": uuid.uuid4()},
            )
        except CloudError as error:
            if error.reason == NO_RIGHTS:
                self._forget(name)
                log.warning(
                    "placement policy %s stays, costs nothing, and goes with `pulumi destroy`: %s",
                    name,
                    error,
                )
                return
            if error.status != NOT_FOUND:
                # In use by a VM that isn't listed yet, mostly; the next list tells.
                log.info("placement policy %s stays: %s", name, error)
                return
        self._forget(name)

    def _forget(self, name: str) -> None:
        with self._lock:
            self._known.pop(name, None)

    def _soon(self) -> float:
        return time.monotonic() + self._transport.limits.try_s
