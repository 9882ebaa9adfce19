"""A cloud in simulated time that does whatever Google's may do: all by one schedule."""

from dataclasses import dataclass, field, replace

from oracle import Oracle, Place
from plankit import choice
from schedules import Faults

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
)

SETS = {
    "debug": NodeSet("debug", (choice("n1 spot in a"), choice("n1 in a"), choice("n1 in b"))),
    # Nothing happens to these VMs; they share the rest with those of the other set.
    "calm": NodeSet("calm", (choice("n2 in c"),)),
}
FAULTS = (
    "refused",
    "rate limit",
    "no token",
    "never done",
    "answer lost",
    "slow operation",
    "no room",
    "part without room",
    "error without detail",
    "stale list",
    "list hangs",
    "list with a gap",
    "preempted",
    "boot hangs",
    "stopped in boot",
)
SHORT = Failure("ZONE_RESOURCE_POOL_EXHAUSTED", "no room")
TOO_FEW = Failure("VM_MIN_COUNT_NOT_REACHED", "Requested minimum count of VMs ...")
TIMEOUT = Failure("timeout", "its operation has not ended in time")
UNREACHABLE = Failure("unreachable", "no answer")
NO_TOKEN = Failure("noToken", "no access token")
BUSY = Failure("rateLimitExceeded", "slow down", 403)
REFUSALS = (
    Failure("backendError", "Internal error", 503),
    Failure("internalError", "Internal error", 500),
    Failure("resourceNotReady", "not ready", 400),
    Failure("forbidden", "Required permission", 403),
)
DEADLINE_S = 120
"""After that the driver reports a timeout or an error."""


def place(vm: Vm) -> Place:
    """What the oracle takes a VM for."""
    return vm.name, vm.zone, vm.id


@dataclass
class SimCloud:
    """VMs, and what is reported of them. Times are true; `vms` and lists are by Google's clock."""

    faults: Faults
    oracle: Oracle
    vms: dict[tuple[str, str], Vm] = field(default_factory=dict)
    hung: set[str] = field(default_factory=set)
    lists: list[tuple[float, list[Vm]]] = field(default_factory=list)
    room: dict[CapacityPool, int] = field(default_factory=dict)
    later: list[tuple[float, Event]] = field(default_factory=list)
    now: float = 0
    born: int = 0
    """How many VMs there have been; the id of the last one."""
    no_token_until: float = 0
    no_list_until: float = 0
    last_list: tuple[float, list[Vm]] = (0, [])
    """The last list that was answered."""

    def second(self, now: float) -> None:
        """Let a second pass."""
        self.now = now
        faults = self.faults
        if faults.strike("no room", 0.2):
            pool = faults.random.choice(SETS["debug"].choices).pool
            self.room[pool] = faults.random.choice([0, 1, 3])
        if faults.random.random() < 0.005:
            self.room.clear()
        if faults.strike("no token", 0.1):
            self.no_token_until = now + faults.random.choice([5, 30, 60])
        for key, vm in list(self.vms.items()):
            self._ages(key, vm)
        self.lists = [*self.lists[-5:], (now, list(self.vms.values()))]

    def _ages(self, key: tuple[str, str], vm: Vm) -> None:
        faults = self.faults
        troubled = self.oracle.healthy not in vm.name
        if vm.status == "STAGING" and self.now - vm.created > 5:
            stops = troubled and faults.strike("stopped in boot")
            self._becomes(key, "TERMINATED" if stops else "RUNNING")
        elif vm.status == "STOPPING" and faults.random.random() < 0.2:
            del self.vms[key]
            self.oracle.gone(place(vm))
        elif vm.spot and vm.status == "RUNNING" and faults.strike("preempted", 0.1):
            self._becomes(key, faults.random.choice(["STOPPING", "TERMINATED"]))

    def _becomes(self, key: tuple[str, str], status: str) -> None:
        self.vms[key] = replace(self.vms[key], status=status)
        if status != "RUNNING":
            self.oracle.stopped(place(self.vms[key]))

    def listed(self) -> tuple[float, list[Vm]]:
        """A list of VMs as Google gives it, and when it was asked for."""
        if self.faults.strike("list hangs", 0.2):
            self.no_list_until = self.now + self.faults.random.choice([5, 20, 60, 120])
        if max(self.no_token_until, self.no_list_until) > self.now:
            return self.last_list
        # Its answer is never as new as the question.
        lag = min(2, len(self.lists))
        if self.faults.strike("stale list"):
            lag = self.faults.random.randint(1, len(self.lists))
        at, vms = self.lists[-lag]
        troubled = [vm for vm in vms if self.oracle.healthy not in vm.name]
        if troubled and self.faults.strike("list with a gap"):
            missing = self.faults.random.choice(troubled)
            vms = [vm for vm in vms if vm is not missing]
        self.last_list = at, vms
        return self.last_list

    def events(self) -> list[Event]:
        """Results of actions that are due by now."""
        due = [event for when, event in self.later if when <= self.now]
        self.later = [(when, event) for when, event in self.later if when > self.now]
        return due

    # --- what the daemon does

    def insert(self, action: Insert) -> None:
        """Make VMs, or not; report that, or something else."""
        faults = self.faults
        end = self.now + faults.random.randint(1, 8)
        troubled = self.oracle.healthy not in action.names[0]
        if self.no_token_until > self.now:
            self.later.append((end, Inserted(action.id, whole=NO_TOKEN)))
            return
        if not troubled:
            self._make(action.choice, action.names)
            self.later.append((end, Inserted(action.id)))
            return
        if faults.strike("slow operation"):
            end = self.now + faults.random.choice([30, 60, 110])
        for kind, why in (
            ("refused", faults.random.choice(REFUSALS)),
            ("rate limit", BUSY),
            ("never done", TIMEOUT),
        ):
            if faults.strike(kind):
                when = self.now + DEADLINE_S if why is TIMEOUT else end
                self.later.append((when, Inserted(action.id, whole=why)))
                return
        self._insert(action, end)

    def _insert(self, action: Insert, end: float) -> None:
        chosen = action.choice
        failed: dict[str, Failure] = {}
        fresh: list[str] = []
        for name in action.names:
            vm = self.vms.get((name, chosen.zone))
            if vm is not None and vm.status in ("STAGING", "RUNNING"):
                continue
            if vm is not None:
                failed[name] = Failure("alreadyExists", "the previous VM still exists", 409)
            elif self.room.get(chosen.pool, 100) - len(fresh) <= 0 or self.faults.strike(
                "part without room"
            ):
                failed[name] = SHORT
            else:
                fresh.append(name)
        if len(action.names) - len(failed) < action.least:
            whole = TOO_FEW if self.faults.strike("error without detail", 5) else SHORT
            self.later.append((end, Inserted(action.id, whole=whole)))
            return
        self._make(chosen, fresh)
        for name in fresh:
            if self.faults.strike("boot hangs"):
                self.hung.add(name)
        if self.faults.strike("answer lost"):
            whole = self.faults.random.choice([TIMEOUT, UNREACHABLE])
            self.later.append((self.now + DEADLINE_S, Inserted(action.id, whole=whole)))
        else:
            self.later.append((end, Inserted(action.id, failed)))

    def _make(self, chosen: Choice, names: list[str] | tuple[str, ...]) -> None:
        for name in names:
            key = name, chosen.zone
            if key in self.vms:
                continue
            self.born += 1
            self.vms[key] = Vm(
                name,
                chosen.zone,
                str(self.born),
                "STAGING",
                self.now,
                chosen.machine_type,
                chosen.spot,
                chosen.gpus,
            )
            self.hung.discard(name)
            self.oracle.born(place(self.vms[key]), self.now)

    def delete(self, action: Delete, *, works: bool) -> None:
        """Delete a VM, or not; `works`: a node in service is on it."""
        key = action.vm.name, action.vm.zone
        end = self.now + self.faults.random.randint(1, 30)
        troubled = self.oracle.healthy not in action.vm.name
        for kind, why in (("refused", REFUSALS[0]), ("rate limit", BUSY), ("never done", TIMEOUT)):
            if troubled and self.faults.strike(kind):
                when = self.now + DEADLINE_S if why is TIMEOUT else end
                self.later.append((when, Deleted(action.vm, why)))
                return
        vm = self.vms.get(key)
        if vm is not None and vm.id == action.vm.id:
            self.oracle.deleted(place(vm), works=works)
            self._becomes(key, "STOPPING")
        if troubled and self.faults.strike("answer lost"):
            self.later.append((self.now + DEADLINE_S, Deleted(action.vm, UNREACHABLE)))
        else:
            self.later.append((end, Deleted(action.vm)))

    def probe(self, action: Probe) -> None:
        """Answer whether a VM exists, and what it reports of its boot."""
        vm = self.vms.get((action.name, action.zone))
        report = "failed, mount /home" if action.name in self.hung else ""
        status = vm.status if vm else ""
        result = ProbeResult(action.name, action.zone, vm is not None, report, status=status)
        if self.faults.strike("refused"):
            result = ProbeResult(action.name, action.zone, exists=False, failure=REFUSALS[0])
        self.later.append((self.now + 2, result))
