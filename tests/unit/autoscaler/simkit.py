"""Randomized fault-injection tests of the real daemon in virtual time, in one thread.

SLURM, the spool and the cloud are simulated; all that they do follows from a schedule. The daemon's
loop and its readers are made to step when they are due. A call of the daemon that takes time lets
the rest go on until its end: SLURM, the cloud, and the parts of the daemon that are not in a call.
If two parts are in calls at once, the later call ends with the earlier one at the latest.

A test fails where the oracle finds something wrong: it sees SLURM's and the cloud's records, and
nothing of the daemon.
"""

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import simcloud
from oracle import Oracle, Place
from plankit import CLUSTER
from schedules import Faults, Schedule
from simcloud import SimCloud, place
from simtime import Agenda, VirtualClock
from slurmctld import Machine, Saved, Slurmctld, Times

from muster.autoscaler.daemon import TICK_S, Daemon, Observer
from muster.autoscaler.messages import Called, Inbox, Message
from muster.autoscaler.reconcile.allocate import NO_QUOTA
from muster.autoscaler.reconcile.jobs_over import UNUSED
from muster.autoscaler.reconcile.model import (
    Delete,
    Event,
    Insert,
    Job,
    Node,
    NodeSet,
    Probe,
    Quotas,
    Request,
    Vm,
    VmList,
    Withdraw,
)
from muster.autoscaler.reconcile.observed import STALE_S, ObservedState, Timeouts
from muster.autoscaler.slurm.slurmctld import SlurmError
from muster.autoscaler.slurm.spool import SpoolError
from muster.gcp.api import CloudError

FAULTS = (
    *simcloud.FAULTS,
    "slurmctld restarts",
    "scontrol hangs",
    "scontrol slow",
    "scontrol fails",
    "slurmd does not answer",
    "held by hand",
    "preempted with notice",
    "killed",
    "stopped",
    "clock forward",
    "clock back",
    "spool full",
    "spool read-only",
    "request lost",
    "request late",
    "job cancelled",
)
KILLED, STOPPED, STOPPED_WITH_STATES = 0.04, 0.005, 0.03
"""Parts of the rates of these faults, at each call of the daemon; the last one between slurmctld's
states and the releases that follow."""
TIMEOUTS = Timeouts()
CALM_S = 6.0
"""A daemon that could not reach slurmctld or Google tries again after this time."""
BEGINS_S = 26.0
"""A daemon that restarts: lists (6 s), and what they lack before it counts (20 s from the first
one on)."""
HEALTHY_S = 76 + BEGINS_S
"""A healthy node: 8 s for its insert, which may fail once and be tried again after 10 s, 20 s until
it registers; what it may wait for is the deletion of its previous VM (30 s), and lists. While a
daemon starts no node is late."""
MADE_S = TIMEOUTS.made_s - STALE_S
"""Until its VM runs. Where a request is lost the daemon may guess its time so much too early."""
RUNS_S = TIMEOUTS.made_s + TIMEOUTS.skew_s
"""A VM that runs, and had so long to do so when SLURM asked, is taken for one that ran then, as
docs/autoscaler.md has it."""
WINDOW_S = 2.1
"""From a question for slurmctld's states to an update that follows from them, as
docs/autoscaler.md has it."""
SLOW_WINDOW_S = 32.0
"""The same where slurmctld is slow, for nodes whose VM is gone."""
TOLD_S = TIMEOUTS.skew_s + 3
"""A VM that lists have as running no longer than `skew_s` when SLURM asks may be a new one; 3 s may
pass from a list to what follows from it."""
OFF_AGAIN_S = 3.0
"""So long the daemon may not see that slurmctld has a node as off again."""
LATE_S = 60.0
"""So late ResumeProgram may run."""
READ_S = 32.0
"""By then the daemon has read slurmctld's states, and takes a node without a request for one whose
request is lost."""
SCONTROL_S, LIST_S = 30.0, 60.0
"""After that scontrol, and a list of VMs, have failed."""
AGAIN_S = 8.0
"""The longest pause between two tries of a list."""
COUNTS = {"debug": 12, "calm": 4}
NODES = [f"{CLUSTER}-{name}-{number}" for name, count in COUNTS.items() for number in range(count)]
# From the time at which a VM runs.
TIMES = Times(boot_s=15)


Update = Callable[[tuple[str, ...], float, Collection[str]], None]
"""Nodes, the time, and those of them that the daemon could not see in service."""


class Killed(BaseException):
    """The daemon's process has ended."""


class SimInbox(Inbox):
    """Tells the run of each message."""

    def __init__(self, woken: Callable[[Message], None]) -> None:
        super().__init__()
        self.woken = woken

    def put(self, message: Message, *_: Any, **__: Any) -> None:
        super().put(message)
        self.woken(message)


@dataclass
class SimSpool:
    """The spool, in memory; the files stay when the daemon ends."""

    run: "SimulatedRun"
    files: dict[str, tuple[Request, float, float]] = field(default_factory=dict)
    """With the time at which slurmctld asked, and with how far the system clock was ahead."""
    woken: bool = False
    full_until: float = 0
    read_only_until: float = 0
    written: int = 0

    # --- muster-resume

    def resume(
        self, names: tuple[str, ...], jobs: tuple[Job, ...], asked: float, again: Collection[str]
    ) -> None:
        """Write a request, and wake the daemon; `again`: nodes that slurmctld forgot to have asked.

        It may be called so late that slurmctld has asked for some of them since.
        """
        run, now = self.run, self.run.now
        lost = run.faults.strike("request lost")
        if lost or now < max(self.full_until, self.read_only_until):
            last = [name for name in names if run.slurm.asked_at[name] == asked]
            run.lost.update(last)
            self.woken |= not lost
            for name in last:
                if name in again or asked <= run.scontrol.first_at:
                    run.oracle.unnoticed(name)
            return
        self.written += 1
        request = Request(f"{self.written:04}.resume", now, names, jobs)
        self.files[request.id] = request, asked, self.run.clock.skew_s
        self.woken = True

    def called(self) -> dict[str, float]:
        """Return when ResumeProgram ran for nodes that SLURM has not asked for since."""
        asked_at = self.run.slurm.asked_at
        return {
            name: request.asked
            for request, asked, _ in self.files.values()
            for name in request.nodes
            if asked_at[name] == asked
        }

    # --- the daemon's side

    def wait(self, _seconds: float) -> bool:
        woken, self.woken = self.woken, False
        return woken

    def requests(self) -> list[Request]:
        self.run.called()
        return [request for request, _, _ in self.files.values()]

    def forget_calls(self) -> None: ...

    def close(self, request: str) -> None:
        if request in self.files:
            self.run.oracle.closed(self.files[request][0].nodes, self.files[request][1])
        if self.run.now < self.read_only_until:
            raise SpoolError("Read-only file system; make it writable")
        self.files.pop(request, None)
        self.run.called()


@dataclass
class SimSlurm:
    """Scontrol: how slurmctld is asked."""

    run: "SimulatedRun"
    known_at: float = 0
    """The time of slurmctld's last answer: what it says is from then."""
    asked_at: float = 0
    """When its last answer was asked for; 0: this daemon has had none."""
    first_at: float = 0
    """The time of its first answer to this daemon."""
    busy: set[str] = field(default_factory=set)
    """Nodes with a job, by its last answer."""

    def nodes(self) -> list[Node]:
        run = self.run
        asked_at, took = run.now, self._takes()
        known_at, nodes = run.now, list(run.slurm.nodes.values())
        run.call(took, "slurm")
        if run.random.random() < 0.5:
            known_at, nodes = run.now, list(run.slurm.nodes.values())
        self._answers(took)
        if self.asked_at and asked_at - self.asked_at > STALE_S:
            guessed = dict.fromkeys(run.lost, STALE_S)
            run.oracle.unread(run.now, TIMEOUTS.verdict_s, TIMEOUTS.boot_s, guessed)
        if not self.asked_at:
            # Of a node that SLURM asked for before that an earlier daemon may have made the VM.
            self.first_at = known_at
            run.begins()
            for name in run.lost:
                run.oracle.unnoticed(name)
            run.oracle.guesses(run.now)
        self.known_at, self.asked_at = known_at, asked_at
        self.busy = {node.name for node in nodes if node.busy}
        run.called(STOPPED_WITH_STATES)
        return nodes

    def release_nodes(self, names: Iterable[str], reason: str, *, in_service: bool) -> None:
        assert reason
        if reason.startswith(UNUSED):
            self._check_unused(names)
        if NO_QUOTA.code in reason and not self.run.counted <= self.run.cloud.charged() | {*names}:
            self.run.oracle.counted(names)
        if in_service:
            self._update(tuple(names), self.run.slurm.set_down)
        self._update(tuple(names), self.run.slurm.release_nodes)

    def _check_unused(self, names: Iterable[str]) -> None:
        run = self.run
        for task in run.slurm.running:
            if task.allocated < self.known_at:
                for name in set(task.nodes).intersection(names):
                    run.oracle.unused(name, task.id)

    def _update(self, names: tuple[str, ...], update: Update) -> None:
        run = self.run
        assert names
        sent_at, took = run.now, self._takes()
        at_once = run.random.random() < 0.5
        if at_once and run.now >= run.away_until:
            self.apply(names, sent_at, update)
        run.call(took, "slurm")
        self._answers(took)
        if not at_once:
            self.apply(names, sent_at, update)
        run.called()

    def apply(self, names: tuple[str, ...], sent_at: float, update: Update) -> None:
        """Let slurmctld set nodes down or release them.

        It may have registered a node just now: nobody knows that.
        """
        run = self.run
        window_s = sent_at - self.asked_at
        registered, held = run.slurm.registered, run.slurm.held
        news = {name: max(registered[name], held.get(name, 0)) for name in names}
        unseen = {name for name in names if window_s <= WINDOW_S and news[name] >= self.known_at}
        if window_s <= SLOW_WINDOW_S:
            unseen.update(name for name in names if name in held and self._was_busy(name))
        update(names, run.now, unseen)

    def _was_busy(self, name: str) -> bool:
        """Whether the job has ended of which the daemon knows, on a node whose VM is gone."""
        slurm = self.run.slurm
        is_gone = slurm.home.get(name) not in slurm.machines
        return is_gone and name in self.busy and not slurm.nodes[name].busy

    def _takes(self) -> float:
        """How long a call takes; longer than `SCONTROL_S`: it fails."""
        run = self.run
        if run.now < run.hangs_until:
            return run.hangs_until - run.now
        if run.now < run.slow_until:
            return run.random.uniform(2.2, SCONTROL_S - 1)
        return run.random.uniform(0.02, 0.3)

    def _answers(self, took: float) -> None:
        run = self.run
        if took > SCONTROL_S:
            raise SlurmError("scontrol: no answer; look at slurmctld")
        if run.now < run.away_until or run.faults.strike("scontrol fails"):
            raise SlurmError("scontrol: Unable to contact slurm controller")


@dataclass
class SimFleet:
    """The daemon's view of the cloud."""

    run: "SimulatedRun"
    reached: dict[str, list[Vm]] = field(default_factory=dict)
    """The VMs of each zone, as they were listed last while Google reached it."""

    def sets(self) -> dict[str, NodeSet]:
        self.run.call(0.01, "cloud")
        self.run.called()
        return self.run.cloud.sets

    def quotas(self, _sets: Iterable[NodeSet]) -> Quotas:
        """Room for one VM of each healthy node, and no more."""
        run = self.run
        run.counted = run.cloud.charged()
        left, uses = {"CPUS": COUNTS["calm"] - run.cloud.healthy()}, {simcloud.POOL: {"CPUS": 1}}
        return Quotas(left, uses, run.now, frozenset(simcloud.ZONES.values()))

    def vms(self) -> VmList:
        run, cloud = self.run, self.run.cloud
        asked_at, took = run.now, run.random.uniform(0.1, 1)
        if run.now < cloud.no_list_until:
            took = cloud.no_list_until - run.now
        if run.now < cloud.no_token_until:
            # It is tried again, with pauses, until there is a token.
            took += cloud.no_token_until - run.now + run.random.uniform(0, AGAIN_S)
        listed = self._listed()
        run.call(min(took, LIST_S), "cloud")
        if took > LIST_S:
            raise CloudError("no answer")
        if run.random.random() < 0.5:
            listed = self._listed()
        reached = (vm for vm in listed if vm.zone not in listed.unreachable)
        run.oracle.listed({place(vm): vm.status for vm in reached}, asked_at, run.now)
        if not listed.unreachable:
            run.listed(asked_at)
        run.called()
        return listed

    def _listed(self) -> VmList:
        cloud = self.run.cloud
        listed = cloud.content()
        away = {zone for zone in simcloud.ZONES.values() if cloud.away(zone)}
        for zone in simcloud.ZONES.values():
            if zone not in away:
                self.reached[zone] = [vm for vm in listed if vm.zone == zone]
        vms = (vm for zone in simcloud.ZONES.values() for vm in self.reached.get(zone, ()))
        return VmList(vms, away)

    def submit(self, action: Insert | Delete | Withdraw | Probe) -> None:
        self.run.submit(action)
        self.run.called()

    def send_deletions_until(self, time: float) -> None:
        self.run.cloud.send_until = time


class SimulatedRun:
    """One randomized fault-injection test: SLURM, the cloud, and the daemon's steps."""

    def __init__(self, schedule: Schedule, observe: Observer = lambda *_: None) -> None:
        self.faults = Faults(schedule)
        self.random = self.faults.random
        self.observe = observe
        self.clock = self.new_clock()
        self.world = Agenda()
        self.oracle = Oracle(TIMEOUTS.resume_s, HEALTHY_S, boot_s=100, made_s=MADE_S, runs_s=RUNS_S)
        self.oracle.missing_s = TIMEOUTS.missing_s
        self.oracle.unread_s, self.oracle.told_s = STALE_S, TOLD_S
        self.slurm = Slurmctld(self.oracle, self._resume, NODES, TIMES)
        self.cloud = self.new_cloud()
        self.spool = self.new_spool()
        self.lost: set[str] = set()
        """Nodes whose last request is not in the spool."""
        self.away_until = 0.0
        self.saved = Saved.ALL
        """What slurmctld had saved when it went away."""
        self.hangs_until = 0.0
        self.slow_until = 0.0
        self.calls: list[tuple[str, float]] = []
        """Parts of the daemon that are in a call, and when it ends; the innermost last."""
        self.stopped = False
        self.counted: frozenset[str] = frozenset()
        """Healthy nodes of whose VMs the quotas that were read last count some that never come."""
        self.second_at = self.now
        self.start()

    @property
    def now(self) -> float:
        """Seconds since the boot."""
        return self.clock.time

    # --- parts, which a planted bug may replace

    def new_clock(self) -> VirtualClock:
        return VirtualClock()

    def new_cloud(self, kind: type[SimCloud] = SimCloud) -> SimCloud:
        parts = self.faults, self.oracle, self.clock
        return kind(*parts, self._works, self._unnoticed, self.world)

    def new_spool(self) -> SimSpool:
        return SimSpool(self)

    # --- the daemon's process

    def start(self) -> None:
        """Start the daemon, which knows nothing of the one before."""
        self.begins()
        self.stop_times = math.inf, math.inf
        """When this daemon was stopped last, and went on."""
        self.inbox = SimInbox(self._woken)
        self.scontrol = SimSlurm(self)
        self.cloud.tell = self.tell
        self.cloud.stand_still()
        self.daemon: Daemon | None = Daemon(
            ObservedState(CLUSTER, 0, timeouts=TIMEOUTS),
            self.inbox,
            slurm=self.scontrol,
            cloud=SimFleet(self),
            spool=self.spool,
            observe=self.observe,
            clock=self.clock,
        )
        self.oracle.restarted(self.now, self.lost, self.spool.called())
        self.slurm_at = self.cloud_at = self.pass_at = self.now
        self.inbox.put(Called())

    def begins(self) -> None:
        """An earlier daemon may have made VMs: it begins when lists of all zones lack them."""
        self.begun, self.listed_at, self.begins_until = self.now, 0.0, math.inf

    def listed(self, asked_at: float) -> None:
        """The daemon has a list of all zones, asked for at that time."""
        self.listed_at = self.listed_at or self.now
        if self.begins_until == math.inf and asked_at > self.listed_at + TIMEOUTS.missing_s:
            self.begins_until = max(self.begun + BEGINS_S, self.now + CALM_S)

    def _may_have_begun(self) -> None:
        """An idle daemon lists less often; it has begun if nothing was in the way.

        Where its first list of all zones came late, what that lacks counts from then on.
        """
        cloud = self.cloud
        google = max(cloud.no_token_until, cloud.no_list_until, *cloud.away_until.values(), 0)
        listed = self.listed_at + TIMEOUTS.missing_s
        if self.now >= max(self.begun + BEGINS_S, max(listed, google) + CALM_S):
            self.begins_until = min(self.begins_until, self.now)

    def _woken(self, message: Message) -> None:
        if self.daemon is None or self.daemon.urgent(message):
            self.pass_at = min(self.pass_at, self.now)

    def call(self, seconds: float, part: str) -> None:
        """Let a call of a part of the daemon take time."""
        end = self.now + seconds
        if self.calls:
            end = min(end, self.calls[-1][1])
        self.calls.append((part, end))
        self._advance(end)
        self.calls.pop()

    def called(self, stopped: float = STOPPED) -> None:
        """A call of the daemon ends: here its process may be killed, or stopped for a while."""
        if self.faults.strike("killed", KILLED):
            raise Killed
        if self.faults.strike("stopped", stopped):
            self.stop(self.random.choice([20, 30, 60, 120, 300]))

    def stop(self, seconds: float) -> None:
        """Stop the daemon's process for a while."""
        self.stopped, began = True, self.now
        self._advance(self.now + seconds)
        self.stopped, self.stop_times = False, (began, self.now)
        # As after a start: what it knows is old.
        self.begins()

    # --- time

    def play(self, seconds: int = 900, after: int = 3000) -> list[str]:
        """Let jobs come for a while, then end all faults; return what is wrong in the end."""
        for _ in range(seconds):
            if self.random.random() < 0.02:
                size, lasts = self.random.choice([1, 1, 1, 2, 4]), self.random.randint(5, 100)
                self.slurm.submit(self.random.choice(["debug", "debug", "calm"]), size, lasts)
            self.second()
        self._heal()
        for _ in range(after):
            self.second()
            if self.slurm.quiet and not self.cloud.vms and not self.spool.files:
                break
        wrong = self.oracle.end(self.now)
        slurm = self.slurm
        over = sorted([*slurm.done, *slurm.forgotten, *slurm.cancelled])
        if over != list(range(1, self.slurm.submitted + 1)):
            wrong.append("not all jobs have ended")
        return wrong

    def _heal(self) -> None:
        self.cloud.heal()
        self.hangs_until = self.slow_until = 0
        self.spool.full_until = self.spool.read_only_until = 0
        self.clock.skew_s = self.slurm.skew_s = 0

    def second(self) -> None:
        """Let one second pass."""
        end = self.now + 1
        while self.now < end:
            try:
                self._advance(end)
            except Killed:
                self._killed()
            except Exception as error:
                self.oracle.wrong.append(f"the daemon ended by itself: {error!r}")
                self._killed()

    def _killed(self) -> None:
        self.calls.clear()
        self.daemon, self.stopped = None, False
        self.cloud.stand_still()
        self.world.at(self.now + self.random.uniform(0.5, 3), self.start)

    def _advance(self, end: float) -> None:
        """Do all that is due until a time; it may be later afterwards."""
        while True:
            when, do = self._next()
            if when > end:
                break
            self._pass(when)
            do()
        self._pass(end)

    def _next(self) -> tuple[float, Callable[[], None]]:
        """What is due first."""
        now, daemon, driver = self.clock.time, self.daemon, self.cloud.driver
        when, do = self.second_at, self._second
        if (due := self.world.next) < when:
            when, do = due, self.world.run_next
        if daemon is None or self.stopped:
            return when, do
        if (due := driver.next) < when:
            when, do = due, driver.run_next
        if self.pass_at < when:
            when, do = self.pass_at, self._reconcile
        if self.spool.woken and now < when:
            when, do = now, daemon.listen
        if self.calls and now >= self.calls[-1][1]:
            return when, do
        parts = [part for part, _ in self.calls]
        if "slurm" not in parts:
            at = now if daemon.slurm_reader.due.is_set() else self.slurm_at
            if at < when:
                when, do = at, self._read_slurm
        if "cloud" not in parts:
            at = now if daemon.cloud_reader.due.is_set() else self.cloud_at
            if at < when:
                when, do = at, self._read_cloud
        return when, do

    def _pass(self, when: float) -> None:
        """Let time pass in which nothing happens."""
        now = self.clock.time
        seconds = when - now
        if seconds <= 0:
            return
        if self.daemon is None or self.stopped or now < self._unreachable_until():
            self.oracle.excuse(seconds)
        elif now < self._no_work_until():
            self.oracle.excuse_work(seconds)
        self.clock.time = when

    def _unreachable_until(self) -> float:
        """Until when nobody can read or update slurmctld in time."""
        return max(self.away_until, self.hangs_until, self.slow_until) + CALM_S

    def _no_work_until(self) -> float:
        """Until when nobody can make a VM for a healthy node, or SLURM would not accept it."""
        cloud = self.cloud
        if abs(self.slurm.skew_s) > 1:
            return math.inf
        zone = cloud.away_until.get(simcloud.ZONES["c"], 0)
        google = max(cloud.no_token_until, cloud.no_list_until, zone)
        return max(google + CALM_S, self.begins_until)

    # --- the daemon's steps

    def _reconcile(self) -> None:
        daemon = self.daemon
        assert daemon
        self.pass_at = math.inf
        daemon.reconcile_pass(daemon.messages())
        self.pass_at = min(self.pass_at, self.now + TICK_S)

    def _read_slurm(self) -> None:
        assert self.daemon
        pause_s = self.daemon.slurm_reader.read()
        self.slurm_at = self.now + pause_s

    def _read_cloud(self) -> None:
        assert self.daemon
        pause_s = self.daemon.cloud_reader.read()
        self.cloud_at = self.now + pause_s

    def submit(self, action: Insert | Delete | Withdraw | Probe) -> None:
        """Start an action of the daemon in the cloud."""
        if isinstance(action, Insert):
            asked_at = self.slurm.asked_at
            self.oracle.inserts(
                (name for name in action.names if not self._after_stop(asked_at[name])), self.now
            )
        self.cloud.submit(action)

    def _after_stop(self, asked: float) -> bool:
        """Whether SLURM asked since the daemon was stopped, and it decides for the first time now.

        Then one list may have had the node's previous VM, and the next one lacks it.
        """
        began, end = self.stop_times
        return began <= asked and end <= self.now <= end + STALE_S + TICK_S

    def tell(self, event: Event) -> None:
        """Tell the daemon of an event, as the driver does."""
        self.inbox.put(replace(event, at=self.now))

    # --- slurmctld

    def _second(self) -> None:
        """What happens each second."""
        self.second_at += 1
        self._strike()
        self._may_have_begun()
        self.cloud.second()
        if self.now >= self.away_until:
            self.slurm.recover(self.saved)
            self.saved = Saved.ALL
            self.slurm.step(self.now, self._machines())
        self.oracle.waits(self.now)

    def _strike(self) -> None:
        now, faults, random = self.now, self.faults, self.random
        if faults.strike("slurmctld restarts", 0.02):
            self.away_until = now + random.choice([20, 100, 400])
            self.saved = random.choice(list(Saved))
        if faults.strike("scontrol hangs", 0.05):
            self.hangs_until = now + random.randint(5, 60)
        if faults.strike("scontrol slow", 0.05):
            self.slow_until = now + random.uniform(10, 120)
        if faults.strike("spool full", 0.05):
            self.spool.full_until = now + random.uniform(10, 300)
        if faults.strike("spool read-only", 0.05):
            self.spool.read_only_until = now + random.uniform(10, 300)
        for kind, sign in (("clock forward", 1), ("clock back", -1)):
            if faults.strike(kind, 0.02):
                self._step_clock(sign * 0.1 * 6000 ** random.random())
        if now >= self.away_until:
            self._strike_nodes()
            starting = [task for task in self.slurm.running if not task.started]
            if starting and faults.strike("job cancelled", 0.3):
                self.slurm.cancel(random.choice(starting))

    def _strike_nodes(self) -> None:
        """Perhaps something happens to a node in service."""
        now, faults, random, slurm = self.now, self.faults, self.random, self.slurm
        for kind, part in (
            ("slurmd does not answer", 0.03),
            ("held by hand", 0.05),
            ("preempted with notice", 0.1),
        ):
            if not faults.strike(kind, part):
                continue
            nodes = [(name, vm) for name, vm in slurm.in_service() if self.cloud.troubled(name)]
            if not nodes:
                continue
            name, vm = random.choice(nodes)
            match kind:
                case "slurmd does not answer":
                    slurm.mute[vm] = now, now + random.uniform(300, 1200)
                case "held by hand":
                    slurm.hold(name, down=random.random() < 0.5)
                    self.world.at(now + random.uniform(30, 300), partial(slurm.resume_held, name))
                case _:
                    self._take_back(vm)

    def _take_back(self, vm: Place) -> None:
        there = self.cloud.vms.get(vm[:2])
        if there and there.spot and vm[0] not in self.slurm.held:
            self.slurm.notice(vm[0])
            self.world.at(self.now + self.random.uniform(1, 30), lambda: self.cloud.preempt(there))

    def _step_clock(self, seconds: float) -> None:
        """Somebody sets the system clock; after a while NTP sets it right."""
        self.clock.skew_s = self.slurm.skew_s = seconds

        def set_right() -> None:
            self.clock.skew_s = self.slurm.skew_s = 0

        self.world.at(self.now + self.random.uniform(10, 300), set_right)

    def _works(self, vm: Place) -> bool:
        """Whether a node in service is on a VM, and the daemon may know that.

        SLURM takes a node into service that it has powered down, if a VM of it registers.
        """
        unasked = self.slurm.unasked.get(vm, -math.inf)
        return self.slurm.works(vm) and unasked + WINDOW_S < self.scontrol.known_at

    def _unnoticed(self, name: str) -> bool:
        """Whether SLURM asks for a node since the daemon's states, and its request is not there.

        The daemon sends no deletion by states that are stale.
        """
        states = self.scontrol
        fresh = self.now <= states.asked_at + STALE_S
        asked = self.slurm.asked_at[name]
        return fresh and states.known_at < asked and name not in self.spool.called()

    def _machines(self) -> dict[Place, Machine]:
        cloud = self.cloud
        return {
            place(vm): Machine(
                cloud.booted[vm.id], vm.id not in cloud.hung and vm.id not in cloud.by_hand
            )
            for vm in cloud.vms.values()
            if vm.status == "RUNNING"
        }

    def _resume(self, names: tuple[str, ...], jobs: tuple[Job, ...]) -> None:
        asked, off_again = self.now, self.slurm.off_again
        self.lost.difference_update(names)
        again = off_again.intersection(names) if asked <= self.away_until + OFF_AGAIN_S else ()
        off_again.difference_update(names)
        late_s = self.random.uniform(0.02, 0.5)
        if self.faults.strike("request late", 3):
            late_s = self.random.uniform(1, LATE_S)
            self.oracle.called_late(names, min(late_s, READ_S))
        self.world.at(asked + late_s, lambda: self.spool.resume(names, jobs, asked, again))
