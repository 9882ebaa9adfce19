"""A simulated slurmctld, as far as the autoscaler sees it, in the time that a run gives it.

Jobs allocate nodes. Nodes power up, register, are idle and power down. Released nodes power down
and their jobs are queued again; a node that does not come within ResumeTimeout is set down. Its
timeouts follow the system clock, which somebody may set. The oracle gets all that it sees and does.
"""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from oracle import Oracle, Place

from muster.autoscaler.reconcile.model import Job, Node, Power

Resume = Callable[[tuple[str, ...], tuple[Job, ...]], None]
"""ResumeProgram: the nodes, and the jobs that wait for them."""


@dataclass(frozen=True)
class Times:
    """Seconds."""

    suspend_s: float = 120
    """SuspendTimeout."""
    idle_s: float = 60
    """SuspendTime."""
    boot_s: float = 20
    """From `Machine.born` to slurmd."""
    early_s: float = 5
    """How much older than the request a VM may seem."""
    again_s: float = 30
    """Until a job that was queued again may run."""
    resume_s: float = 300
    """ResumeTimeout."""


@dataclass(frozen=True)
class Machine:
    """A VM on which slurmd is about to start."""

    born: float
    """When it began to boot, by its own clock, which is right."""
    sound: bool = True
    """Whether it runs, and its boot will end."""


@dataclass
class Task:
    """A job, on nodes of one set."""

    id: int
    node_set: str
    size: int
    seconds: float
    nodes: tuple[str, ...] = ()
    started: float = 0
    ready_at: float = 0


@dataclass
class Slurmctld:
    """All times are those of the run, but for `since`, which is by the system clock."""

    oracle: Oracle
    resume: Resume
    names: list[str]
    times: Times = field(default_factory=Times)
    waiting: list[Task] = field(default_factory=list)
    running: list[Task] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    home: dict[str, Place] = field(default_factory=dict)
    """Node -> the VM from which it registered."""
    submitted: int = 0
    now: float = 0
    skew_s: float = 0
    """How far the system clock is ahead of the run's."""

    def __post_init__(self) -> None:
        self.nodes = {name: Node(name, Power.OFF) for name in self.names}
        self.since = dict.fromkeys(self.names, 0.0)
        """When each node's state began."""
        self.registered = dict.fromkeys(self.names, 0.0)
        """When each node registered last."""
        self.down_at = dict.fromkeys(self.names, -math.inf)
        """When each node was powered down last."""

    def submit(self, node_set: str, size: int, seconds: float) -> None:
        """Submit a job for nodes of a set."""
        self.submitted += 1
        self.waiting.append(Task(self.submitted, node_set, size, seconds))

    def away(self, seconds: float) -> None:
        """It was down for so long, which its timeouts do not count."""
        self.since = {name: since + seconds for name, since in self.since.items()}

    def step(self, now: float, machines: Mapping[Place, Machine]) -> None:
        """Do what is due."""
        self.now = now
        self._jobs_end()
        self._allocate()
        for name, node in list(self.nodes.items()):
            age = now + self.skew_s - self.since[name]
            if node.power is Power.POWERING_UP:
                self._register(name, machines)
                if self.nodes[name].power is Power.POWERING_UP and age > self.times.resume_s:
                    self._give_up(name)
            elif node.power is Power.UP and not node.busy and not node.down:
                if age > self.times.idle_s:
                    self._set(name, power=Power.POWERING_DOWN)
            elif node.power is Power.POWERING_DOWN and age > self.times.suspend_s:
                self._set(name, power=Power.OFF, down=False, reason="")

    def release_nodes(
        self, names: tuple[str, ...], now: float, unseen: Collection[str] = ()
    ) -> None:
        """`scontrol update ... state=power_down_force`; `unseen`: as the oracle says."""
        self.now = now
        if not unseen:
            self.oracle.released_together(self._wait_with(names), now)
        for name in names:
            self._queue_again(name, unseen)
            node = self.nodes[name]
            in_service = node.power is Power.UP and not node.down
            self._set(name, power=Power.POWERING_DOWN, down=True)
            vm = self.home.get(name) if in_service else None
            self.oracle.released(name, now, vm, unseen=name in unseen)

    def _wait_with(self, names: tuple[str, ...]) -> list[str]:
        """Nodes that are waited for, of the jobs that have any of these nodes."""
        jobs = [task.nodes for task in self.running if not set(task.nodes).isdisjoint(names)]
        nodes = dict.fromkeys(name for job in jobs for name in job)
        return [name for name in nodes if self.nodes[name].power is Power.POWERING_UP]

    def _queue_again(self, name: str, unseen: Collection[str] = ()) -> None:
        """Queue the jobs of a node again."""
        for task in [task for task in self.running if name in task.nodes]:
            if task.started:
                vms = [self.home.get(other) for other in task.nodes]
                self.oracle.lost(task.id, vms, unseen=name in unseen)
            self.running.remove(task)
            self.waiting.append(task)
            task.ready_at = self.now + self.times.again_s
            for other in task.nodes:
                self._set(other, busy=False)

    def _give_up(self, name: str) -> None:
        """ResumeTimeout is over: src/slurmctld/power_save.c, _do_power_work."""
        self._queue_again(name)
        self._set(name, power=Power.OFF, down=True, reason="ResumeTimeout reached")
        self.oracle.given_up(name, self.now)

    def works(self, vm: Place) -> bool:
        """Whether a node in service is on a VM."""
        node = self.nodes.get(vm[0])
        up = node is not None and node.power is Power.UP and not node.down
        return up and self.home.get(vm[0]) == vm

    @property
    def quiet(self) -> bool:
        """Whether nothing is left to do."""
        idle = not self.waiting and not self.running
        return idle and all(node.power is Power.OFF for node in self.nodes.values())

    def _set(self, name: str, **changes: object) -> None:
        if self.nodes[name].power is not changes.get("power", self.nodes[name].power):
            self.since[name] = self.now + self.skew_s
            if changes["power"] is Power.POWERING_DOWN:
                self.down_at[name] = self.now
        self.nodes[name] = replace(self.nodes[name], **changes)  # type: ignore[arg-type]

    def _jobs_end(self) -> None:
        for task in list(self.running):
            if all(self.nodes[name].power is Power.UP for name in task.nodes) and not task.started:
                task.started = self.now
            if task.started and self.now >= task.started + task.seconds:
                self.running.remove(task)
                self.done.append(task.id)
                for name in task.nodes:
                    self._set(name, busy=False)
                    self.since[name] = self.now + self.skew_s

    def _register(self, name: str, machines: Mapping[Place, Machine]) -> None:
        for vm, machine in machines.items():
            booted = machine.sound and machine.born + self.times.boot_s < self.now
            # SLURM refuses a machine that booted before it asked for the node.
            if vm[0] == name and booted and machine.born >= self.since[name] - self.times.early_s:
                self._set(name, power=Power.UP, reason="")
                self.home[name] = vm
                self.registered[name] = self.now
                self.oracle.in_service(name, self.now)
                return

    def _allocate(self) -> None:
        wanted: list[Task] = []
        for task in list(self.waiting):
            free = [
                name
                for name, node in self.nodes.items()
                if f"-{task.node_set}-" in name
                and node.power in {Power.OFF, Power.UP}
                and not node.busy
                and not node.down
            ]
            if task.ready_at > self.now or len(free) < task.size:
                continue
            self.waiting.remove(task)
            task.nodes, task.started = tuple(free[: task.size]), 0
            self.running.append(task)
            wanted.append(task)
            for name in task.nodes:
                self._set(name, busy=True)
        resuming = {
            task.id: tuple(name for name in task.nodes if self.nodes[name].power is Power.OFF)
            for task in wanted
        }
        names = tuple(name for group in resuming.values() for name in group)
        if names:
            for name in names:
                self._set(name, power=Power.POWERING_UP)
                early = self.now < self.down_at[name] + self.times.suspend_s - 1
                ahead = self.skew_s > self.times.early_s
                self.oracle.asked(name, self.now, wrong_clock=early or ahead)
            self.resume(names, tuple(Job(task, group) for task, group in resuming.items() if group))
