"""A simulated slurmctld, as far as the autoscaler sees it, in the time that a run gives it.

Jobs allocate nodes. Nodes power up, register, are idle and power down. Released nodes power down
and their jobs are queued again; a node that does not come within ResumeTimeout is set down. Its
timeouts follow the system clock, which somebody may set, and go on while it is away. The oracle
gets all that it sees and does. test_simulated_slurmctld.py compares it with the real one.
"""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from oracle import Oracle, Place

from muster.autoscaler.reconcile.model import Job, Node, Power
from muster.autoscaler.reconcile.node_reasons import PREEMPTED

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
    again_s: float = 30
    """Until a job that was queued again may run: SLURM waits for 121 s, tests have less time."""
    lost_s: float = 300
    """SlurmdTimeout: so long SLURM waits until the job of a released node whose VM is gone ends."""
    resume_s: float = 300
    """ResumeTimeout."""
    try_s: float = 10
    """MessageTimeout: Muster sets 60 s, a definition may set less."""


@dataclass(frozen=True)
class Machine:
    """A VM on which slurmd is about to start."""

    born: float
    """When it began to boot."""
    sound: bool = True
    """Whether it runs, and its boot will end."""


@dataclass
class Task:
    """A job, on nodes of one set."""

    id: int
    node_set: str
    size: int
    seconds: float
    submitted: float = 0
    nodes: tuple[str, ...] = ()
    allocated: float = 0
    started: float = 0
    ready_at: float = 0


class Saved(Enum):
    """What slurmctld had saved of its last seconds when it was killed."""

    NOTHING = 0
    SUBMITTED = 1
    """Jobs, and not that they have nodes."""
    ALL = 2


UNFLAGGED = dict.fromkeys(("down", "drained", "not_responding", "by_hand"), False)
SEEN_S = 5
"""So late a daemon that reads often sees what has changed."""
MAX_PAUSE_S = 128
"""The longest pause between two tries of a slurmd to register."""
SAVED_S = 5
"""So late it saves what has changed: SAVE_MAX_WAIT of src/slurmctld/state_save.c."""


@dataclass
class Slurmctld:
    """All times are those of the run, but for `since`, which is by the system clock."""

    oracle: Oracle
    resume: Resume
    names: list[str]
    times: Times = field(default_factory=Times)
    waiting: list[Task] = field(default_factory=list)
    running: list[Task] = field(default_factory=list)
    ending: dict[str, tuple[float, Task]] = field(default_factory=dict)
    """Released node whose VM is gone -> until when its job is ending."""
    done: list[int] = field(default_factory=list)
    forgotten: list[int] = field(default_factory=list)
    """Jobs that are lost, because it was killed before it saved them."""
    cancelled: list[int] = field(default_factory=list)
    off_again: set[str] = field(default_factory=set)
    """Nodes that it had powered up when it was killed, does not know that, and has not asked for
    since: who calls `resume` takes them out."""
    home: dict[str, Place] = field(default_factory=dict)
    """Node -> the VM from which it registered."""
    machines: Mapping[Place, Machine] = field(default_factory=dict)
    tries: dict[Place, tuple[float, float]] = field(default_factory=dict)
    """VM whose slurmd could not register while this was away -> when its next try begins, and the
    pause after it."""
    spoken: set[Place] = field(default_factory=set)
    """VMs whose slurmd has registered, or was refused: then it does not try again."""
    unasked: dict[Place, float] = field(default_factory=dict)
    """VM that registered although its node was off -> when."""
    mute: dict[Place, tuple[float, float]] = field(default_factory=dict)
    """VM whose slurmd does not answer -> since when, and until when."""
    held: dict[str, float] = field(default_factory=dict)
    """Node that somebody has drained or set down -> when."""
    saved_at: float = 0
    """When it saved its nodes' states last: it does not because it powers them down."""
    submitted: int = 0
    starts: bool = False
    """It has just started: nodes register before it looks for jobs."""
    now: float = 0
    stepped_at: float = math.inf
    """When its last step was."""
    looked_at: float = -math.inf
    """When it looked at nodes last, by the system clock."""
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
        self.asked_at = dict.fromkeys(self.names, 0.0)
        """When ResumeProgram was called for each node last."""

    def submit(self, node_set: str, size: int, seconds: float) -> None:
        """Submit a job for nodes of a set."""
        self.submitted += 1
        self.waiting.append(Task(self.submitted, node_set, size, seconds, self.now))

    def cancel(self, task: Task) -> None:
        """`scancel` for a job that waits for its nodes: they go on to power up."""
        self.running.remove(task)
        self.cancelled.append(task.id)
        for name in task.nodes:
            self._is_idle(name)

    def recover(self, saved: Saved) -> None:
        """It starts after it was killed: what it had not saved happens again, or never was."""
        if saved is Saved.ALL:
            return
        self.starts = True
        self.off_again.clear()
        for task in [task for task in self.running if task.allocated > self.now - SAVED_S]:
            self.running.remove(task)
            if saved is Saved.NOTHING and task.submitted > self.now - SAVED_S:
                self.forgotten.append(task.id)
            else:
                self.waiting.append(task)
            for name in task.nodes:
                if self.nodes[name].power is Power.POWERING_UP:
                    self._set(name, power=Power.OFF)
                    self.off_again.add(name)
                    self.oracle.given_up(name, self.now)
                self._is_idle(name)
        for name, node in self.nodes.items():
            if node.power is Power.POWERING_DOWN and self.down_at[name] >= self.saved_at:
                self._set(name, power=Power.UP, leaving=True)

    def step(self, now: float, machines: Mapping[Place, Machine]) -> None:
        """Do what is due."""
        if now > self.stepped_at + 1:
            self._is_back(now, machines)
        self.now, self.stepped_at, self.machines = now, now, machines
        self._register()
        self._ask_slurmds()
        self._jobs_end()
        if not self.starts:
            self._allocate()
        self.starts = False
        # It does not look at nodes again before the time at which it did last.
        if now + self.skew_s > self.looked_at:
            self.looked_at = now + self.skew_s
            self._power()

    def _power(self) -> None:
        """Power nodes up and down: src/slurmctld/power_save.c, _do_power_work."""
        self._resume()
        for name, node in list(self.nodes.items()):
            if node.power is Power.OFF and not node.leaving:
                continue
            age = self.now + self.skew_s - self.since[name]
            if node.leaving:
                if not node.busy:
                    self._set(name, power=Power.POWERING_DOWN, leaving=False, **UNFLAGGED)
            elif node.power is Power.POWERING_UP:
                if age > self.times.resume_s:
                    self._give_up(name)
            elif node.power is Power.UP and not (node.busy or node.down or node.drained):
                if age > self.times.idle_s:
                    self._set(name, power=Power.POWERING_DOWN)
            elif node.power is Power.POWERING_DOWN and age > self.times.suspend_s:
                self._set(name, power=Power.OFF, reason="")

    def set_down(self, names: tuple[str, ...], now: float, unseen: Collection[str] = ()) -> None:
        """`scontrol update ... state=down` for nodes in service; `unseen`: as the oracle says."""
        self.now = now
        for name in names:
            vm = self.home.get(name) if self._in_service(name) else None
            self._is_held(name, unseen)
            self._queue_again(name, unseen)
            self._set(name, down=True, by_hand=False, reason="muster: set down")
            self.oracle.released(name, now, vm, unseen=name in unseen)
        self.saved_at = now

    def release_nodes(
        self, names: tuple[str, ...], now: float, unseen: Collection[str] = ()
    ) -> None:
        """`scontrol update ... state=power_down_force`; `unseen`: as the oracle says."""
        self.now = now
        if not unseen:
            self.oracle.released_together(self._wait_with(names), now)
        for name in names:
            node = self.nodes[name]
            if node.power is Power.POWERING_DOWN:
                # It ignores that.
                continue
            vm = self.home.get(name) if self._in_service(name) else None
            self._is_held(name, unseen)
            self._queue_again(name, unseen, ending=vm is not None and vm not in self.machines)
            up = node.power in (Power.UP, Power.POWERING_UP)
            self._set(name, power=Power.UP if up else Power.OFF, leaving=True)
            self.oracle.released(name, now, vm, unseen=name in unseen)
        self.saved_at = now

    def _is_held(self, name: str, unseen: Collection[str]) -> None:
        """Tell the oracle of a release of a node that somebody holds."""
        if name in self.held:
            del self.held[name]
            # The daemon may not know yet that its job has ended.
            ended_s = self.now + self.skew_s - self.since[name]
            busy = self.nodes[name].busy or ended_s < SEEN_S
            self.oracle.held(name, self.home.get(name), busy=busy, unseen=name in unseen)

    # --- what happens to nodes in service

    def in_service(self) -> list[tuple[str, Place]]:
        """The nodes in service, drained ones among them, and their VMs."""
        return [
            (name, self.home[name])
            for name in self.names
            if self._in_service(name) and self.home[name] in self.machines
        ]

    def hold(self, name: str, *, down: bool) -> None:
        """Somebody drains a node, or sets it down: `scontrol update ... state=drain reason=...`."""
        self.held[name] = self.now
        if down:
            # SLURM does what somebody wants: no loss.
            self._queue_again(name, {name})
        flag = "down" if down else "drained"
        self._set(name, by_hand=True, reason="look at its disk", **{flag: True})

    def resume_held(self, name: str) -> None:
        """Somebody lets a node work again: state=resume."""
        if self.held.pop(name, None) and not self.nodes[name].leaving:
            self._set(name, reason="", **UNFLAGGED)
            self.registered[name] = self.now

    def notice(self, name: str) -> None:
        """A node says that Google takes its VM back: it takes no jobs any more; its own go on."""
        self._set(name, drained=True, leaving=True, by_hand=True, reason=PREEMPTED)

    def _ask_slurmds(self) -> None:
        """Set nodes down whose slurmd has not answered for SlurmdTimeout, until it answers."""
        for vm, (since, until) in list(self.mute.items()):
            name, node = vm[0], self.nodes[vm[0]]
            there = self.home.get(name) == vm and vm in self.machines
            up = node.power is Power.UP and not node.leaving
            if not there or self.now >= until:
                del self.mute[vm]
                if there and up and node.not_responding and name not in self.held:
                    # ReturnToService=2.
                    self._set(name, reason="", **UNFLAGGED)
                    self.registered[name] = self.now
            elif up and not node.down and self.now > since + self.times.lost_s:
                self._queue_again(name, {name})
                self._set(name, down=True, not_responding=True, reason="Not responding")

    def _wait_with(self, names: tuple[str, ...]) -> list[str]:
        """Nodes that are waited for, of the jobs that have any of these nodes."""
        jobs = [task.nodes for task in self.running if not set(task.nodes).isdisjoint(names)]
        nodes = dict.fromkeys(name for job in jobs for name in job)
        return [name for name in nodes if self.nodes[name].power is Power.POWERING_UP]

    def _in_service(self, name: str) -> bool:
        node = self.nodes[name]
        return node.power is Power.UP and not node.down and not node.leaving

    def _queue_again(
        self, name: str, unseen: Collection[str] = (), *, ending: bool = False
    ) -> None:
        """Queue the jobs of a node again; `ending`: it can't say when their processes end."""
        for task in [task for task in self.running if name in task.nodes]:
            if task.started:
                vms = [self.home.get(other) for other in task.nodes]
                self.oracle.lost(task.id, vms, unseen=name in unseen)
            self.running.remove(task)
            for other in task.nodes:
                if other != name or not ending:
                    self._is_idle(other)
            if ending:
                self.ending[name] = self.now + self.times.lost_s, task
            else:
                self._wait_again(task)

    def _wait_again(self, task: Task) -> None:
        self.waiting.append(task)
        task.ready_at = self.now + self.times.again_s

    def _is_idle(self, name: str) -> None:
        """No job is on a node any more."""
        self._set(name, busy=False)
        if self.nodes[name].power is Power.UP:
            self.since[name] = self.now + self.skew_s

    def _give_up(self, name: str) -> None:
        """ResumeTimeout is over."""
        self._queue_again(name)
        self._set(name, power=Power.OFF, down=True, reason="ResumeTimeout reached")
        self.oracle.given_up(name, self.now)

    def works(self, vm: Place) -> bool:
        """Whether a node in service, or one that somebody holds, is on a VM."""
        name = vm[0]
        up = name in self.nodes and (self._in_service(name) or name in self.held)
        return up and self.home.get(name) == vm

    @property
    def quiet(self) -> bool:
        """Whether nothing is left to do."""
        idle = not self.waiting and not self.running and not self.ending
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
                self.saved_at = self.now
                for name in task.nodes:
                    self._is_idle(name)
        for name, (until, task) in list(self.ending.items()):
            if self.now > until:
                del self.ending[name]
                self._is_idle(name)
                self._wait_again(task)

    def _is_back(self, now: float, machines: Mapping[Place, Machine]) -> None:
        """It answers again. Slurmds that have tried to register meanwhile may be in a pause.

        The pauses double up to 128 s in newer releases (older ones: 1 s each), by
        _registration_engine of src/slurmd/slurmd/slurmd.c. That a try lasts for MessageTimeout is
        what fits the recordings of both releases.
        """
        self.oracle.back(now)
        for vm, machine in machines.items():
            at, pause_s = self.tries.get(vm, (machine.born + self.times.boot_s, 1))
            if vm in self.spoken or not machine.sound or not self.stepped_at <= at < now:
                continue
            while at + self.times.try_s < now:
                at, pause_s = at + self.times.try_s + pause_s, min(2 * pause_s, MAX_PAUSE_S)
            self.tries[vm] = at, pause_s
            if at > now:
                self.oracle.tries_later(vm[0], at - now)

    def _register(self) -> None:
        """Let slurmds register; each tries until it has an answer."""
        for vm, machine in self.machines.items():
            name = vm[0]
            if vm in self.spoken:
                continue
            tries_at, _ = self.tries.get(vm, (machine.born + self.times.boot_s, 0))
            if not machine.sound or tries_at >= self.now:
                continue
            self.spoken.add(vm)
            power = self.nodes[name].power if name in self.nodes else None
            # By its own clock and the machine's uptime it refuses a machine that booted before it
            # asked for the node. It accepts one for which it never asked.
            asked = power is Power.POWERING_UP
            unasked = power is Power.OFF
            if unasked:
                self.unasked[vm] = self.now
            if asked and machine.born + self.skew_s < self.since[name]:
                if machine.born >= self.asked_at[name]:
                    self.oracle.refused(name)
            elif asked or unasked:
                self._set(name, power=Power.UP, down=False)
                self.home[name] = vm
                self.registered[name] = self.saved_at = self.now
                if asked and machine.born < self.asked_at[name]:
                    self.oracle.mistaken(vm)
                self.oracle.in_service(name, self.now)

    def _allocate(self) -> None:
        for task in list(self.waiting):
            if task.ready_at > self.now:
                continue
            free = [
                name
                for name, node in self.nodes.items()
                if f"-{task.node_set}-" in name
                # One that powers up is not asked for again.
                and node.power is not Power.POWERING_DOWN
                and not (node.busy or node.down or node.drained or node.leaving)
            ]
            if len(free) < task.size:
                continue
            self.waiting.remove(task)
            task.nodes, task.allocated, task.started = tuple(free[: task.size]), self.now, 0
            self.running.append(task)
            self.saved_at = self.now
            for name in task.nodes:
                self._set(name, busy=True)

    def _resume(self) -> None:
        """Call ResumeProgram for the nodes of jobs that are off."""
        resuming = {
            task.id: tuple(name for name in task.nodes if self.nodes[name].power is Power.OFF)
            for task in self.running
        }
        names = tuple(name for group in resuming.values() for name in group)
        if names:
            for name in names:
                self._set(name, power=Power.POWERING_UP)
                self.asked_at[name] = self.now
                early = self.now < self.down_at[name] + self.times.suspend_s - 1
                self.oracle.asked(name, self.now, wrong_clock=early)
            self.resume(names, tuple(Job(task, group) for task, group in resuming.items() if group))
