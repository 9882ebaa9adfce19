"""Randomized fault-injection tests of `reconcile`: a SLURM and a cloud, second by second.

All that they do follows from a schedule. A test fails where the oracle finds something wrong: it
sees SLURM's and the cloud's records, and nothing of `reconcile`.
"""

from dataclasses import dataclass, field

import simcloud
from oracle import Oracle, Place
from plankit import CLUSTER
from schedules import Faults, Schedule
from simcloud import SETS, SimCloud, place
from slurmctld import Machine, Slurmctld

from muster.autoscaler.daemon import Observer
from muster.autoscaler.reconcile.model import (
    Action,
    Close,
    Delete,
    Insert,
    Job,
    Node,
    Probe,
    ReleaseNodes,
    Request,
)
from muster.autoscaler.reconcile.observed import Limits, ObservedState, VmList
from muster.autoscaler.reconcile.reconcile import reconcile
from muster.autoscaler.reconcile.records import TrackedState

FAULTS = (*simcloud.FAULTS, "slurmctld restarts", "scontrol hangs", "scontrol fails", "killed")
LIMITS = Limits()
BEGINS_S = 26
"""A daemon that restarts: lists (6 s), and what they lack before it counts (20 s from the first
one on)."""
HEALTHY_S = 58 + BEGINS_S
"""A healthy node: 8 s for its insert, 20 s until it registers; what it may wait for is the deletion
of its previous VM (30 s), and lists. While a daemon starts no node is late."""
COUNTS = {"debug": 12, "calm": 4}
NODES = [f"{CLUSTER}-{name}-{number}" for name, count in COUNTS.items() for number in range(count)]


@dataclass
class SimulatedRun:
    """One randomized fault-injection test: SLURM, the cloud, and the daemon's passes."""

    schedule: Schedule
    now: float = 1000
    tracked: TrackedState = field(default_factory=TrackedState)
    observe: Observer = lambda *_: None

    def __post_init__(self) -> None:
        self.faults = Faults(self.schedule)
        self.random = self.faults.random
        self.oracle = Oracle(LIMITS.resume_s, HEALTHY_S)
        self.cloud = SimCloud(self.faults, self.oracle)
        self.slurm = Slurmctld(self.oracle, self._resume, NODES)
        self.requests: list[Request] = []
        self.read: tuple[dict[str, Node], float] = {}, 0
        """The nodes as the daemon read them last, and when."""
        self.began = 0.0
        """When the current daemon began."""
        self.away_until = 0.0
        self.hangs_until = 0.0
        self.releases: list[ReleaseNodes] = []
        """They wait for the next reading."""

    def play(self, seconds: int = 900, after: int = 3000) -> list[str]:
        """Let jobs come for a while, then end all faults; return what is wrong in the end."""
        for _ in range(seconds):
            if self.random.random() < 0.02:
                size, lasts = self.random.choice([1, 1, 1, 2, 4]), self.random.randint(5, 100)
                self.slurm.submit(self.random.choice(["debug", "debug", "calm"]), size, lasts)
            self.second()
        self.faults.ended = True
        self.cloud.room.clear()
        self.cloud.hung.clear()
        for _ in range(after):
            self.second()
            if self.slurm.quiet and not self.cloud.vms and not self.requests:
                break
        wrong = self.oracle.end(self.now)
        if sorted(self.slurm.done) != list(range(1, self.slurm.submitted + 1)):
            wrong.append("not all jobs have ended")
        return wrong

    def second(self) -> None:
        """Let one second pass."""
        self.now += 1
        self.cloud.second(self.now)
        if self.faults.strike("slurmctld restarts", 0.02):
            self.away_until = self.now + self.random.choice([20, 100, 400])
        if self.faults.strike("scontrol hangs", 0.05):
            self.hangs_until = self.now + self.random.randint(5, 60)
        if self.now < self.away_until:
            self.slurm.away(1)
        else:
            self.slurm.step(self.now, self._machines())
        if self.unreachable:
            self.oracle.excuse(1)
        elif self.now < max(
            # What a healthy node may wait for is the deletion of its previous VM, by a list.
            self.cloud.no_token_until,
            self.cloud.no_list_until,
            self.began + BEGINS_S,
        ):
            self.oracle.excuse_work(1)
        self.oracle.waits(self.now)
        if self.faults.strike("killed", 0.2):
            # The next daemon tracks nothing, and gets no results of earlier calls.
            self.tracked, self.read, self.releases = TrackedState(), ({}, 0.0), []
            self.began = self.now
            self.cloud.later.clear()
        self._daemon()

    @property
    def unreachable(self) -> bool:
        """Whether slurmctld can't be read or updated."""
        return self.now < self.away_until or self.now < self.hangs_until

    def _machines(self) -> dict[Place, Machine]:
        return {
            place(vm): Machine(
                vm.created, vm.status == "RUNNING" and vm.name not in self.cloud.hung
            )
            for vm in self.cloud.vms.values()
        }

    def _resume(self, names: tuple[str, ...], jobs: tuple[Job, ...]) -> None:
        self.requests.append(Request(f"r{self.now}", self.now, names, jobs))

    def _daemon(self) -> None:
        if not self.unreachable and not self.faults.strike("scontrol fails"):
            self.read = dict(self.slurm.nodes), self.now
            self.release_nodes()
        at, listed = self.cloud.listed()
        if at < self.began:
            at, listed = 0, []
        observed = self.seen(
            ObservedState(
                CLUSTER,
                self.now,
                nodes=self.read[0],
                nodes_at=self.read[1],
                vms=VmList(listed),
                vms_at=at,
                requests=tuple(self.requests),
                sets=SETS,
                events=self.cloud.events(),
                limits=LIMITS,
            )
        )
        actions, self.tracked = reconcile(observed, self.tracked)
        self.observe(observed, self.tracked, actions)
        for action in actions:
            self.do(action)

    def seen(self, observed: ObservedState) -> ObservedState:
        """What a pass works on."""
        return observed

    def release_nodes(self) -> None:
        """Release nodes as the daemon does, which has just read them."""
        releases, self.releases = self.releases, []
        for action in releases:
            names = [name for name in action.names if self.slurm.nodes[name].power is action.power]
            if names and not self.faults.strike("scontrol fails"):
                self.slurm.release_nodes(tuple(names), self.now)

    def do(self, action: Action) -> None:
        """Do an action."""
        match action:
            case ReleaseNodes():
                self.releases.append(action)
            case Insert():
                self.cloud.insert(action)
            case Delete(vm):
                there = self.cloud.vms.get((vm.name, vm.zone))
                runs = there is not None and there.status == "RUNNING"
                works = runs and self.slurm.works(place(there))
                self.cloud.delete(action, works=works)
            case Probe():
                self.cloud.probe(action)
            case Close(request_id):
                self.requests = [request for request in self.requests if request.id != request_id]
