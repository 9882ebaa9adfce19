"""Bugs that the oracle must find: each is a simulated run of a daemon that has it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from simcloud import NO_TOKEN, SimCloud, place
from simkit import STOPPED, STOPPED_WITH_STATES, SimSpool, SimulatedRun
from simtime import VirtualClock

from muster.autoscaler.reconcile.jobs_over import UNUSED
from muster.autoscaler.reconcile.model import (
    Action,
    Close,
    Delete,
    Failure,
    Insert,
    Inserted,
    Job,
    Power,
    Probe,
    Released,
    ReleaseNodes,
    Vm,
    Withdraw,
)
from muster.autoscaler.reconcile.observed import ObservedState
from muster.autoscaler.reconcile.reconcile import reconcile
from muster.autoscaler.reconcile.records import Deletion, NodeRecord, TrackedState

SOUND = (Power.UP, False, False, False, False)
"""State of a node in service."""


class Planted(SimulatedRun):
    """A run with a bug. The daemon decides by `plan`."""

    says: ClassVar[str]
    """What the oracle says, as a regular expression."""
    needs: ClassVar[tuple[str, ...]] = ()
    """Faults without which it does no harm: all its schedules have them."""
    control: ClassVar[type[SimulatedRun]] = SimulatedRun
    """The same trouble, and the daemon as it is: nothing is wrong there."""
    constants: ClassVar[dict[str, float]] = {}
    """Other values of constants of `readers`."""

    def plan(
        self, observed: ObservedState, tracked: TrackedState
    ) -> tuple[list[Action], TrackedState]:
        return reconcile(observed, tracked)

    def delete(self, vm: Vm | None) -> None:
        """Delete a VM, whatever it is for."""
        if vm is not None:
            self.cloud.delete(vm)

    def there(self, name: str, zone: str) -> Vm | None:
        """The VM that has a name now."""
        return self.cloud.vms.get((name, zone))


class LostVerdict(Planted):
    """No node is released."""

    says = "has no verdict after"

    def plan(
        self, observed: ObservedState, tracked: TrackedState
    ) -> tuple[list[Action], TrackedState]:
        actions, after = reconcile(observed, tracked)
        return [action for action in actions if not isinstance(action, ReleaseNodes)], after


class LeakedVm(Planted):
    """Some VMs are not deleted."""

    says = "is left over"

    def submit(self, action: Insert | Delete | Withdraw | Probe) -> None:
        if not isinstance(action, Delete) or not action.vm.name.endswith("-1"):
            super().submit(action)


class DoubleInsert(Planted):
    """A VM is made in a second zone, too."""

    says = "two accepted inserts for one resume"

    def submit(self, action: Insert | Delete | Withdraw | Probe) -> None:
        super().submit(action)
        if isinstance(action, Insert):
            elsewhere = replace(action.choice, zone="europe-west4-b", machine_type="n1")
            super().submit(replace(action, id=f"{action.id}-2", choice=elsewhere))


class ReleasedInService(Planted):
    """Now and then a node is released that works."""

    says = "is in service on a sound VM"

    def second(self) -> None:
        super().second()
        busy = [name for name, node in self.slurm.nodes.items() if node.busy]
        up = [name for name in busy if self.slurm.nodes[name].power is Power.UP]
        if up and self.random.random() < 0.02:
            self.slurm.release_nodes((up[0],), self.now)


class LostJob(ReleasedInService):
    """The same, as the job sees it."""

    says = "runs on sound VMs and is lost"


class DeletedInService(Planted):
    """Now and then the VM of a node is deleted that works."""

    says = "is in service and its VM"

    def second(self) -> None:
        super().second()
        vms = [vm for vm in self.cloud.vms.values() if self.slurm.works(place(vm))]
        if vms and self.random.random() < 0.02:
            self.delete(vms[0])


class DeletedInBoot(Planted):
    """Now and then a VM is deleted that boots."""

    says = "SLURM waits for .* its new VM"

    def second(self) -> None:
        super().second()
        booting = [
            vm
            for vm in self.cloud.vms.values()
            if vm.status == "STAGING" and self.slurm.nodes[vm.name].power is Power.POWERING_UP
        ]
        if booting and self.random.random() < 0.1:
            self.delete(booting[0])


class ReleasedUnread(Planted):
    """A node is released when slurmctld answers again, whatever it has become."""

    says = "is in service on a sound VM"
    needs = ("runs late", "scontrol hangs", "scontrol slow")

    def plan(
        self, observed: ObservedState, tracked: TrackedState
    ) -> tuple[list[Action], TrackedState]:
        actions, after = reconcile(observed, tracked)
        for action in actions:
            if isinstance(action, ReleaseNodes):
                self._when_it_answers(action)
        return [action for action in actions if not isinstance(action, ReleaseNodes)], after

    def _when_it_answers(self, action: ReleaseNodes) -> None:
        when = max(self.now, self.away_until, self.hangs_until, self.slow_until) + 1

        def release() -> None:
            self.slurm.release_nodes(action.names, self.now)
            self.tell(Released(action, action.names))

        self.world.at(when, release)


class DeletedByName(Planted):
    """A deletion that waited is sent by name, and ends the VM that has the name then."""

    says = "a later VM|its VM in"
    needs = ("answer lost", "deletion refused", "deletions wait", "gone and is in lists")
    needs += ("list late", "preempted and gone", "request lost", "stale list", "stopped")
    needs += ("works and is in no list", "zone unreachable")

    def start(self) -> None:
        super().start()
        self.cloud.there = lambda vm: self.there(vm.name, vm.zone)  # type: ignore[method-assign]


@dataclass
class SendsAllDeletions(SimCloud):
    """A driver that sends deletions whenever it can."""

    @property
    def send_until(self) -> float:  # type: ignore[override]
        return math.inf

    @send_until.setter
    def send_until(self, time: float) -> None: ...


class DeletionExpires(DeletedByName):
    """A deletion of which nothing was heard for 180 s is sent again."""

    says = "is in service and its VM"

    def submit(self, action: Insert | Delete | Withdraw | Probe) -> None:
        super().submit(action)
        if isinstance(action, Delete):
            self.world.at(self.now + 180, lambda: self.cloud.delete(action.vm))


class StoppedWhileDeletionsWait(SimulatedRun):
    """The daemon is stopped where it matters: SLURM may ask again for a node whose VM is late."""

    def called(self, stopped: float = STOPPED) -> None:
        waiting = [deletion.vm for deletion in self.cloud.waiting.values()]
        if any(vm.id in self.cloud.runs_at for vm in waiting) and self.random.random() < 0.1:
            self.stop(300)
        super().called(stopped)


class DeletionNotJudgedAgain(StoppedWhileDeletionsWait, Planted):
    """A deletion that waits is sent when it can be, however long ago it was judged."""

    says = "is in service and its VM"
    needs = ("deletions wait", "runs late", "stopped")
    control = StoppedWhileDeletionsWait

    def new_cloud(self, kind: type[SimCloud] = SendsAllDeletions) -> SimCloud:
        return super().new_cloud(kind)


class GoneForgotten(DeletedByName):
    """When the next VM is made, it is forgotten that the one before is gone; lists have it."""

    says = "is in service and its VM|a later VM|its new VM"

    def plan(
        self, observed: ObservedState, tracked: TrackedState
    ) -> tuple[list[Action], TrackedState]:
        actions, after = reconcile(observed, tracked)
        for vm in observed.vms:
            old = vm.created < observed.asked.get(vm.name, 0) - 10
            if old and vm.id in after.node(vm.name).gone and not after.node(vm.name).insert:
                actions.append(Delete(vm, "it is from before SLURM asked", urgent=True))
        return actions, after


class LateIsOlder(Planted):
    """A VM that runs is taken for one from before SLURM asked, though lists had it as coming."""

    says = "its new VM"
    needs = ("deletions wait", "request late", "runs late")

    def plan(
        self, observed: ObservedState, tracked: TrackedState
    ) -> tuple[list[Action], TrackedState]:
        actions, after = reconcile(observed, tracked)
        for vm in observed.vms:
            start = after.node(vm.name).start
            if start and vm.status == "RUNNING" and vm.created + 150 <= start.accepted_from:
                actions.append(Delete(vm, "it is from before SLURM asked", urgent=True))
        return actions, after


class OldNews(ReleasedUnread):
    """Readings count as new, however old they are."""

    says = "is in service on a sound VM|has no verdict|is in service and its VM"

    def plan(
        self, observed: ObservedState, tracked: TrackedState
    ) -> tuple[list[Action], TrackedState]:
        return super().plan(replace(observed, nodes_at=observed.now, vms_at=observed.now), tracked)


class DeadlinesByNow(ReleasedUnread):
    """Deadlines are judged by the time of the pass, not of the reading."""

    says = "is in service on a sound VM|healthy, (boots, )?and"

    def plan(
        self, observed: ObservedState, tracked: TrackedState
    ) -> tuple[list[Action], TrackedState]:
        return super().plan(
            replace(
                observed,
                nodes_at=observed.nodes_at and observed.now,
                vms_at=observed.vms_at and observed.now,
            ),
            tracked,
        )


class StoppedInOldList(Planted):
    """A node in service is released where any list has a VM of its name as stopped."""

    says = "is in service on a sound VM"
    needs = ("gone and is in lists", "preempted", "stopped in boot")

    def plan(
        self, observed: ObservedState, tracked: TrackedState
    ) -> tuple[list[Action], TrackedState]:
        actions, after = reconcile(observed, tracked)
        names = dict.fromkeys(
            vm.name
            for vm in observed.vms
            if vm.status == "TERMINATED"
            and vm.name in observed.nodes
            and observed.nodes[vm.name].power is Power.UP
        )
        if names:
            actions.append(ReleaseNodes(tuple(names), "its VM is TERMINATED", SOUND))
        return actions, after


class HeldIsGivenUp(Planted):
    """A node that somebody set down is released as one that SLURM gave up."""

    says = "is held by somebody"
    needs = ("held by hand",)

    def plan(
        self, observed: ObservedState, tracked: TrackedState
    ) -> tuple[list[Action], TrackedState]:
        held = {
            name: replace(node, reason="ResumeTimeout reached")
            for name, node in observed.nodes.items()
            if node.down and node.by_hand
        }
        return reconcile(replace(observed, nodes={**observed.nodes, **held}), tracked)


class PreemptedByOneList(Planted):
    """A node that says that Google takes its VM back is released by one list that lacks the VM."""

    says = "runs on sound VMs and is lost"
    needs = ("list with a gap", "preempted with notice", "works and is in no list")

    def plan(
        self, observed: ObservedState, tracked: TrackedState
    ) -> tuple[list[Action], TrackedState]:
        actions, after = reconcile(observed, tracked)
        for name, node in observed.nodes.items():
            if node.drained and node.leaving and node.busy and name not in observed.vms.by_name:
                actions.append(ReleaseNodes((name,), "its VM was taken back (spot)", node.state))
        return actions, after


@dataclass
class TakesBack(SimCloud):
    """An insert whose end is unknown deletes what it has made."""

    def _report(self, action: Insert, *, lost: bool) -> None:
        super()._report(action, lost=lost)
        for name in action.names if lost else ():
            vm = self.vms.get((name, action.choice.zone))
            if vm is not None:
                self.delete(vm)


class InsertTakesBack(Planted):
    """A single insert whose end is unknown deletes its VM, though its node may be in service."""

    says = "is in service and its VM"

    def new_cloud(self, kind: type[SimCloud] = TakesBack) -> SimCloud:
        return super().new_cloud(kind)


class LooksInCurrentZones(Planted):
    """A node whose VM is in no list is looked for in the zones that its set has now."""

    says = "is in service on a sound VM"

    def start(self) -> None:
        super().start()
        self.lacking: dict[str, float] = {}

    def plan(
        self, observed: ObservedState, tracked: TrackedState
    ) -> tuple[list[Action], TrackedState]:
        actions, after = reconcile(observed, tracked)
        listed = {vm.name for vm in observed.vms}
        for name, node in observed.nodes.items():
            if node.power is not Power.UP or node.down or name in listed:
                self.lacking.pop(name, None)
            elif observed.vms_at >= self.lacking.setdefault(name, observed.vms_at) + 20:
                node_set = observed.set_of(name)
                zones = {choice.zone for choice in node_set.choices} if node_set else set()
                if not any(self.there(name, zone) for zone in zones):
                    actions.append(ReleaseNodes((name,), "its VM is gone", SOUND))
        return actions, after


class ClosedByDate(Planted):
    """Requests have the date at which they were written: one from after a step back seems old."""

    says = "its request is closed"

    def plan(
        self, observed: ObservedState, tracked: TrackedState
    ) -> tuple[list[Action], TrackedState]:
        requests = [
            replace(request, asked=request.asked + self.spool.files[request.id][2])
            for request in observed.requests
            if request.id in self.spool.files
        ]
        return reconcile(replace(observed, requests=requests), tracked)


class ClosedWithoutVerdict(Planted):
    """A request is closed when its VMs are made."""

    says = "its request is closed"

    def plan(
        self, observed: ObservedState, tracked: TrackedState
    ) -> tuple[list[Action], TrackedState]:
        actions, after = reconcile(observed, tracked)
        listed = {vm.name for vm in observed.vms}
        made = [request for request in observed.requests if listed.issuperset(request.nodes)]
        return [*actions, *(Close(request.id) for request in made)], after


@dataclass
class FrailSpool(SimSpool):
    """A file that can't be removed is an error that nobody expects."""

    def close(self, request: str) -> None:
        if self.run.now < self.read_only_until:
            raise OSError("Read-only file system")
        super().close(request)


class EndsWithReadOnlySpool(Planted):
    """A spool that is read-only ends the daemon."""

    says = "the daemon ended by itself"

    def new_spool(self) -> SimSpool:
        return FrailSpool(self)


class TemporaryIsPermanent(Planted):
    """An operation's temporary error counts as one that no other try helps."""

    says = "healthy, and released"

    def plan(
        self, observed: ObservedState, tracked: TrackedState
    ) -> tuple[list[Action], TrackedState]:
        def lasting(event: object) -> object:
            if isinstance(event, Inserted) and event.whole:
                return replace(event, whole=Failure("invalid", event.whole.message, 400))
            return event

        events = [lasting(event) for event in observed.events]
        return reconcile(replace(observed, events=events), tracked)


@dataclass
class SystemClock(VirtualClock):
    """Intervals are counted by the system clock."""

    def monotonic(self) -> float:
        return self.time + self.skew_s


class IntervalsBySystemClock(Planted):
    """A step of the system clock makes everything older, or younger."""

    says = "healthy|has no verdict|in service on a sound VM"
    needs = ("clock forward", "scontrol hangs")

    def new_clock(self) -> VirtualClock:
        return SystemClock()


class ReleasedAfterStop(Planted):
    """A node is released by a reading from before the process was stopped."""

    says = "is in service on a sound VM"
    constants: ClassVar = {"FRESH_S": 1e9, "RELEASE_S": 1e9}
    decided = 0.0

    def plan(
        self, observed: ObservedState, tracked: TrackedState
    ) -> tuple[list[Action], TrackedState]:
        actions, after = reconcile(observed, tracked)
        if any(isinstance(action, ReleaseNodes) for action in actions):
            self.decided = self.now
        return actions, after

    def called(self, stopped: float = STOPPED) -> None:
        # Stopped where it matters: it has the states for a release.
        if stopped == STOPPED_WITH_STATES and 0 < self.now - self.decided < 5:
            self.stop(self.random.choice([20, 60]))
        super().called(stopped)


class DeletesByOldStates(DeletedByName):
    """A VM is deleted whose node was powered down by the states before the last ones."""

    says = "is in service and its VM|its new VM|a later VM"

    def start(self) -> None:
        super().start()
        self.before: ObservedState | None = None

    def plan(
        self, observed: ObservedState, tracked: TrackedState
    ) -> tuple[list[Action], TrackedState]:
        actions, after = reconcile(observed, tracked)
        before = self.before
        if before is None or observed.nodes_at > before.nodes_at + 40:
            self.before = before = before or observed
            for vm in observed.vms:
                node = before.nodes.get(vm.name)
                if node and node.power is Power.OFF:
                    actions.append(Delete(vm, "its node is powered down"))
            self.before = observed
        return actions, after


class DeletionForgottenInGap(Planted):
    """A deletion that was refused is forgotten when one list lacks its VM."""

    says = "has a VM in .* and gets another one"
    needs = ("deletion refused", "deletions wait", "list with a gap")

    def plan(
        self, observed: ObservedState, tracked: TrackedState
    ) -> tuple[list[Action], TrackedState]:
        forgotten = {
            name: replace(record, deletions=left)
            for name, record in tracked.nodes.items()
            if (left := self._left(observed, record)) != record.deletions
        }
        return reconcile(observed, tracked.with_nodes(forgotten))

    @staticmethod
    def _left(observed: ObservedState, record: NodeRecord) -> Mapping[str, Deletion]:
        ids = observed.vms.ids
        deletions = record.deletions.items()
        return {vm_id: one for vm_id, one in deletions if vm_id in ids or one.under_way}


class DecidesByOldQuotas(Planted):
    """Quotas that still count the VM of an insert that has failed release its node."""

    says = "healthy, and released"

    def plan(
        self, observed: ObservedState, tracked: TrackedState
    ) -> tuple[list[Action], TrackedState]:
        quotas = replace(observed.quotas, at=observed.now)
        return reconcile(replace(observed, quotas=quotas), tracked)


@dataclass
class SeldomToken(SimCloud):
    """A driver that asks for a token again ten minutes after an outage."""

    def insert(self, action: Insert, until: float = math.inf) -> None:
        if self.no_token_until < self.now < self.no_token_until + 600:
            self._tell_at(self.now + 1, Inserted(action.id, whole=NO_TOKEN))
        else:
            super().insert(action, until)


class AwayWhileNodesBoot(SimulatedRun):
    """Slurmctld is away where it matters."""

    def _resume(self, names: tuple[str, ...], jobs: tuple[Job, ...]) -> None:
        super()._resume(names, jobs)
        if self.random.random() < 0.5:
            self.away_until = self.now + 120


class BootsThroughGap(AwayWhileNodesBoot, Planted):
    """A boot has its time while slurmctld is away, though no slurmd can register."""

    says = "healthy, boots, and is released too early"
    control = AwayWhileNodesBoot

    def plan(
        self, observed: ObservedState, tracked: TrackedState
    ) -> tuple[list[Action], TrackedState]:
        return reconcile(observed, replace(tracked, back_at=0))


class ReleasedUnderAnotherJob(Planted):
    """When a node is released, the other nodes of its job are too, also if another job has them."""

    says = "is released as no job has it"
    needs = ("job cancelled",)

    def plan(
        self, observed: ObservedState, tracked: TrackedState
    ) -> tuple[list[Action], TrackedState]:
        actions, after = reconcile(observed, tracked)
        released = [
            action
            for action in actions
            if isinstance(action, ReleaseNodes) and action.state[0] is Power.POWERING_UP
        ]
        for action in released:
            for job in (job for request in observed.requests for job in request.jobs):
                names = [name for name in job.nodes if observed.is_powering_up(name)]
                others = tuple(name for name in names if name not in action.names)
                if others and len(others) < len(names):
                    actions.append(ReleaseNodes(others, UNUSED + action.reason, action.state))
        return actions, after


class NoTokenForLong(Planted):
    """After an outage of the token endpoint there is no token for ten minutes."""

    says = "is healthy and (came|is released)"
    needs = ("no token",)

    def new_cloud(self, kind: type[SimCloud] = SeldomToken) -> SimCloud:
        return super().new_cloud(kind)


class InsertsBehindDeletions(Planted):
    """New requests wait until all deletions are sent."""

    says = "is healthy and (came|is released)"
    needs = ("deletions wait",)

    def submit(self, action: Insert | Delete | Withdraw | Probe) -> None:
        if isinstance(action, Insert) and self.cloud.waiting:
            self.cloud.driver.at(self.now + 1, lambda: self.submit(action))
        else:
            super().submit(action)


PLANTED = (
    LostVerdict,
    LeakedVm,
    DoubleInsert,
    ReleasedInService,
    LostJob,
    DeletedInService,
    DeletedInBoot,
    ReleasedUnread,
    DeletedByName,
    DeletionExpires,
    DeletionNotJudgedAgain,
    GoneForgotten,
    LateIsOlder,
    OldNews,
    DeadlinesByNow,
    StoppedInOldList,
    HeldIsGivenUp,
    PreemptedByOneList,
    InsertTakesBack,
    LooksInCurrentZones,
    ClosedByDate,
    ClosedWithoutVerdict,
    EndsWithReadOnlySpool,
    TemporaryIsPermanent,
    IntervalsBySystemClock,
    ReleasedAfterStop,
    DeletesByOldStates,
    BootsThroughGap,
    ReleasedUnderAnotherJob,
    DeletionForgottenInGap,
    DecidesByOldQuotas,
    NoTokenForLong,
    InsertsBehindDeletions,
)
