"""A cloud in virtual time that does whatever Google's may do, and the driver's part of it.

All follows from one schedule. What the driver does (sending, polling) stands still while the
daemon's process is stopped, and ends with it; what Google has accepted goes on.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial

from oracle import Oracle, Place
from plankit import choice
from schedules import Faults
from simtime import Agenda, VirtualClock

from muster.autoscaler.reconcile.model import (
    CapacityPool,
    Choice,
    Delete,
    Deleted,
    Event,
    Failure,
    Insert,
    Inserted,
    NodeSet,
    Probe,
    ProbeResult,
    Vm,
    Withdraw,
)

CALM = NodeSet("calm", (choice("n2 in c"),))
"""Nothing happens to these VMs; they share the rest with those of the other set."""
POOL = CALM.choices[0].pool


def sets(*choices: str) -> dict[str, NodeSet]:
    """Node sets with these choices for the nodes that faults happen to."""
    return {"debug": NodeSet("debug", tuple(map(choice, choices))), "calm": CALM}


SETS = sets("n1 spot in a", "n1 in a", "n1 in b")
OTHER_SETS = (
    sets("n1 in b", "n1 spot in a"),
    sets("n1 in d"),
    sets("n3 in b", "n1 in d"),
    sets("n1 in a"),
    {"calm": CALM},
)
"""What `pulumi up` may change them to, while nodes of the old ones work."""
SHORT = Failure("ZONE_RESOURCE_POOL_EXHAUSTED", "no room")
TOO_FEW = Failure("VM_MIN_COUNT_NOT_REACHED", "Requested minimum count of VMs ...")
EXISTS = Failure("alreadyExists", "another VM has the name", 409)
STOPS = Failure("stillStopping", "the previous VM is STOPPING", 409)
TIMEOUT = Failure("timeout", "its operation has not ended in time")
UNREACHABLE = Failure("unreachable", "no answer")
NO_TOKEN = Failure("noToken", "no access token")
BUSY = Failure("rateLimitExceeded", "slow down", 403)
WITHDRAWN = Failure("withdrawn", "it is not wanted any more")
REFUSALS = (
    Failure("backendError", "Internal error", 503),
    Failure("internalError", "Internal error", 500),
    Failure("resourceNotReady", "not ready", 400),
    Failure("forbidden", "Required permission", 403),
)
TEMPORARY = (
    Failure("INTERNAL_ERROR", "Internal error", 500),
    Failure("INTERNAL_ERROR", "Internal error"),
    Failure("RESOURCE_NOT_READY", "The resource is not ready", 400),
    Failure("RESOURCE_OPERATION_RATE_EXCEEDED", "Operation rate exceeded", 403),
    Failure("CONCURRENT_OPERATIONS_QUOTA_EXCEEDED", "Too many operations", 403),
    Failure("ABORTED", "The operation was aborted", 409),
    Failure("resourceNotReady", "The resource is not ready", 400),
    Failure("IP_SPACE_EXHAUSTED", "The subnet has no free address"),
    Failure("RATE_LIMIT_EXCEEDED", "Rate Limit Exceeded", 403),
    Failure("rateLimitExceeded", "Rate Limit Exceeded", 403),
    Failure("userRateLimitExceeded", "User Rate Limit Exceeded", 403),
    Failure("notFound", "The template was not found", 404),
    Failure("unreachable", "no answer"),
    Failure("notSent", "it was not sent in time"),
)
LASTING = (
    SHORT,
    TOO_FEW,
    Failure("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", "no room", 503),
    Failure("RESOURCE_POOL_EXHAUSTED", "no room", 503),
    Failure("insufficientCapacity", "no room"),
    Failure("QUOTA_EXCEEDED", "Quota 'CPUS' exceeded", 403),
    Failure("quotaExceeded", "Quota 'CPUS' exceeded", 403),
    Failure("CONDITION_NOT_MET", "Constraint violated", 412),
    Failure("UNSUPPORTED_OPERATION", "not supported", 400),
)
OPERATION_ERRORS = (*TEMPORARY, *LASTING)
SENT_AGAIN = ("backendError", "internalError", "notSent", "unreachable")
SENT_AGAIN += ("rateLimitExceeded", "userRateLimitExceeded")
"""Codes of calls that the driver sends again until its deadline; then it tells them."""
TOLD_AT_ONCE = tuple(failure for failure in TEMPORARY if failure.code not in SENT_AGAIN)
CODES = tuple(f"operation error {code}" for code in {error.code: 0 for error in OPERATION_ERRORS})
"""How `Faults.counts` has them."""
FAULTS = (
    "refused",
    "rate limit",
    "no token",
    "never done",
    "answer lost",
    "operation late",
    "operation error",
    "no room",
    "part without room",
    "error without detail",
    "stale list",
    "list late",
    "list with a gap",
    "works and is in no list",
    "gone and is in lists",
    "preempted",
    "preempted and gone",
    "runs late",
    "boot hangs",
    "stopped in boot",
    "zone unreachable",
    "deletions wait",
    "deletion refused",
    "made by hand",
    "made by hand, no label",
    "sets change",
)
BETWEEN = ("refused deletion is withdrawn", "refused deletion becomes urgent")
"""What the daemon may do between a deletion that Google refused and its next try."""
STAGING_S = 5
"""Until a VM runs."""
DEADLINE_S = 120
"""After that the driver reports a timeout or an error."""
AGAIN_S = 10
"""After that it calls again, where a call has no answer."""
PAUSE_S = 0.1, 30
"""Between two tries of a deletion, with the wait for its turn."""
SHOWN_S = 15
"""So soon after an insert was accepted its VMs are there: the daemon takes 20 s for enough."""
HISTORY_S = 20
"""So old a stale list may be."""
ZONES = {name: f"europe-west4-{name}" for name in "abcd"}


def place(vm: Vm) -> Place:
    """What the oracle takes a VM for."""
    return vm.name, vm.zone, vm.id


@dataclass
class _Deletion:
    """A deletion that the driver has not sent yet."""

    vm: Vm
    urgent: bool
    until: float = math.inf
    """Its deadline, from the first try."""
    sent: bool = False
    """Google has its call."""
    withdrawn: bool = False
    """It is not wanted any more: if Google refuses that call, there is no other one."""
    refused: bool = False
    """Google has refused a call of it."""


@dataclass
class SimCloud:
    """VMs, and what is reported of them."""

    faults: Faults
    oracle: Oracle
    clock: VirtualClock
    works: Callable[[Place], bool]
    """Whether a node in service is on a VM."""
    unnoticed: Callable[[str], bool]
    """Whether the daemon can't know yet that SLURM asks for a node."""
    world: Agenda
    """What Google does."""
    driver: Agenda = field(default_factory=Agenda)
    """What the driver does; emptied when the daemon ends."""
    tell: Callable[[Event], None] = lambda _: None
    vms: dict[tuple[str, str], Vm] = field(default_factory=dict)
    foreign: dict[tuple[str, str], Vm] = field(default_factory=dict)
    """VMs without the cluster's label."""
    runs_at: dict[str, float] = field(default_factory=dict)
    """VM's id -> when it leaves STAGING, if that is late."""
    booted: dict[str, float] = field(default_factory=dict)
    """VM's id -> when it ran first."""
    hung: set[str] = field(default_factory=set)
    """Ids of VMs whose boot does not end."""
    by_hand: set[str] = field(default_factory=set)
    """Ids of VMs that have no slurmd."""
    history: deque[list[Vm]] = field(default_factory=lambda: deque(maxlen=HISTORY_S))
    """The lists of the last seconds."""
    hidden: dict[str, float] = field(default_factory=dict)
    """VM's id -> until when lists lack it."""
    ghosts: dict[str, tuple[float, Vm]] = field(default_factory=dict)
    """Id of a VM that is gone -> until when lists have it."""
    room: dict[CapacityPool, int] = field(default_factory=dict)
    sets: dict[str, NodeSet] = field(default_factory=lambda: SETS)
    done: dict[str, dict[str, Failure]] = field(default_factory=dict)
    """Google does each id of an insert once: id -> the names that it failed for."""
    waiting: dict[str, _Deletion] = field(default_factory=dict)
    """VM's id -> its deletion."""
    mistaken: set[str] = field(default_factory=set)
    """Healthy nodes whose insert has failed once."""
    charged_until: dict[str, float] = field(default_factory=dict)
    """Name of a healthy node -> until when quotas count its VM, whose insert fails then."""
    born: int = 0
    """How many VMs there have been; the id of the last one."""
    send_until: float = -math.inf
    """Until when the driver may send deletions."""
    no_token_until: float = 0
    no_list_until: float = 0
    deletions_wait_until: float = 0
    away_until: dict[str, float] = field(default_factory=dict)
    """Zone -> until when it is unreachable."""

    @property
    def now(self) -> float:
        return self.clock.time

    def second(self) -> None:
        """Let a second pass."""
        now, faults = self.now, self.faults
        self._outages(now)
        if faults.strike("no room", 0.2):
            pool = faults.random.choice(SETS["debug"].choices).pool
            self.room[pool] = faults.random.choice([0, 1, 3])
        if faults.random.random() < 0.005:
            self.room.clear()
        if faults.strike("sets change", 0.1):
            self.sets = faults.random.choice([SETS, *OTHER_SETS])
        for vm in list(self.vms.values()):
            self._ages(vm)
        self.history.append(list(self.vms.values()))

    def _outages(self, now: float) -> None:
        faults = self.faults
        if faults.strike("no token", 0.1):
            self.no_token_until = now + faults.random.choice([5, 30, 60])
        if faults.strike("list late", 0.1):
            self.no_list_until = now + faults.random.uniform(1, 120)
        if faults.strike("deletions wait", 0.05):
            self.deletions_wait_until = now + faults.random.uniform(130, 500)
        if faults.strike("zone unreachable", 0.05):
            zone = faults.random.choice([*ZONES.values()])
            self.away_until[zone] = now + faults.random.uniform(60, 300)
            if faults.random.random() < 0.3:
                # A list of all zones has no answer either; else only this zone is not in it.
                self.no_list_until = self.away_until[zone]
        for kind, labelled in (("made by hand", True), ("made by hand, no label", False)):
            if faults.strike(kind, 0.1):
                self._made_by_hand(labelled=labelled)

    def heal(self) -> None:
        """End all that is wrong for a time."""
        self.faults.ended = True
        self.sets = SETS
        for trouble in (self.room, self.runs_at, self.hung, self.hidden, self.ghosts, self.foreign):
            trouble.clear()
        self.away_until.clear()
        self.no_token_until = self.no_list_until = self.deletions_wait_until = 0

    def away(self, zone: str) -> bool:
        """Whether a zone can't be reached."""
        return self.now < self.away_until.get(zone, 0)

    def stand_still(self) -> None:
        """The daemon has ended, and its driver with it."""
        self.driver.entries.clear()
        self.waiting.clear()
        self.send_until = -math.inf

    # --- what happens to VMs

    def troubled(self, name: str) -> bool:
        """Whether faults happen to a node."""
        return self.oracle.healthy not in name

    def _ages(self, vm: Vm) -> None:
        faults = self.faults
        if vm.status == "STAGING":
            if self.now <= self.runs_at.get(vm.id, vm.created + STAGING_S):
                return
            stops = self.troubled(vm.name) and faults.strike("stopped in boot")
            self._becomes(vm, "TERMINATED" if stops else "RUNNING")
        elif vm.spot and vm.status == "RUNNING":
            if faults.strike("preempted", 0.1):
                self.preempt(vm)
            elif faults.strike("preempted and gone", 0.1):
                self._vanishes(vm)

    def preempt(self, vm: Vm) -> None:
        """Google takes a VM back."""
        there = self.vms.get((vm.name, vm.zone))
        if there is None or there.id != vm.id or there.status != "RUNNING":
            return
        self._becomes(vm, "STOPPING")
        ends = self.faults.random.choice([self._terminated, self._vanishes])
        self.world.at(self.now + self.faults.random.uniform(1, 30), lambda: ends(vm))

    def _becomes(self, vm: Vm, status: str) -> None:
        self.vms[vm.name, vm.zone] = replace(vm, status=status)
        if status == "RUNNING":
            self.booted[vm.id] = self.now
            self.oracle.ran(place(vm), self.now)
        else:
            self.oracle.stopped(place(vm))

    def _terminated(self, vm: Vm) -> None:
        if self._is_there(vm):
            self._becomes(vm, "TERMINATED")

    def _is_there(self, vm: Vm) -> bool:
        there = self.vms.get((vm.name, vm.zone))
        return there is not None and there.id == vm.id

    def _vanishes(self, vm: Vm) -> None:
        if self._is_there(vm):
            there = self.vms.pop((vm.name, vm.zone))
            self.oracle.gone(place(vm))
            if self.troubled(vm.name) and self.faults.strike("gone and is in lists"):
                self.ghosts[vm.id] = self.now + self.faults.random.uniform(1, 120), there

    def _made_by_hand(self, *, labelled: bool) -> None:
        """Somebody makes a VM that has a node's name, and no slurmd."""
        random = self.faults.random
        name = f"lab-debug-{random.randrange(12)}"
        key = name, random.choice([ZONES["a"], ZONES["b"]])
        if key in self.vms or key in self.foreign:
            return
        vm = self._vm(name, SETS["debug"].choices[0 if key[1] == ZONES["a"] else 2])
        self.oracle.made_by_hand(place(vm), labelled=labelled)
        if labelled:
            self.vms[key] = replace(vm, spot=False)
            self.hung.add(vm.id)
            self.by_hand.add(vm.id)
        else:
            self.foreign[key] = vm
            self.world.at(
                self.now + random.uniform(60, 400), lambda: self.foreign.pop(key, None) and None
            )

    def _vm(self, name: str, chosen: Choice) -> Vm:
        self.born += 1
        kind = chosen.machine_type, chosen.spot, chosen.gpus
        return Vm(name, chosen.zone, str(self.born), "STAGING", self.now, *kind)

    # --- readings

    def content(self) -> list[Vm]:
        """A list as Google gives it now."""
        faults, now = self.faults, self.now
        # It is never as new as the question.
        lag = min(2, len(self.history))
        if faults.strike("stale list"):
            lag = faults.random.randint(1, len(self.history))
        listed = list(self.history[-lag])
        troubled = [vm for vm in listed if self.troubled(vm.name)]
        if troubled and faults.strike("list with a gap"):
            self.hidden[faults.random.choice(troubled).id] = now + faults.random.uniform(1, 15)
        working = [vm for vm in troubled if vm.status == "RUNNING" and self.works(place(vm))]
        if working and faults.strike("works and is in no list"):
            self.hidden[faults.random.choice(working).id] = now + faults.random.uniform(30, 90)
        ids = {vm.id for vm in listed}
        names = {(vm.name, vm.zone) for vm in listed}
        listed = [vm for vm in listed if self.hidden.get(vm.id, 0) <= now]
        for until, vm in self.ghosts.values():
            if until > now and vm.id not in ids and (vm.name, vm.zone) not in names:
                listed.append(vm)
        return listed

    # --- the driver

    def submit(self, action: Insert | Delete | Withdraw | Probe) -> None:
        """Do an action; its event comes later."""
        match action:
            case Insert():
                self._soon(lambda: self.insert(action))
            case Delete(vm, urgent=urgent):
                self._submit_deletion(vm, urgent=urgent)
            case Withdraw(vm):
                self._withdraw(vm)
            case Probe():
                self._soon(lambda: self.probe(action))

    def _soon(self, do: Callable[[], None]) -> None:
        self.driver.at(self.now + self.faults.random.uniform(0.05, 0.5), do)

    def _tell_at(self, when: float, event: Event) -> None:
        self.driver.at(when, lambda: self.tell(event))

    def _again(
        self, reached_at: float, until: float, call: Callable[[float], None], late: Event
    ) -> bool:
        """Whether a call does not reach Google now: the driver sends it again, with pauses.

        `late` is its event if it has not reached Google by `until`.
        """
        if reached_at <= self.now:
            return False
        again_at = reached_at + self.faults.random.uniform(0, AGAIN_S)
        if again_at < until:
            self.driver.at(again_at, lambda: call(until))
        else:
            self._tell_at(until, late)
        return True

    def insert(self, action: Insert, until: float = math.inf) -> None:
        """Make VMs, or not; report that, or something else."""
        faults, now = self.faults, self.now
        until = min(until, now + DEADLINE_S)
        late = Inserted(action.id, whole=NO_TOKEN)
        if self._again(self.no_token_until, until, partial(self.insert, action), late):
            return
        end = now + faults.random.randint(1, 8)
        if action.id in self.done:
            self._tell_at(end, Inserted(action.id, self.done[action.id]))
            return
        if not self.troubled(action.names[0]):
            self._insert_healthy(action, end)
            return
        if self.away(action.choice.zone):
            self._tell_at(now + DEADLINE_S, Inserted(action.id, whole=UNREACHABLE))
            return
        if faults.strike("operation late"):
            end = now + faults.random.uniform(1, DEADLINE_S)
        why = self._refusal()
        if why and why.code in SENT_AGAIN and faults.random.random() < 0.5:
            # It passes.
            again_at = now + faults.random.uniform(0.1, AGAIN_S)
            self.driver.at(min(again_at, until), lambda: self.insert(action, until))
            return
        if why:
            when = until if why is TIMEOUT or why.code in SENT_AGAIN else end
            self._tell_at(when, Inserted(action.id, whole=why))
            return
        begins = faults.random.choice([now, faults.random.uniform(now, min(end, now + SHOWN_S))])
        self.world.at(begins, lambda: self._insert(action))
        lost = faults.strike("answer lost")
        self.driver.at(now + DEADLINE_S if lost else end, lambda: self._report(action, lost=lost))

    def _refusal(self) -> Failure | None:
        """Why a call or its operation fails, if it does."""
        faults = self.faults
        for kind, failures in (
            ("refused", REFUSALS),
            ("rate limit", (BUSY,)),
            ("never done", (TIMEOUT,)),
        ):
            if faults.strike(kind):
                return faults.random.choice(failures)
        return self._operation_error(OPERATION_ERRORS)

    def _operation_error(self, failures: Iterable[Failure]) -> Failure | None:
        if not self.faults.strike("operation error", 4):
            return None
        why = self.faults.random.choice([*failures])
        self.faults.counts[f"operation error {why.code}"] += 1
        return why

    def _insert_healthy(self, action: Insert, end: float) -> None:
        if self.away(action.choice.zone):
            self._tell_at(end, Inserted(action.id, whole=UNREACHABLE))
            return
        new = self.mistaken.isdisjoint(action.names)
        why = self._operation_error(TOLD_AT_ONCE) if new else None
        if why:
            # Once, and another try helps.
            self.mistaken.update(action.names)
            self.charged_until |= dict.fromkeys(action.names, end)
            self._tell_at(end, Inserted(action.id, whole=why))
            return
        self.mistaken.difference_update(action.names)
        self._make(action.choice, action.names)
        self._tell_at(end, Inserted(action.id))

    def healthy(self) -> int:
        """How many VMs of healthy nodes quotas count now."""
        return len(self.charged() | {vm.name for vm in self.vms.values() if vm.pool == POOL})

    def charged(self) -> frozenset[str]:
        """Names of healthy nodes whose VMs quotas count now, and whose inserts will fail."""
        return frozenset(name for name, until in self.charged_until.items() if until > self.now)

    def _insert(self, action: Insert) -> None:
        chosen = action.choice
        failed: dict[str, Failure] = {}
        fresh: list[str] = []
        for name in action.names:
            vm = self.vms.get((name, chosen.zone))
            if vm is not None and vm.status in ("STAGING", "RUNNING"):
                continue
            if vm is not None or (name, chosen.zone) in self.foreign:
                failed[name] = STOPS if vm is not None else EXISTS
            elif self.room.get(chosen.pool, 100) - len(fresh) <= 0 or self.faults.strike(
                "part without room"
            ):
                failed[name] = SHORT
            else:
                fresh.append(name)
        short = len(action.names) - len(failed) < action.least
        # A job's VMs that are made one by one stay, although some have no room.
        if short and self.faults.random.random() < 0.7:
            failed, fresh = dict.fromkeys(action.names, SHORT), []
            if self.faults.strike("error without detail", 5):
                failed = dict.fromkeys(action.names, TOO_FEW)
        self.done[action.id] = failed
        self._make(chosen, fresh)
        for name in fresh:
            vm_id = self.vms[name, chosen.zone].id
            if self.faults.strike("boot hangs"):
                self.hung.add(vm_id)
            if self.faults.strike("runs late", 2):
                self.runs_at[vm_id] = self.now + self.faults.random.uniform(30, 400)

    def _report(self, action: Insert, *, lost: bool) -> None:
        """Say how an insert ended."""
        failed = self.done.get(action.id)
        if lost or failed is None:
            whole = self.faults.random.choice([TIMEOUT, UNREACHABLE])
            self.tell(Inserted(action.id, whole=whole))
        elif len(failed) == len(action.names):
            self.tell(Inserted(action.id, whole=next(iter(failed.values()))))
        else:
            self.tell(Inserted(action.id, failed))

    def _make(self, chosen: Choice, names: Iterable[str]) -> None:
        for name in names:
            key = name, chosen.zone
            if key not in self.vms:
                self.vms[key] = self._vm(name, chosen)
                self.oracle.born(place(self.vms[key]), self.now)

    def _submit_deletion(self, vm: Vm, *, urgent: bool) -> None:
        deletion = self.waiting.get(vm.id)
        if deletion is None:
            deletion = self.waiting[vm.id] = _Deletion(vm, urgent)
            self._send(deletion)
            return
        deletion.withdrawn = False
        if urgent and not deletion.urgent:
            deletion.urgent = True
            self.faults.counts["refused deletion becomes urgent"] += deletion.refused
            if not deletion.sent:
                self._send(deletion)

    def _withdraw(self, vm: Vm) -> None:
        deletion = self.waiting.get(vm.id)
        if deletion is None:
            return
        self.faults.counts["refused deletion is withdrawn"] += deletion.refused or deletion.sent
        if deletion.sent:
            deletion.withdrawn = True
        else:
            self._ends(deletion, WITHDRAWN)

    def _ends(self, deletion: _Deletion, failure: Failure) -> None:
        del self.waiting[deletion.vm.id]
        self._tell_at(self.now + 0.1, Deleted(deletion.vm, failure))

    def _send(self, deletion: _Deletion, pause_s: float = 0) -> None:
        """Send a deletion when it is its turn; those that nodes wait for come first."""
        when = self.now + pause_s + self.faults.random.uniform(0.05, 0.5)
        if not deletion.urgent:
            when = max(when, self.deletions_wait_until)
        until = deletion.until = min(deletion.until, when + DEADLINE_S)

        def send() -> None:
            vm, now = deletion.vm, self.now
            # It may have been withdrawn, or sent because it became urgent.
            if self.waiting.get(vm.id) is not deletion or deletion.sent:
                return
            if now > self.send_until:
                self.driver.at(now + 1, send)
            elif now < self.no_token_until:
                self.driver.at(self.no_token_until, send)
            elif self.away(vm.zone) and now + AGAIN_S < until:
                self.driver.at(now + AGAIN_S, send)
            elif self.troubled(vm.name) and self.faults.strike("deletion refused", 5):
                deletion.sent = True
                if self.faults.strike("answer lost"):
                    # Google does it all the same, and the call is sent again, or withdrawn.
                    self._delete(vm)
                self.driver.at(
                    now + self.faults.random.uniform(0.1, AGAIN_S), lambda: self._refuse(deletion)
                )
            else:
                del self.waiting[vm.id]
                self.delete(vm)

        self.driver.at(when, send)

    def _refuse(self, deletion: _Deletion) -> None:
        """Google refuses a deletion that may be sent again; the driver does that after a pause."""
        pause_s = self.faults.random.uniform(*PAUSE_S)
        if deletion.withdrawn:
            self._ends(deletion, WITHDRAWN)
        elif self.now + pause_s > deletion.until:
            self._ends(deletion, BUSY)
        else:
            again = replace(deletion, sent=False, refused=True)
            self.waiting[deletion.vm.id] = again
            self._send(again, pause_s)

    def there(self, vm: Vm) -> Vm | None:
        """The VM that a deletion finds: the driver compares ids."""
        there = self.vms.get((vm.name, vm.zone))
        return there if there is not None and there.id == vm.id else None

    def delete(self, vm: Vm) -> None:
        """Delete a VM, or not."""
        faults, now = self.faults, self.now
        troubled = self.troubled(vm.name)
        if self.away(vm.zone):
            self._tell_at(now, Deleted(vm, UNREACHABLE))
            return
        why = self._refusal() if troubled else None
        if why:
            late = why is TIMEOUT or why.code in SENT_AGAIN
            when = DEADLINE_S if late else faults.random.randint(1, 30)
            self._tell_at(now + when, Deleted(vm, why))
            return
        gone_at = self._delete(vm)
        if gone_at > now and troubled and faults.strike("answer lost"):
            self._tell_at(now + DEADLINE_S, Deleted(vm, UNREACHABLE))
        else:
            self._tell_at(gone_at + faults.random.uniform(0.2, 5), Deleted(vm))

    def _delete(self, vm: Vm) -> float:
        """Google deletes a VM; return when it is gone."""
        faults, now = self.faults, self.now
        there = self.there(vm)
        if there is None:
            return now
        gone_at = now + faults.random.uniform(1, 25)
        if self.troubled(vm.name) and faults.strike("operation late"):
            gone_at = now + faults.random.uniform(1, DEADLINE_S - 10)
        runs = there.status == "RUNNING"
        works, unnoticed = runs and self.works(place(there)), self.unnoticed(vm.name)
        self.oracle.deleted(place(there), works=works, meant=vm.id, unnoticed=unnoticed)
        self._becomes(there, "STOPPING")
        self.world.at(gone_at, lambda: self._vanishes(there))
        return gone_at

    def probe(self, action: Probe, until: float = math.inf) -> None:
        """Answer whether a VM exists, and what it reports of its boot."""
        name, zone, now = action.name, action.zone, self.now
        until = min(until, now + DEADLINE_S)
        late = ProbeResult(name, zone, exists=False, failure=UNREACHABLE, of_report=action.report)
        reached_at = max(self.no_token_until, self.away_until.get(zone, 0))
        if self._again(reached_at, until, partial(self.probe, action), late):
            return
        vm = self.vms.get((name, zone))
        report = "failed, mount /home" if vm and vm.id in self.hung else ""
        result = ProbeResult(name, zone, vm is not None, report)
        if vm:
            result = replace(result, id=vm.id, status=vm.status)
        told_at = now + 1
        if self.troubled(name) and self.faults.strike("refused"):
            why = self.faults.random.choice(REFUSALS)
            result = ProbeResult(name, zone, exists=False, failure=why)
            told_at = until if why.code in SENT_AGAIN else told_at
        self._tell_at(told_at, replace(result, of_report=action.report))
