"""Creates VMs: one bulkInsert per action, or a few single inserts if too many bulkInserts run.

If Google refuses a bulkInsert for a right on a VM `unusedName`, all VMs get single inserts: it
checks rights before it knows the names, and the controller's hold for the names of its node sets.

https://cloud.google.com/compute/docs/instances/multiple/about-bulk-creation

A VM has the name of its node, and the requestId is computed from the action. So a retry or a
restarted daemon never creates a VM twice. If a name exists already, this is success if the VM is
ours and up.

Nothing is deleted here. If Google creates fewer VMs than a job needs, the result says which names
have none: a VM that exists may be that of a node in service.
"""

import logging
import math
import re
import uuid
from typing import Any

from muster.autoscaler.clock import Clock
from muster.autoscaler.compute import errors
from muster.autoscaler.compute.api_client import Transport
from muster.autoscaler.compute.existing import ExistingVms
from muster.autoscaler.compute.operations import Operation, Operations
from muster.autoscaler.compute.placement_policy import Placements
from muster.autoscaler.compute.rate_limiter import Group
from muster.autoscaler.compute.zones import Slots
from muster.autoscaler.reconcile.model import Failure, Insert, Inserted
from muster.gcp.api import PAGE, CloudError, last

log = logging.getLogger("muster")

NAMESPACE = uuid.UUID("5f1c8f0e-2d0b-4a55-8f0a-6b9f5f1f3a60")
FEW = 4
"""If no bulk operation can start, at most this number of VMs are created one by one."""
LEFT_TO_OTHERS = 2
"""How many bulk operations a zone leaves to the others, in case it does not answer."""
LATE = 0.25
"""In this last part of an action's time no bulk operation starts: it would end too late."""
AGAIN_S = 1.0
"""Seconds until a retry, if Google says that a name exists, but its VM can't be found."""
NO_BULK_S = 600.0
"""After that a bulkInsert is tried again: the right may be granted by then."""
LISTS = 3
"""How often to list the VMs, if Google doesn't say which ones it has not created."""
CHILD_FIELDS = "items(targetLink,error/errors(code,message),httpErrorStatusCode),nextPageToken"
NOT_MADE = Failure(
    "notMade", "Google created only some of the VMs and does not say why not this one"
)
PLACEHOLDER = "/instances/unusedName'"
"""In messages of Google where a right on the VMs of a bulkInsert lacks."""
# "The resource 'projects/P/zones/Z/instances/N' already exists"
EXISTING_NAME = re.compile(r"instances/([a-z0-9-]+)'")


class Inserts:
    """Creates the VMs of a cluster; thread-safe."""

    def __init__(
        self,
        transport: Transport,
        operations: Operations,
        project: str,
        cluster: str,
        *,
        clock: Clock,
    ) -> None:
        self.transport = transport
        self.operations = operations
        self.project = project
        self.clock = clock
        self.existing = ExistingVms(transport, project, cluster)
        self.placements = Placements(transport, operations, project, cluster, clock=clock)
        most = transport.limits.bulk_at_once
        self.slots = Slots(most, max(1, most - LEFT_TO_OTHERS))
        self.bulk: set[str] = set()
        """Ids of the actions whose bulk operations run."""
        self.no_bulk_until = -math.inf
        """Google has refused one because it does not know the names: until then none is sent."""

    def run(self, action: Insert, until: float) -> Inserted:
        """Create the VMs; return when each exists or has failed."""
        try:
            if not action.placement:
                return _Creation(self, action, until).run()
            with self.placements.held(action.job, action.choice.zone, until) as policy:
                return _Creation(self, action, until, policy).run()
        except CloudError as error:
            return Inserted(action.id, whole=errors.of_call(error))


class _Creation:
    """One action in progress."""

    def __init__(self, inserts: Inserts, action: Insert, until: float, policy: str = "") -> None:
        self.inserts = inserts
        self.action = action
        self.until = until
        self.names = list(action.names)
        """VMs still to be created."""
        self.made: set[str] = set()
        """Those that have a VM, some perhaps from before."""
        self.failed: dict[str, Failure] = {}
        self.round = 0
        self.policy = policy
        """Name of the placement policy; empty: that of the template."""
        self.instances = f"projects/{inserts.project}/zones/{action.choice.zone}/instances"

    def run(self) -> Inserted:
        try:
            why = self._rounds()
        except CloudError as error:
            why = errors.of_call(error)
        lacking = [name for name in self.action.names if name not in self.made]
        if not lacking:
            return Inserted(self.action.id)
        why = why or errors.commonest(self.failed)
        failed = {name: self.failed.get(name, why) for name in lacking}
        if not self.made and len({failure.code for failure in failed.values()}) == 1:
            return Inserted(self.action.id, whole=errors.commonest(failed))
        return Inserted(self.action.id, failed)

    def _rounds(self) -> Failure | None:
        """Create the VMs; return why some have not been tried any more, or none was created."""
        why: Failure | None = None
        while self.names and not why:
            self.round += 1
            if len(self.made) + len(self.names) < self.action.least:
                return errors.commonest(self.failed)
            singly = self.inserts.clock.monotonic() < self.inserts.no_bulk_until
            if not singly and self._slot():
                try:
                    self.inserts.bulk.add(self.action.id)
                    why = self._bulk()
                finally:
                    self.inserts.bulk.discard(self.action.id)
                    self.inserts.slots.give_back(self.action.choice.zone)
            elif singly or len(self.names) <= FEW:
                self._one_by_one()
            else:
                return Failure("notSent", "too many bulk operations were running all the time")
        return why

    def _slot(self) -> bool:
        """Wait until a bulk operation can start; return whether it can. A few VMs don't wait."""
        late = self.until - LATE * self.inserts.transport.limits.deadline_s
        clock, slots, zone = self.inserts.clock, self.inserts.slots, self.action.choice.zone
        patience = 0 if len(self.names) <= FEW else late - clock.monotonic()
        return clock.wait(lambda seconds: slots.take(zone, seconds), patience)

    # --- all with one call ------------------------------------------------------------------------

    def _bulk(self) -> Failure | None:
        """Create them with one call; return why none was. Those left in `names` are tried again."""
        body: dict[str, Any] = {
            "count": len(self.names),
            "minCount": max(1, self.action.least - len(self.made)),
            "sourceInstanceTemplate": self.action.choice.template,
            "perInstanceProperties": {name: {} for name in self.names},
        }
        if self.policy:
            # A name here, and a URL in `_one`:
            # https://cloud.google.com/compute/docs/reference/rest/v1/instances/bulkInsert
            body["instanceProperties"] = {"resourcePolicies": [self.policy]}
        try:
            operation = self.inserts.transport.call(
                "instances.bulkInsert",
                "POST",
                f"{self.instances}/bulkInsert",
                until=self.until,
                groups=(Group.BULK, Group.MUTATE),
                body=body,
                query={"requestId": self._request_id(*self.names)},
            )
        except CloudError as error:
            if PLACEHOLDER in error.message:
                log.warning("VMs are created one by one: %s", error.message)
                self.inserts.no_bulk_until = self.inserts.clock.monotonic() + NO_BULK_S
                return None
            if error.reason not in errors.EXISTS:
                raise
            self._sort_out(set(EXISTING_NAME.findall(error.message)))
            return None
        return self._bulk_ended(self.inserts.operations.wait(operation, self.until))

    def _bulk_ended(self, operation: Operation | None) -> Failure | None:
        whole = errors.of_operation(operation)
        if operation is None:
            return whole
        lacking = _lacking(operation)
        # If the operation gives no number, some VMs may be missing.
        failed = self._children(operation) if whole or lacking != 0 else {}
        if not whole and lacking:
            failed |= self._unnamed(failed, lacking - len(failed))
        existing = {name for name in failed if failed[name].code in errors.EXISTS}
        others = {name: why for name, why in failed.items() if name not in existing}
        if whole and not existing:
            # The bulk operation says only that too few were created; the single VMs say why.
            self.failed |= others
            return errors.commonest(others, whole)
        left = self.names
        if not whole:
            self.failed |= others
            self.made |= set(left) - failed.keys()
        self.names = list(existing)
        self._sort_out(existing)
        if whole:
            # Google has created none of the others, so try them again.
            self.names += [name for name in left if name not in existing]
        return None

    def _children(self, operation: Operation) -> dict[str, Failure]:
        """Return why single VMs were not created: read the failed operations of the group."""
        group = operation.get("operationGroupId")
        if not group:
            return {}
        pages = self.inserts.transport.pages(
            "zoneOperations.list",
            f"{self.instances.rpartition('/')[0]}/operations",
            until=self.until,
            query={
                "filter": f"(operationGroupId={group}) AND (operationType=insert)",
                "fields": CHILD_FIELDS,
                "maxResults": PAGE,
            },
        )
        why = {
            last(child["targetLink"]): errors.of_operation(child)
            for page in pages
            for child in page.get("items", ())
        }
        return {name: failure for name, failure in why.items() if failure}

    def _unnamed(self, failed: dict[str, Failure], count: int) -> dict[str, Failure]:
        """Find the `count` VMs that Google has not created, if Google doesn't name them.

        The list of VMs shows them. A list may be too old: it is good only if at most `count` VMs
        are missing in it. If no list is good, all VMs count as created. If a VM is missing in later
        lists too, reconcile tries it again.
        """
        expected = [name for name in self.names if name not in failed]
        for _ in range(LISTS if count > 0 else 0):
            existing = self.inserts.existing.find(self.action.choice.zone, expected, (), self.until)
            absent = [name for name in expected if name not in existing]
            if len(absent) <= count:
                return dict.fromkeys(absent, NOT_MADE)
            if not self.inserts.transport.pause(AGAIN_S, self.until):
                break
        return {}

    # --- one by one -------------------------------------------------------------------------------

    def _one_by_one(self) -> None:
        """Create a few VMs with one call each, until fewer than `least` can be created."""
        names, self.names = self.names, []
        operations: dict[str, Operation] = {}
        refused = 0
        for name in names:
            try:
                operations[name] = self._one(name)
            except CloudError as error:
                if error.reason in errors.EXISTS:
                    self.names.append(name)
                    continue
                self.failed[name] = errors.of_call(error)
                refused += 1
                if len(self.made) + len(names) - refused < self.action.least:
                    break
        for name, operation in operations.items():
            why = errors.of_operation(self.inserts.operations.wait(operation, self.until))
            if why is None:
                self.made.add(name)
            elif why.code in errors.EXISTS:
                self.names.append(name)
            else:
                self.failed[name] = why
        self._sort_out(set(self.names))

    def _one(self, name: str) -> Operation:
        body: dict[str, Any] = {"name": name}
        if self.policy:
            region = self.action.choice.zone.rpartition("-")[0]
            place = f"projects/{self.inserts.project}/regions/{region}"
            body["resourcePolicies"] = [f"{place}/resourcePolicies/{self.policy}"]
        return self.inserts.transport.call(
            "instances.insert",
            "POST",
            self.instances,
            until=self.until,
            groups=(Group.MUTATE,),
            body=body,
            query={
                "sourceInstanceTemplate": self.action.choice.template,
                "requestId": self._request_id(name),
            },
        )

    # --- names that exist already -----------------------------------------------------------------

    def _sort_out(self, reported: set[str]) -> None:
        """Look up the VMs with these `names`; names without a VM stay in the list.

        Raises:
            CloudError: at the deadline Google still says that names exist, but no VM is found.

        """
        if not self.names:
            return
        zone = self.action.choice.zone
        problems = self.inserts.existing.find(zone, self.names, reported, self.until)
        self.names = [name for name in self.names if name not in problems]
        for name, problem in problems.items():
            if problem:
                self.failed[name] = problem
            else:
                self.made.add(name)
        if not problems and not self.inserts.transport.pause(AGAIN_S, self.until):
            raise CloudError("names exist, but no VMs with them can be found", 0, "timeout")

    def _request_id(self, *names: str) -> uuid.UUID:
        """Return the same id for the same names in the same round, also after a restart."""
        return uuid.uuid5(NAMESPACE, " ".join((self.action.id, str(self.round), *names)))


def _lacking(operation: Operation) -> int | None:
    """Return how many VMs were not created; None: the operation doesn't say it.

    failedToCreateVmCount counts only VMs that were started, not VMs without capacity:
    https://cloud.google.com/compute/docs/reference/rest/v1/zoneOperations
    """
    places = operation.get("instancesBulkInsertOperationMetadata", {}).get("perLocationStatus", {})
    counts = [
        (place.get("targetVmCount"), place.get("createdVmCount")) for place in places.values()
    ]
    if not counts or any(None in pair for pair in counts):
        return None
    return sum(int(target) - int(created) for target, created in counts)
