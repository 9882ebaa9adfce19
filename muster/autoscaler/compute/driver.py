"""The autoscaler's driver for Compute Engine: lists, creates, deletes and probes VMs.

`submit` returns at once, and each action gets exactly one event, also where Google refuses, hangs
or loses answers: at the latest a little after `Limits.deadline_s` (of a deletion, counted from its
first call, for which it may wait for long: see `delete`). The code of its failure is then
`notSent`, or `timeout` where the outcome is unknown.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import google.auth.transport.urllib3
import urllib3
from google.auth.credentials import Credentials

from muster.autoscaler.clock import Clock
from muster.autoscaler.compute import errors
from muster.autoscaler.compute.api_client import Limits, OnCall, Transport
from muster.autoscaler.compute.credentials import Token
from muster.autoscaler.compute.delete import Deletes
from muster.autoscaler.compute.insert import Inserts
from muster.autoscaler.compute.operations import Operations
from muster.autoscaler.compute.rate_limiter import Group
from muster.autoscaler.compute.vm_list import VmLister
from muster.autoscaler.compute.zones import Pools
from muster.autoscaler.reconcile.model import (
    Delete,
    Event,
    Insert,
    Inserted,
    Probe,
    ProbeResult,
    VmList,
    Withdraw,
)
from muster.catalog.quotas import counts
from muster.gcp.api import NOT_FOUND, CloudError, endpoint, last
from muster.gcp.api import credentials as default_credentials
from muster.gcp.names import is_node_of
from muster.gcp.reports import ATTRIBUTE

log = logging.getLogger("muster")

QUOTAS = "quotas(metric,limit,usage)"
INSERTERS = 256
"""Inserts of a zone at the same time; most of them wait for Google."""
PROBERS = 16
"""Probes of a zone at the same time."""
INSERT_PAUSES_S = (0.5, 4.0)
DELETE_PAUSES_S = (5.0, 10.0)
"""A deletion takes half a minute, and mostly nothing waits for its end."""

Tell = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Region:
    """What is read of a region."""

    left: Mapping[str, float]
    """Quota's metric -> how much."""
    zones: frozenset[str]


@dataclass(frozen=True, slots=True)
class Budget:
    """The calls to Google until now, for metrics."""

    calls: dict[tuple[str, str], int]
    """(method, HTTP status or Google's reason) -> how often."""
    waited_s: dict[str, float]
    """Group of methods -> seconds that calls waited to stay below the rate limit."""
    pace: dict[str, float]
    """Group of methods -> part of its rate in use now; below 1 after refusals for the rate."""
    left: dict[str, int]
    """Group of methods -> calls that may be sent now without waiting."""
    bulk: int
    """Bulk operations that run now."""


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
        called: OnCall = lambda *_: None,
        clock: Clock = Clock(),
    ) -> None:
        """Start; `tell` and `called` are called from several threads and must not block.

        Raises:
            CloudError: there are no credentials.

        """
        self.limits = limits or Limits()
        self._tell = tell
        self._clock = clock
        self._project = f"projects/{project}"
        self._cluster = cluster
        self._stop = threading.Event()
        token = Token(
            credentials or default_credentials(on_vm=True),
            google.auth.transport.urllib3.Request(urllib3.PoolManager()),  # type: ignore[no-untyped-call]
            self._stop,
            clock=clock,
        )
        transport = Transport(
            endpoint("COMPUTE"), token, self.limits, self._stop, called, clock=clock
        )
        self._transport = transport
        operations = Operations(transport, project, INSERT_PAUSES_S, self._stop, clock=clock)
        deletions = Operations(
            transport, project, DELETE_PAUSES_S, self._stop, clock=clock, urgent=False
        )
        self._vms = VmLister(transport, project, cluster)
        self._inserts = Inserts(transport, operations, project, cluster, clock=clock)
        self._deletes = Deletes(
            transport, deletions, self._project, self._say, self._stop, clock=clock
        )
        self._inserters = Pools(INSERTERS, "insert in")
        self._probers = Pools(PROBERS, "probe in")
        self._sweeper = ThreadPoolExecutor(1, "placement policies")
        self._sweep: Future[None] | None = None
        """The last one that was submitted."""

    def close(self) -> None:
        """Stop. Operations at Google continue there, and there are no more events."""
        self._stop.set()
        self._inserters.close()
        self._probers.close()
        self._sweeper.shutdown(wait=False, cancel_futures=True)

    def vms(self) -> VmList:
        """Return all VMs of the cluster's nodes, in all zones: see `VmLister`.

        Also starts to delete placement policies that no VM uses any more.

        Raises:
            CloudError: they can't be listed; a part of them is never returned.

        """
        until = self._clock.monotonic() + self.limits.deadline_s / 2
        vms = self._vms.read(until)
        if self._sweep is None or self._sweep.running() or self._sweep.done():
            self._sweep = self._sweeper.submit(self._delete_policies)
        return vms

    def _delete_policies(self) -> None:
        # By the newest list: it may have waited for an earlier one that hangs.
        self._inserts.placements.delete_unused(self._vms.policies)

    def region(self, name: str) -> Region:
        """Return what is left of each quota in a region and in all regions, and its zones.

        https://cloud.google.com/compute/resource-usage

        Raises:
            CloudError: they can't be read.

        """
        until = self._clock.monotonic() + self.limits.try_s
        left: dict[str, float] = {}
        zones: list[str] = []
        for method, path, fields in (
            ("projects.get", self._project, QUOTAS),
            ("regions.get", f"{self._project}/regions/{name}", f"{QUOTAS},zones"),
        ):
            resource = self._transport.call(
                method,
                "GET",
                path,
                until=until,
                groups=(Group.READ,),
                query={"fields": fields},
            )
            for quota in resource.get("quotas", ()):
                if counts(quota["metric"], quota["limit"]):
                    left[quota["metric"]] = quota["limit"] - quota.get("usage", 0)
            zones += [last(zone) for zone in resource.get("zones", ())]
        return Region(left, frozenset(zones))

    def budget(self) -> Budget:
        """Return the calls until now."""
        buckets = self._transport.buckets
        return Budget(
            calls=dict(self._transport.calls),
            waited_s={group: bucket.waited_s for group, bucket in buckets.items()},
            pace={group: bucket.pace for group, bucket in buckets.items()},
            left={group: bucket.left for group, bucket in buckets.items()},
            bulk=len(self._inserts.bulk),
        )

    def submit(self, action: Insert | Delete | Withdraw | Probe) -> None:
        """Start an action; `tell` gets its event."""
        until = self._clock.monotonic() + self.limits.deadline_s
        if isinstance(action, Insert):
            self._inserters.submit(action.choice.zone, self._insert, action, until)
        elif isinstance(action, Delete):
            self._deletes.submit(action.vm, urgent=action.urgent)
        elif isinstance(action, Withdraw):
            self._deletes.withdraw(action.vm)
        else:
            self._probers.submit(action.zone, self._probe, action, until)

    def send_deletions_until(self, time: float) -> None:
        """Say until when deletions may be sent that wait; before this is said none is."""
        self._deletes.send_until(time)

    def _insert(self, action: Insert, until: float) -> None:
        try:
            self._say(self._inserts.run(action, until))
        except Exception as error:
            # Without an event, reconcile would wait for this insert for ever.
            log.exception("unexpected error")
            self._say(Inserted(action.id, whole=errors.unexpected(error)))

    def _probe(self, action: Probe, until: float) -> None:
        path = f"{self._project}/zones/{action.zone}/instances/{action.name}"
        try:
            self._say(self._probe_result(action, path, until))
        except CloudError as error:
            self._say(
                ProbeResult(
                    action.name,
                    action.zone,
                    exists=False,
                    failure=errors.of_call(error),
                    of_report=action.report,
                )
            )
        except Exception as error:
            # As above: each probe must get its event.
            log.exception("unexpected error")
            why = errors.unexpected(error)
            self._say(
                ProbeResult(
                    action.name, action.zone, exists=False, failure=why, of_report=action.report
                )
            )

    def _probe_result(self, action: Probe, path: str, until: float) -> ProbeResult:
        """Read the VM's report, if asked for, which exists only with the VM; else read the VM.

        A VM that is not a node of this cluster does not count: lists don't have it either.
        """
        result = ProbeResult(action.name, action.zone, exists=True, of_report=action.report)
        if action.report:
            query = {"queryPath": ATTRIBUTE}
            method = "instances.getGuestAttributes"
            attributes = self._read(method, f"{path}/getGuestAttributes", until, query)
            if attributes is not None:
                items = attributes.get("queryValue", {}).get("items") or [{}]
                return replace(result, report=items[0].get("value", ""))
        vm = self._read("instances.get", path, until, {"fields": "id,status,labels"})
        if vm is None or not is_node_of(self._cluster, vm.get("labels", {})):
            return replace(result, exists=False)
        return replace(result, id=vm.get("id", ""), status=vm.get("status", ""))

    def _read(
        self, method: str, path: str, until: float, query: dict[str, str]
    ) -> dict[str, Any] | None:
        """Return Google's answer; None: there is no such thing."""
        try:
            return self._transport.call(
                method, "GET", path, until=until, groups=(Group.READ,), query=query
            )
        except CloudError as error:
            if error.status == NOT_FOUND:
                return None
            raise

    def _say(self, event: Event) -> None:
        if not self._stop.is_set():
            self._tell(replace(event, at=self._clock.monotonic()))
