"""Randomized fault injection: the real daemon, driver and spool, a faulty cloud and slurmctld.

All times are the product's own, by a clock that is fast. A run can't be repeated to the
millisecond. Its schedule has the kinds of faults and their rates.
"""

import datetime
import json
import logging
import os
import threading
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import google.auth.exceptions
from faulty_cloud import CALM, FaultyCloud
from faulty_cloud import FAULTS as CLOUD_FAULTS
from google.auth.credentials import Credentials
from oracle import Oracle, Place
from quick import DRIVER_LIMITS, FastClock
from schedules import Faults, Schedule
from slurmctld import Machine, Slurmctld

from muster.autoscaler.compute import node_templates
from muster.autoscaler.compute.driver import Google
from muster.autoscaler.compute.fleet import Fleet
from muster.autoscaler.daemon import Daemon, Inbox
from muster.autoscaler.reconcile.model import Delete, Insert, Job, Node, NodeSet, Probe, Withdraw
from muster.autoscaler.reconcile.observed import ObservedState, Timeouts
from muster.autoscaler.report.event_log import EventLog
from muster.autoscaler.report.metrics import Metrics
from muster.autoscaler.report.observer import Observer
from muster.autoscaler.report.status_file import StatusFile
from muster.autoscaler.slurm import power_save_program
from muster.autoscaler.slurm.slurmctld import SlurmError
from muster.autoscaler.slurm.spool import Spool
from muster.gcp.api import CloudError

FAULTS = (
    *CLOUD_FAULTS,
    "token endpoint down",
    "metadata server down",
    "boot hangs",
    "slurmctld restarts",
    "scontrol hangs",
    "scontrol fails",
    "daemon ends",
    "clock jumps",
)
JUMPS_S = (-600, -20, -0.1, 0.1, 20, 600)
"""Steps of the controller's system clock."""
OFF_S = 3600
"""So much Google's clock may differ from the controller's."""
STEP_S = 0.75
SUBMIT_S, AFTER_S = 300.0, 900.0
"""How long jobs are submitted, and how long all may take to end after that."""
HEALTHY_S = 150.0
"""Half of ResumeTimeout: nodes without faults share lists and rate limits with the others."""
SCONTROL_S = 30.0
TOKEN_S = 30.0
"""Google's last an hour; an outage of the token endpoint would last longer than a run."""
TIMEOUTS = Timeouts()
COUNTS = {"debug": 8, "calm": 3}
Meant = dict[tuple[str, str], set[str]]
"""Name and zone -> ids of the VMs that daemons wanted to delete."""
creating = threading.Lock()
"""The driver reads its address from the environment, which all runs share."""


class Unexpected(logging.Handler):
    """Keeps the unexpected exceptions that the daemons log."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.messages.append(f"{record.getMessage()}: {record.exc_info[1]!r}")


class Tokens(Credentials):  # type: ignore[misc]
    """The controller's credentials, with a token endpoint that is sometimes down."""

    def __init__(self, token: str, faults: Faults, clock: FastClock) -> None:
        super().__init__()
        self.value = token
        self.clock = clock
        self.faults = faults
        self.down_until = 0.0

    def refresh(self, _request: object) -> None:
        # It is called every 5 s.
        if self.faults.strike("token endpoint down", 0.4):
            self.down_until = self.clock.monotonic() + self.faults.random.choice([8, 22, 45])
        if self.clock.monotonic() < self.down_until:
            raise google.auth.exceptions.TransportError("Connection refused")
        self.token = self.value
        now = datetime.datetime.fromtimestamp(self.clock.now(), datetime.UTC).replace(tzinfo=None)
        self.expiry = now + datetime.timedelta(seconds=TOKEN_S)


class Metadata(Fleet):
    """The fleet, with a metadata server that is sometimes down."""

    def __init__(
        self, google: Google, text: str, faults: Faults, clock: FastClock, meant: Meant
    ) -> None:
        super().__init__(google, clock=clock)
        self.node_sets = node_templates.parse(text)
        self.faults = faults
        self.meant = meant

    def sets(self) -> dict[str, NodeSet]:
        if self.faults.strike("metadata server down"):
            raise CloudError("the metadata server does not answer")
        return self.node_sets

    def submit(self, action: Insert | Delete | Withdraw | Probe) -> None:
        if isinstance(action, Delete):
            self.meant[action.vm.name, action.vm.zone].add(action.vm.id)
        super().submit(action)


class FaultRun:
    """One run. It is also the `Slurm` of its daemon, which calls it from other threads."""

    def __init__(self, schedule: Schedule, folder: Path) -> None:
        self.faults = Faults(schedule)
        self.random = self.faults.random
        self.clock = FastClock()
        self.folder = folder
        (folder / "spool").mkdir(parents=True)
        self.oracle = Oracle(TIMEOUTS.resume_s, HEALTHY_S, healthy=CALM)
        names = [
            f"lab-{node_set}-{number}"
            for node_set, count in COUNTS.items()
            for number in range(count)
        ]
        self.slurm = Slurmctld(self.oracle, self._resume, names)
        self.machines: dict[Place, Machine] = {}
        self.hung: set[Place] = set()
        """VMs whose boot does not end."""
        self.lock = threading.Lock()
        """Guards slurmctld, the machines and the oracle."""
        self.known: dict[str, float] = {}
        """When each node had registered last, at slurmctld's last answer."""
        self.away_until = 0.0
        self.hangs_until = 0.0
        self.deaths: list[str] = []
        self.meant: Meant = defaultdict(set)
        off_s = self.random.uniform(-OFF_S, OFF_S)
        self.cloud = FaultyCloud(self.faults, replace(self.clock, set_s=off_s))
        self.tokens = Tokens(self.cloud.kit.token(), self.faults, self.clock)

    def __str__(self) -> str:
        return str(self.faults.schedule)

    def run(self) -> list[str]:
        """Run to the end; return what is wrong."""
        self._start()
        begin = last = self.clock.monotonic()
        while self.clock.monotonic() < begin + SUBMIT_S + AFTER_S:
            now = self.clock.monotonic()
            if now < begin + SUBMIT_S:
                self._schedule(now)
            elif not self.faults.ended:
                self.faults.ended = True
                self.cloud.heal()
            self._step(now, now - last)
            last = now
            if self.faults.ended and self._quiet():
                break
            self.clock.sleep(STEP_S)
        self._stop()
        wrong = self._verdict() + self.deaths
        if sorted(self.slurm.done) != list(range(1, self.slurm.submitted + 1)):
            wrong.append("not all jobs have ended")
        return wrong + self.cloud.close()

    def _schedule(self, now: float) -> None:
        if self.random.random() < 0.02:
            size, lasts = self.random.choice([1, 1, 2, 4]), self.random.uniform(5, 60)
            node_set = self.random.choice(["debug", "debug", "calm"])
            self.slurm.submit(node_set, min(size, COUNTS[node_set]), lasts)
        if self.faults.strike("slurmctld restarts", 0.1):
            self.away_until = now + self.random.choice([15, 60, 120])
        if self.faults.strike("scontrol hangs", 0.1):
            self.hangs_until = now + self.random.choice([8, 22, 45])
        if self.faults.strike("daemon ends", 0.1):
            self._stop()
            self._start()
        if self.faults.strike("clock jumps", 0.15):
            self.clock.set_s += self.random.choice(JUMPS_S)
        self.cloud.trouble()

    def _step(self, now: float, passed: float) -> None:
        with self.lock:
            if self.mute or passed > 8:
                # slurmctld can't be reached, or this machine is too busy.
                self.oracle.excuse(passed)
            elif now < self.tokens.down_until:
                self.oracle.excuse_work(passed)
            self._machines(now)
            if now >= self.away_until:
                self.slurm.step(now, self.machines)
            self.oracle.waits(now)

    def _machines(self, now: float) -> None:
        """Apply what happened to VMs."""
        while not self.cloud.changes.empty():
            change = self.cloud.changes.get()
            match change.what:
                case "born":
                    if CALM not in change.vm[0] and self.faults.strike("boot hangs", 4):
                        self.hung.add(change.vm)
                    self.oracle.born(change.vm, now)
                    # Not sound: it does not run yet.
                    self.machines[change.vm] = Machine(now, sound=False)
                case "RUNNING":
                    self.machines[change.vm] = Machine(now, sound=change.vm not in self.hung)
                case "gone":
                    self.oracle.gone(change.vm)
                    self.machines.pop(change.vm, None)
                case "PROVISIONING" | "STAGING":
                    pass
                case status:
                    if status == "deleted":
                        runs = change.vm in self.machines
                        asked = change.vm not in self.slurm.unasked
                        works = runs and asked and self.slurm.works(change.vm)
                        self.oracle.deleted(change.vm, works=works, meant=self._meant(change.vm))
                    self.oracle.stopped(change.vm)
                    self.machines.pop(change.vm, None)

    def _meant(self, vm: Place) -> str:
        """The id of the VM of that name that was to be deleted, if it is known."""
        name, zone, vm_id = vm
        ids = self.meant.get((name, zone), set())
        return vm_id if vm_id in ids else next(iter(ids), "")

    def _verdict(self) -> list[str]:
        """What is wrong, with all that has happened to VMs until now."""
        now = self.clock.monotonic()
        with self.lock:
            self._machines(now)
            return self.oracle.end(now)

    def _quiet(self) -> bool:
        with self.lock:
            idle = self.slurm.quiet and not self.machines
        return idle and not list((self.folder / "spool").glob("*.resume")) and not self.cloud.left()

    # --- the daemon

    def _start(self) -> None:
        inbox = Inbox()
        with creating:
            os.environ["GOOGLE_COMPUTE_CUSTOM_ENDPOINT"] = f"{self.cloud.server.url}/compute/v1/"
            self.google = Google(
                "demo-project", "lab", inbox.put, DRIVER_LIMITS, self.tokens, clock=self.clock
            )
        self.events = EventLog(self.folder / "events.jsonl")
        self.daemon = Daemon(
            ObservedState("lab", 0, timeouts=TIMEOUTS),
            inbox,
            slurm=self,
            cloud=self.fleet(),
            spool=Spool(self.folder / "spool", self.clock),
            observe=Observer(
                StatusFile(self.folder / "status.json"), self.events, Metrics(self.clock)
            ),
            clock=self.clock,
        )
        self.thread = threading.Thread(target=self._run, args=(self.daemon,), daemon=True)
        self.thread.start()

    def fleet(self) -> Metadata:
        """The cluster's VMs for the daemon."""
        return Metadata(self.google, self.cloud.sets(), self.faults, self.clock, self.meant)

    def _run(self, daemon: Daemon) -> None:
        try:
            daemon.run()
        except BaseException as error:
            self.deaths.append(f"the daemon ended with {error!r}")

    def _stop(self) -> None:
        self.daemon.stop()
        self.thread.join(10)
        if self.thread.is_alive():
            self.deaths.append("the daemon does not end")
        self.google.close()
        self.events.close()

    # --- slurmctld's programs

    @property
    def mute(self) -> bool:
        return self.clock.monotonic() < max(self.away_until, self.hangs_until)

    def nodes(self) -> list[Node]:
        self._reach()
        with self.lock:
            self.known = dict(self.slurm.registered)
            return list(self.slurm.nodes.values())

    def release_nodes(self, names: Iterable[str], reason: str, *, in_service: bool) -> None:
        assert reason
        for state in (["down"] if in_service else []) + ["power_down_force"]:
            self._update(tuple(names), state)

    def _update(self, names: tuple[str, ...], state: str) -> None:
        if self.clock.monotonic() < self.hangs_until and self.random.random() < 0.5:
            # slurmctld does it, and scontrol gets no answer.
            self.update(names, state)
        self._reach()
        self.update(names, state)

    def update(self, names: Iterable[str], state: str) -> None:
        """Let slurmctld update nodes; the oracle knows by then what happened to their VMs.

        A node that registered after slurmctld's last answer is unseen, however long ago that was:
        on a busy machine that is not the daemon's fault. Virtual time has the bound of this.
        """
        now, names = self.clock.monotonic(), tuple(names)
        updates = {"down": self.slurm.set_down, "power_down_force": self.slurm.release_nodes}
        with self.lock:
            self._machines(now)
            registered = self.slurm.registered
            unseen = {name for name in names if registered[name] != self.known.get(name)}
            updates[state](names, now, unseen)

    def _reach(self) -> None:
        hangs_s = self.hangs_until - self.clock.monotonic()
        if hangs_s > 0:
            self.clock.sleep(min(hangs_s, SCONTROL_S))
            raise SlurmError("scontrol: no answer; look at slurmctld")
        if self.clock.monotonic() < self.away_until or self.faults.strike("scontrol fails"):
            raise SlurmError("scontrol: Unable to contact slurm controller (connect failure)")

    def _resume(self, names: tuple[str, ...], jobs: tuple[Job, ...]) -> None:
        waiting = [{"job_id": job.id, "nodes_resume": ",".join(job.nodes)} for job in jobs]
        spool = self.folder / "spool"
        # As muster-resume writes it.
        head = {
            "nodes": ",".join(names),
            "asked": self.clock.now(),
            "boot": Path(power_save_program.BOOT_ID).read_text().strip(),
            "since_boot": self.clock.monotonic(),
        }
        # Not in the spool: a daemon that starts removes those that are not complete and seem old.
        fresh = self.folder / f"{self.clock.now() * 1e9:.0f}-{len(waiting)}.resume"
        fresh.write_text(f"{json.dumps(head)}\n{json.dumps({'jobs': waiting})}")
        fresh.rename(spool / fresh.name)
        power_save_program.wake(str(spool))
