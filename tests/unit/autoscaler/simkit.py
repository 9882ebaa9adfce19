"""A SLURM and a cloud, second by second, that do to the plan what real ones do: all by one seed.

Lists are stale and lack VMs, inserts and deletions fail or take long, zones run short, VMs are
taken back, boots hang, the daemon forgets everything, scontrol fails.
"""

import random
from dataclasses import dataclass, field, replace

from plankit import CLUSTER, REGION, choice

from muster.autoscaler.daemon import Observer
from muster.autoscaler.memory import Memory
from muster.autoscaler.model import (
    Close,
    Delete,
    Deleted,
    Event,
    Failure,
    GiveBack,
    Insert,
    Inserted,
    Job,
    Look,
    Market,
    Node,
    NodeSet,
    Power,
    Request,
    Seen,
    Vm,
)
from muster.autoscaler.plan import plan
from muster.autoscaler.world import Limits, World

LIMITS = Limits()
SUSPEND_S, IDLE_S = 120, 60
NODES = [f"{CLUSTER}-debug-{number}" for number in range(12)]
SETS = {"debug": NodeSet("debug", (choice("n1 spot in a"), choice("n1 in a"), choice("n1 in b")))}
SHORT = Failure("ZONE_RESOURCE_POOL_EXHAUSTED", "no room")
BUSY = Failure("rateLimitExceeded", "slow down", 403)


@dataclass
class Task:
    """A job of SLURM's."""

    id: int
    size: int
    seconds: int
    nodes: tuple[str, ...] = ()
    started: float = 0
    ready_at: float = 0


@dataclass
class Game:
    """All of it. `faults` is how probable each is, in each second."""

    seed: int
    faults: float
    now: float = 1000
    memory: Memory = field(default_factory=Memory)
    observe: Observer = lambda *_: None

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)  # noqa: S311
        self.nodes = {name: Node(name, Power.OFF) for name in NODES}
        self.since = dict.fromkeys(NODES, 0.0)
        """When each node's state began."""
        self.vms: dict[tuple[str, str], Vm] = {}
        self.hung: set[str] = set()
        self.lists: list[tuple[float, list[Vm]]] = []
        self.room: dict[Market, int] = {}
        self.requests: list[Request] = []
        self.waiting: list[Task] = []
        self.running: list[Task] = []
        self.later: list[tuple[float, Event]] = []
        self.done: list[int] = []
        self.read = (dict(self.nodes), 0.0)
        self.away_until = 0.0
        self.home: dict[str, tuple[str, str]] = {}
        """Node -> its VM, from which it registered."""
        self.serial = 0

    @property
    def away(self) -> bool:
        """Whether slurmctld does not answer."""
        return self.now < self.away_until

    def chance(self, part: float = 1) -> bool:
        return self.random.random() < self.faults * part

    def submit(self, size: int, seconds: int) -> None:
        self.serial += 1
        self.waiting.append(Task(self.serial, size, seconds))

    def second(self) -> None:
        """Let one second pass."""
        self.now += 1
        self._cloud()
        if self.chance(0.02):
            self.away_until = self.now + self.random.choice([20, 100, 400])
        if self.away:
            # slurmctld's own clocks begin anew with it.
            self.since = {name: since + 1 for name, since in self.since.items()}
        else:
            self._slurm()
        if self.chance(0.1):
            self.memory = Memory()
        self._daemon()

    # --- SLURM

    def _set(self, name: str, **changes: object) -> None:
        if self.nodes[name].power is not changes.get("power", self.nodes[name].power):
            self.since[name] = self.now
        self.nodes[name] = replace(self.nodes[name], **changes)  # type: ignore[arg-type]

    def _slurm(self) -> None:
        for task in list(self.running):
            if all(self.nodes[name].power is Power.UP for name in task.nodes) and not task.started:
                task.started = self.now
            if task.started and self.now >= task.started + task.seconds:
                self.running.remove(task)
                self.done.append(task.id)
                for name in task.nodes:
                    self._set(name, busy=False)
                    self.since[name] = self.now
        self._allocate()
        for name, node in list(self.nodes.items()):
            age = self.now - self.since[name]
            if node.power is Power.RISING:
                assert age < LIMITS.resume_s, f"{name} has no verdict at {self.now}"
                self._register(name)
            elif node.power is Power.UP and not node.busy and not node.down and age > IDLE_S:
                self._set(name, power=Power.FALLING)
            elif node.power is Power.FALLING and age > SUSPEND_S:
                self._set(name, power=Power.OFF, down=False)

    def _register(self, name: str) -> None:
        for vm in self.vms.values():
            boots = vm.name == name and vm.status == "RUNNING" and name not in self.hung
            # SLURM takes no registration of a machine that booted before it asked.
            if boots and vm.created + 20 < self.now and vm.created >= self.since[name] - 5:
                self._set(name, power=Power.UP)
                self.home[name] = (vm.name, vm.zone)

    def _allocate(self) -> None:
        wanted: list[Task] = []
        for task in list(self.waiting):
            free = [
                name
                for name, node in self.nodes.items()
                if node.power in {Power.OFF, Power.UP} and not node.busy and not node.down
            ]
            if task.ready_at > self.now or len(free) < task.size:
                continue
            self.waiting.remove(task)
            task.nodes, task.started = tuple(free[: task.size]), 0
            self.running.append(task)
            wanted.append(task)
            for name in task.nodes:
                self._set(name, busy=True)
        risers = {
            task.id: tuple(name for name in task.nodes if self.nodes[name].power is Power.OFF)
            for task in wanted
        }
        names = tuple(name for group in risers.values() for name in group)
        if names:
            for name in names:
                self._set(name, power=Power.RISING)
            jobs = tuple(Job(task, group) for task, group in risers.items() if group)
            self.requests.append(Request(f"r{self.now}", self.now, names, jobs))

    def _give_back(self, action: GiveBack) -> None:
        if self.away or self.chance():
            return
        for name in action.names:
            for task in list(self.running):
                if name in task.nodes:
                    self.running.remove(task)
                    self.waiting.append(task)
                    task.ready_at = self.now + 30
                    for other in task.nodes:
                        self._set(other, busy=False)
                        if other not in action.names:
                            self.since[other] = min(self.since[other], self.now)
            self._set(name, power=Power.FALLING, down=True)

    # --- the cloud

    def _cloud(self) -> None:
        if self.chance(0.2):
            market = self.random.choice(SETS["debug"].choices).market
            self.room[market] = self.random.choice([0, 1, 3, 100])
        for key, vm in list(self.vms.items()):
            age = self.now - vm.created
            if vm.status == "STAGING" and age > 5:
                self.vms[key] = replace(vm, status="RUNNING")
            elif vm.status == "STOPPING" and self.random.random() < 0.2:
                del self.vms[key]
            elif vm.spot and self.chance(0.05):
                self.vms[key] = replace(vm, status=self.random.choice(["STOPPING", "TERMINATED"]))
        self.lists = [*self.lists[-5:], (self.now, list(self.vms.values()))]

    def _insert(self, action: Insert) -> None:
        end = self.now + (60 if self.chance(0.2) else self.random.randint(1, 8))
        of = action.choice
        if self.chance():
            self.later.append((end, Inserted(action.id, whole=BUSY)))
            return
        failed: dict[str, Failure] = {}
        fresh: list[str] = []
        for name in action.names:
            if (name, of.zone) in self.vms:
                continue
            if self.room.get(of.market, 100) - len(fresh) <= 0:
                failed[name] = SHORT
            else:
                fresh.append(name)
        if len(action.names) - len(failed) < action.least:
            self.later.append((end, Inserted(action.id, whole=SHORT)))
            return
        for name in fresh:
            self.vms[name, of.zone] = Vm(
                name, of.zone, "STAGING", self.now, of.machine_type, of.spot
            )
            self.hung.discard(name)
            if self.chance(0.5):
                self.hung.add(name)
        self.later.append((end, Inserted(action.id, failed)))

    def _delete(self, action: Delete) -> None:
        truth = self.nodes.get(action.vm.name)
        asked = any(
            action.vm.name in request.nodes and request.asked > action.vm.created
            for request in self.requests
        )
        key = (action.vm.name, action.vm.zone)
        mine = key == self.home.get(action.vm.name)
        works = mine and key in self.vms and self.vms[key].status == "RUNNING"
        in_service = truth is not None and truth.power is Power.UP and not truth.down
        assert asked or not works or not in_service, (
            f"{action} at {self.now}: its node is in service"
        )
        end = self.now + self.random.randint(1, 30)
        if self.chance():
            self.later.append((end, Deleted(*key, BUSY)))
            return
        if key in self.vms:
            self.vms[key] = replace(self.vms[key], status="STOPPING")
        self.later.append((end, Deleted(*key)))

    # --- the daemon

    def _daemon(self) -> None:
        if not self.away and not self.chance(0.5):
            self.read = (dict(self.nodes), self.now)
        lag = self.random.randint(1, len(self.lists))
        at, listed = self.lists[-lag]
        if self.chance(0.5) and listed:
            listed = [vm for vm in listed if vm is not self.random.choice(listed)]
        due = [event for when, event in self.later if when <= self.now]
        self.later = [each for each in self.later if each[0] > self.now]
        world = World(
            CLUSTER,
            self.now,
            nodes=self.read[0],
            nodes_at=self.read[1],
            vms=listed,
            vms_at=at,
            requests=tuple(self.requests),
            sets=SETS,
            events=due,
            limits=LIMITS,
        )
        actions, self.memory = plan(world, self.memory)
        self.observe(world, self.memory, actions)
        for action in actions:
            match action:
                case GiveBack():
                    self._give_back(action)
                case Insert():
                    self._insert(action)
                case Delete():
                    self._delete(action)
                case Look(name, zone):
                    there = (name, zone) in self.vms
                    said = "failed, mount /home" if name in self.hung else ""
                    self.later.append((self.now + 2, Seen(name, zone, there, said)))
                case Close(request):
                    self.requests = [each for each in self.requests if each.id != request]

    @property
    def quiet(self) -> bool:
        """Whether nothing is left to do, and nothing is left over."""
        return (
            not self.waiting
            and not self.running
            and not self.vms
            and not self.requests
            and all(node.power is Power.OFF for node in self.nodes.values())
        )


__all__ = ["REGION", "Game"]
