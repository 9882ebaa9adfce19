"""Making VMs: one bulkInsert each, or a few single inserts where too many of those are under way.

https://cloud.google.com/compute/docs/instances/multiple/about-bulk-creation

A VM's name is its node's name and the requestId follows from the action, so nothing is made twice
by a retry or a successor. A name that is taken is success where it is the VM that is wanted.
"""

import logging
import re
import threading
import time
import uuid
from typing import Any

from muster.autoscaler.compute import errors
from muster.autoscaler.compute.existing import Standing
from muster.autoscaler.compute.http import Transport
from muster.autoscaler.compute.operations import Operation, Operations
from muster.autoscaler.compute.placement_policy import Placements
from muster.autoscaler.compute.rate_limiter import Group
from muster.autoscaler.reconcile.model import Failure, Insert, Inserted
from muster.gcp.api import ALREADY_EXISTS, NOT_FOUND, PAGE, CloudError, last

log = logging.getLogger("muster")

NAMESPACE = uuid.UUID("5f1c8f0e-2d0b-4a55-8f0a-6b9f5f1f3a60")
FEW = 4
"""So many VMs are made one by one where no bulk operation may be started."""
LATE = 0.25
"""Part of an action's time in which nothing large is begun: nobody would know what came of it."""
AGAIN_S = 1.0
"""Seconds until a name that was taken by a VM that nobody finds is asked for again."""
LISTS = 3
"""How often the VMs are listed where Google doesn't say which ones it has not made."""
CHILD_FIELDS = "items(targetLink,error/errors(code,message),httpErrorStatusCode),nextPageToken"
NOT_MADE = Failure("notMade", "Google has made a part of the VMs, and doesn't say why not this one")
# "The resource 'projects/P/zones/Z/instances/N' already exists"
PREEMPTED = re.compile(r"instances/([a-z0-9-]+)'")


class Inserts:
    """Makes the VMs of a cluster; may be used by many threads."""

    def __init__(
        self, transport: Transport, operations: Operations, project: str, cluster: str
    ) -> None:
        self.transport = transport
        self.operations = operations
        self.project = project
        self.standing = Standing(transport, project, cluster)
        self.placements = Placements(transport, operations, project, cluster)
        self.slots = threading.BoundedSemaphore(transport.limits.bulk_at_once)
        self.bulk: set[str] = set()
        """Ids of the actions whose bulk operations are under way."""

    def run(self, action: Insert, until: float) -> Inserted:
        """Make the VMs and wait until Google has made them or not."""
        try:
            if not action.placement:
                return _Making(self, action, until).run()
            with self.placements.held(action.job, action.choice.zone, until) as policy:
                return _Making(self, action, until, policy).run()
        except CloudError as error:
            return Inserted(action.id, whole=errors.of_call(error))


class _Making:
    """One action on its way."""

    def __init__(self, inserts: Inserts, action: Insert, until: float, policy: str = "") -> None:
        self.inserts = inserts
        self.action = action
        self.until = until
        self.names = list(action.names)
        """Those still to be made."""
        self.standing = 0
        """Those that were there already."""
        self.failed: dict[str, Failure] = {}
        self.round = 0
        self.policy = {"resourcePolicies": [policy]} if policy else {}
        """Members of a body that take the template's place."""
        self.instances = f"projects/{inserts.project}/zones/{action.choice.zone}/instances"

    def run(self) -> Inserted:
        ended: Inserted | None = None
        while self.names and ended is None:
            self.round += 1
            if self.standing + len(self.names) < self.action.least:
                return self._none(errors.commonest(self.failed))
            if self._slot():
                try:
                    self.inserts.bulk.add(self.action.id)
                    ended = self._bulk()
                finally:
                    self.inserts.bulk.discard(self.action.id)
                    self.inserts.slots.release()
            elif len(self.names) <= FEW:
                ended = self._one_by_one()
            else:
                return self._none(
                    Failure("notSent", "too many bulk operations were under way all the time")
                )
        return ended or Inserted(self.action.id, self.failed)

    def _slot(self) -> bool:
        """Whether a bulk operation may be started; few VMs don't wait for that."""
        late = self.until - LATE * self.inserts.transport.limits.deadline_s
        patience = 0 if len(self.names) <= FEW else max(0, late - time.monotonic())
        return self.inserts.slots.acquire(timeout=patience)

    def _none(self, why: Failure) -> Inserted:
        return Inserted(self.action.id, self.failed, why)

    # --- all by one call --------------------------------------------------------------------------

    def _bulk(self) -> Inserted | None:
        """Make them by one call; None: done, or what is left in `names` is to be asked for anew."""
        body: dict[str, Any] = {
            "count": len(self.names),
            "minCount": max(1, self.action.least - self.standing),
            "sourceInstanceTemplate": self.action.choice.template,
            "perInstanceProperties": {name: {} for name in self.names},
        }
        if self.policy:
            body["instanceProperties"] = self.policy
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
            if error.reason not in errors.EXISTS:
                raise
            self._sort_out(set(PREEMPTED.findall(error.message)), error)
            return None
        return self._bulk_ended(self.inserts.operations.wait(operation, self.until))

    def _bulk_ended(self, operation: Operation | None) -> Inserted | None:
        whole = errors.of_operation(operation)
        if operation is None:
            return Inserted(self.action.id, self.failed, whole)
        lacking = _lacking(operation)
        # Without a number there may be some.
        failed = self._children(operation) if whole or lacking != 0 else {}
        if not whole and lacking:
            failed |= self._unnamed(failed, lacking - len(failed))
        taken = {name for name in failed if failed[name].code in errors.EXISTS}
        others = {name: why for name, why in failed.items() if name not in taken}
        if whole and not taken:
            # Its own word is that there were too few; theirs is why.
            return Inserted(self.action.id, self.failed | others, errors.commonest(others, whole))
        left = self.names
        self.names = list(taken)
        self._sort_out(taken)
        if whole:
            # All were taken back, but for the names that are no longer asked for.
            self.names += [name for name in left if name not in taken]
        else:
            self.failed |= others
        return None

    def _children(self, operation: Operation) -> dict[str, Failure]:
        """Why single VMs were not made: the operations of the same group that failed."""
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
        """Of VMs that Google has not made and says nothing of: which ones they are, by the list.

        A list may be behind: it is taken for whole when it lacks no more than `count`. Is it never,
        they count as made, and the plan asks again for those that no later list has.
        """
        made = [name for name in self.names if name not in failed]
        for _ in range(LISTS if count > 0 else 0):
            found = self.inserts.standing.find(self.action.choice.zone, made, (), self.until)
            absent = [name for name in made if name not in found]
            if len(absent) <= count:
                return dict.fromkeys(absent, NOT_MADE)
            if not self.inserts.transport.pause(AGAIN_S, self.until):
                break
        return {}

    # --- one by one -------------------------------------------------------------------------------

    def _one_by_one(self) -> Inserted | None:
        """Make a few by a call each, and take them back where they are fewer than the least."""
        names, self.names = self.names, []
        operations: dict[str, Operation] = {}
        for name in names:
            try:
                operations[name] = self._one(name)
            except CloudError as error:
                self.failed[name] = errors.of_call(error)
                if error.reason not in errors.EXISTS and self._too_few(names):
                    break
        for name, operation in operations.items():
            why = errors.of_operation(self.inserts.operations.wait(operation, self.until))
            if why:
                self.failed[name] = why
        taken = {each for each in names if each in self.failed and _is_taken(self.failed[each])}
        self.names = list(taken)
        for name in taken:
            del self.failed[name]
        self._sort_out(taken)
        if not self._too_few(names):
            return None
        for name in operations:
            # Also one whose operation has not ended: it may come yet.
            if name not in self.failed or self.failed[name].code == "timeout":
                self._take_back(name)
        return self._none(errors.commonest(self.failed))

    def _too_few(self, names: list[str]) -> bool:
        bad = sum(name in self.failed for name in names)
        return self.standing + len(names) - bad < self.action.least

    def _one(self, name: str) -> Operation:
        return self.inserts.transport.call(
            "instances.insert",
            "POST",
            self.instances,
            until=self.until,
            groups=(Group.MUTATE,),
            body={"name": name, **self.policy},
            query={
                "sourceInstanceTemplate": self.action.choice.template,
                "requestId": self._request_id(name),
            },
        )

    def _take_back(self, name: str) -> None:
        log.info("%s: deleted, as others of its job could not be made", name)
        try:
            self.inserts.transport.call(
                "instances.delete",
                "DELETE",
                f"{self.instances}/{name}",
                until=max(self.until, time.monotonic() + self.inserts.transport.limits.try_s),
                groups=(Group.MUTATE,),
                query={"requestId": uuid.uuid4()},
            )
        except CloudError as error:
            if error.status != NOT_FOUND:
                # Found by the next list of VMs as one that nobody wants.
                log.warning("%s: %s", name, error)

    # --- names that are taken ---------------------------------------------------------------------

    def _sort_out(self, taken: set[str], error: CloudError | None = None) -> None:
        """Probe who has the names; what nobody has stays in `names`.

        Raises:
            CloudError: Google says to the end that names are taken, and nobody is found.

        """
        if not taken and error is None:
            return
        found = self.inserts.standing.find(self.action.choice.zone, self.names, taken, self.until)
        self.names = [name for name in self.names if name not in found]
        for name, problem in found.items():
            if problem:
                self.failed[name] = Failure("alreadyExists", problem, ALREADY_EXISTS)
            else:
                self.standing += 1
        if not found and not self.inserts.transport.pause(AGAIN_S, self.until):
            raise error or CloudError("names are taken by VMs that nobody finds", 0, "timeout")

    def _request_id(self, *names: str) -> uuid.UUID:
        """For the same names in the same round the same, whoever asks."""
        return uuid.uuid5(NAMESPACE, " ".join((self.action.id, str(self.round), *names)))


def _is_taken(why: Failure) -> bool:
    return why.code in errors.EXISTS


def _lacking(operation: Operation) -> int | None:
    """How many VMs were not made; None: it doesn't say.

    failedToCreateVmCount has only those that were begun, not those for which there was no room:
    https://cloud.google.com/compute/docs/reference/rest/v1/zoneOperations
    """
    places = operation.get("instancesBulkInsertOperationMetadata", {}).get("perLocationStatus", {})
    counts = [(each.get("targetVmCount"), each.get("createdVmCount")) for each in places.values()]
    if not counts or any(None in each for each in counts):
        return None
    return sum(int(target) - int(created) for target, created in counts)
