"""Google's edge of the autoscaler: what VMs there are; makes and deletes them; looks at one.

`submit` returns at once, and each action has exactly one event, also where Google refuses, hangs or
loses answers: a little after `Limits.deadline_s` at the latest (of a deletion, after its turn). The
code of its failure is then `notSent`, or `timeout` where nobody knows what comes of it.
"""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import google.auth.transport.urllib3
import urllib3
from google.auth.credentials import Credentials

from muster.autoscaler.compute import errors
from muster.autoscaler.compute.credentials import Token
from muster.autoscaler.compute.delete import Deletes
from muster.autoscaler.compute.http import Called, Limits, Transport
from muster.autoscaler.compute.insert import Inserts
from muster.autoscaler.compute.operations import Operations
from muster.autoscaler.compute.rate_limiter import Group
from muster.autoscaler.reconcile.model import (
    Delete,
    Event,
    Insert,
    Inserted,
    Probe,
    ProbeResult,
    Vm,
)
from muster.catalog import accelerators
from muster.catalog.quotas import counts
from muster.gcp.api import NOT_FOUND, PAGE, CloudError, endpoint, last
from muster.gcp.api import credentials as default_credentials
from muster.gcp.names import NODE, of_cluster
from muster.gcp.reports import ATTRIBUTE

log = logging.getLogger("muster")

VM_FIELDS = (
    "items/*/instances(name,zone,status,creationTimestamp,machineType,"
    "scheduling/provisioningModel,guestAccelerators,resourcePolicies),nextPageToken"
)
INSERTERS = 256
"""Inserts under way; nearly all of them wait for Google. Threads are started as they are needed."""
LOOKERS = 16
INSERT_PAUSES_S = (0.5, 4.0)
DELETE_PAUSES_S = (5.0, 10.0)
"""A deletion takes half a minute, and nothing waits for its end."""

Tell = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Budget:
    """What Google was asked for, for metrics."""

    calls: dict[tuple[str, str], int]
    """(method, HTTP status or Google's reason) -> how often."""
    waited_s: dict[str, float]
    """Group of methods -> seconds that calls have waited to stay below the rate limit."""
    pace: dict[str, float]
    """Group of methods -> part of its rate that is used at present; below 1: Google said so."""
    left: dict[str, int]
    """Group of methods -> calls that may be sent now without a wait."""
    bulk: int
    """Bulk operations under way."""


class Google:
    """The VMs of one cluster in one project."""

    def __init__(
        self,
        project: str,
        cluster: str,
        tell: Tell,
        limits: Limits | None = None,
        credentials: Credentials | None = None,
        *,
        called: Called = lambda *_: None,
    ) -> None:
        """Begin; `tell` and `called` are called from several threads and must not wait.

        Raises:
            CloudError: there are no credentials.

        """
        self.limits = limits or Limits()
        self._tell = tell
        self._cluster = cluster
        self._project = f"projects/{project}"
        self._stop = threading.Event()
        token = Token(
            credentials or default_credentials(on_vm=True),
            google.auth.transport.urllib3.Request(urllib3.PoolManager()),  # type: ignore[no-untyped-call]
            self._stop,
        )
        self._transport = Transport(endpoint("COMPUTE"), token, self.limits, self._stop, called)
        operations = Operations(self._transport, project, INSERT_PAUSES_S, self._stop)
        deletions = Operations(self._transport, project, DELETE_PAUSES_S, self._stop)
        self._inserts = Inserts(self._transport, operations, project, cluster)
        self._deletes = Deletes(self._transport, deletions, self._project, self._say, self._stop)
        self._inserters = ThreadPoolExecutor(INSERTERS, "insert")
        self._lookers = ThreadPoolExecutor(LOOKERS, "look")

    def close(self) -> None:
        """End; what is under way at Google goes on there, and no more events are told.

        The daemon ends with its process and needs none of this; whoever lives longer does.
        """
        self._stop.set()
        for pool in (self._inserters, self._lookers):
            pool.shutdown(wait=False, cancel_futures=True)

    def vms(self) -> list[Vm]:
        """Return all VMs of the cluster's nodes, in all zones, by one call per 500.

        Placement policies of jobs that have no VM any more are deleted in passing.

        Raises:
            CloudError: they can't be listed; never a part of them.

        """
        until = time.monotonic() + self.limits.deadline_s / 2
        pages = self._transport.pages(
            "instances.aggregatedList",
            f"{self._project}/aggregated/instances",
            until=until,
            query={
                "filter": of_cluster(self._cluster, NODE),
                "fields": VM_FIELDS,
                "maxResults": PAGE,
            },
        )
        found = [
            (each, last(zone))
            for page in pages
            for zone, scope in page.get("items", {}).items()
            for each in scope.get("instances", ())
        ]
        used = {
            last(policy): zone.rpartition("-")[0]
            for each, zone in found
            for policy in each.get("resourcePolicies", ())
        }
        self._lookers.submit(self._inserts.placements.seen, used)
        return [_vm(each, zone) for each, zone in found]

    def quotas(self, region: str) -> dict[str, float]:
        """Return what is left of each metric in a region, with those of all regions together.

        https://cloud.google.com/compute/resource-usage

        Raises:
            CloudError: they can't be read.

        """
        until = time.monotonic() + self.limits.try_s
        left: dict[str, float] = {}
        for method, path in (
            ("projects.get", self._project),
            ("regions.get", f"{self._project}/regions/{region}"),
        ):
            found = self._transport.call(
                method,
                "GET",
                path,
                until=until,
                groups=(Group.READ,),
                query={"fields": "quotas(metric,limit,usage)"},
            )
            for each in found.get("quotas", ()):
                if counts(each["metric"], each["limit"]):
                    left[each["metric"]] = each["limit"] - each.get("usage", 0)
        return left

    def budget(self) -> Budget:
        """Return what was used until now."""
        buckets = self._transport.buckets
        return Budget(
            calls=dict(self._transport.calls),
            waited_s={group: bucket.waited_s for group, bucket in buckets.items()},
            pace={group: bucket.pace for group, bucket in buckets.items()},
            left={group: bucket.left for group, bucket in buckets.items()},
            bulk=len(self._inserts.bulk),
        )

    def submit(self, action: Insert | Delete | Probe) -> None:
        """Have something done; its event comes through `tell`."""
        until = time.monotonic() + self.limits.deadline_s
        if isinstance(action, Insert):
            self._inserters.submit(self._insert, action, until)
        elif isinstance(action, Delete):
            self._deletes.submit(action.vm)
        else:
            self._lookers.submit(self._look, action, until)

    def _insert(self, action: Insert, until: float) -> None:
        try:
            self._say(self._inserts.run(action, until))
        except Exception as error:
            # Whatever it is: without an event the plan would wait for this insert for ever.
            log.exception("not foreseen")
            self._say(Inserted(action.id, whole=errors.unforeseen(error)))

    def _look(self, action: Probe, until: float) -> None:
        path = f"{self._project}/zones/{action.zone}/instances/{action.name}"
        try:
            self._say(self._seen(action, path, until))
        except CloudError as error:
            self._say(
                ProbeResult(action.name, action.zone, exists=False, failure=errors.of_call(error))
            )
        except Exception as error:
            # As above: each look has its event.
            log.exception("not foreseen")
            why = errors.unforeseen(error)
            self._say(ProbeResult(action.name, action.zone, exists=False, failure=why))

    def _seen(self, action: Probe, path: str, until: float) -> ProbeResult:
        """Ask for the report, which says that the VM exists; without one, for the VM."""
        try:
            found = self._transport.call(
                "instances.getGuestAttributes",
                "GET",
                f"{path}/getGuestAttributes",
                until=until,
                groups=(Group.READ,),
                query={"queryPath": ATTRIBUTE},
            )
            items = found.get("queryValue", {}).get("items") or [{}]
            return ProbeResult(
                action.name, action.zone, exists=True, report=items[0].get("value", "")
            )
        except CloudError as error:
            if error.status != NOT_FOUND:
                raise
        try:
            self._transport.call(
                "instances.get",
                "GET",
                path,
                until=until,
                groups=(Group.READ,),
                query={"fields": "status"},
            )
        except CloudError as error:
            if error.status != NOT_FOUND:
                raise
            return ProbeResult(action.name, action.zone, exists=False)
        return ProbeResult(action.name, action.zone, exists=True)

    def _say(self, event: Event) -> None:
        if not self._stop.is_set():
            self._tell(event)


def _vm(found: dict[str, Any], zone: str) -> Vm:
    machine_type = last(found.get("machineType", ""))
    return Vm(
        name=found["name"],
        zone=zone,
        status=found["status"],
        created=datetime.fromisoformat(found["creationTimestamp"]).timestamp(),
        machine_type=machine_type,
        spot=found.get("scheduling", {}).get("provisioningModel") == "SPOT",
        gpus=attached_gpus(machine_type, found.get("guestAccelerators", [])),
    )


def attached_gpus(machine_type: str, listed: list[dict[str, Any]]) -> str:
    """The GPUs that are attached to a VM; Google may list those of a machine type as well."""
    shape = accelerators.machine(machine_type)
    if not listed or shape is None or not accelerators.taken_by(shape):
        return ""
    # One VM has GPUs of one type.
    return accelerators.of_api(listed[0]["acceleratorType"], listed[0]["acceleratorCount"])
