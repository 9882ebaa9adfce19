"""Randomized fault injection: the real daemon, driver and spool, a faulty cloud and slurmctld.

A run in real time can't be repeated to the millisecond. Its schedule has the kinds of faults and
their rates.
"""

import datetime
import json
import logging
import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import google.auth.exceptions
from faulty_cloud import CALM, FaultyCloud
from faulty_cloud import FAULTS as CLOUD_FAULTS
from google.auth.credentials import Credentials
from oracle import Oracle, Place
from quick import DRIVER_LIMITS, LIMITS, PACE, SPEED
from schedules import Faults, Schedule
from slurmctld import Machine, Slurmctld, Times

from muster.autoscaler.compute import node_templates
from muster.autoscaler.compute.driver import Google
from muster.autoscaler.compute.fleet import Fleet
from muster.autoscaler.daemon import Daemon, Inbox
from muster.autoscaler.reconcile.model import Job, Node, NodeSet
from muster.autoscaler.reconcile.observed import ObservedState
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
JUMPS_S = (-20, -2)
"""Steps of the controller's clock; slurmctld's timeouts follow it. It is never ahead of Google's:
VMs would then seem older than their request, and be deleted as left over."""
STEP_S = 0.05
SUBMIT_S, AFTER_S = 20.0, 40.0
"""How long jobs are submitted, and how long all may take to end after that."""
HEALTHY_S = 150 / SPEED
"""Half of ResumeTimeout: nodes without faults share lists and rate limits with the others."""
SCONTROL_S = 30 / SPEED
TOKEN_S = 2.0
TIMES = Times(suspend_s=4, idle_s=3, boot_s=1.5, early_s=0.3, again_s=2)
COUNTS = {"debug": 8, "calm": 3}
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

    def __init__(self, token: str, faults: Faults) -> None:
        super().__init__()
        self.value = token
        self.faults = faults
        self.down_until = 0.0

    def refresh(self, _request: object) -> None:
        if self.faults.strike("token endpoint down", 2):
            self.down_until = time.monotonic() + self.faults.random.choice([0.5, 1.5, 3])
        if time.monotonic() < self.down_until:
            raise google.auth.exceptions.TransportError("Connection refused")
        self.token = self.value
        now = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
        self.expiry = now + datetime.timedelta(seconds=TOKEN_S)


class Metadata(Fleet):
    """The fleet, with a metadata server that is sometimes down."""

    def __init__(self, google: Google, text: str, faults: Faults) -> None:
        super().__init__(google)
        self.node_sets = node_templates.parse(text)
        self.faults = faults

    def sets(self) -> dict[str, NodeSet]:
        if self.faults.strike("metadata server down"):
            raise CloudError("the metadata server does not answer")
        return self.node_sets


class FaultRun:
    """One run. It is also the `Slurm` of its daemon, which calls it from other threads."""

    def __init__(self, schedule: Schedule, folder: Path) -> None:
        self.faults = Faults(schedule)
        self.random = self.faults.random
        self.folder = folder
        (folder / "spool").mkdir(parents=True)
        self.oracle = Oracle(LIMITS.resume_s, HEALTHY_S, healthy=CALM)
        names = [
            f"lab-{node_set}-{number}"
            for node_set, count in COUNTS.items()
            for number in range(count)
        ]
        self.slurm = Slurmctld(self.oracle, self._resume, names, TIMES)
        self.machines: dict[Place, Machine] = {}
        self.lock = threading.Lock()
        """Guards slurmctld, the machines and the oracle."""
        self.away_until = 0.0
        self.hangs_until = 0.0
        self.skew_s = 0.0
        self.deaths: list[str] = []
        self.cloud = FaultyCloud(self.faults)
        self.tokens = Tokens(self.cloud.kit.token(), self.faults)

    def __str__(self) -> str:
        return str(self.faults.schedule)

    def run(self) -> list[str]:
        """Run to the end; return what is wrong."""
        self._start()
        begin = last = time.monotonic()
        while time.monotonic() < begin + SUBMIT_S + AFTER_S:
            now = time.monotonic()
            if now < begin + SUBMIT_S:
                self._schedule(now)
            elif not self.faults.ended:
                self.faults.ended = True
                self.cloud.heal()
            self._step(now, now - last)
            last = now
            if self.faults.ended and self._quiet():
                break
            time.sleep(STEP_S)
        self._stop()
        wrong = self._verdict() + self.deaths
        if sorted(self.slurm.done) != list(range(1, self.slurm.submitted + 1)):
            wrong.append("not all jobs have ended")
        return wrong + self.cloud.close()

    def _schedule(self, now: float) -> None:
        if self.random.random() < 0.02:
            size, lasts = self.random.choice([1, 1, 2, 4]), self.random.uniform(0.3, 4)
            node_set = self.random.choice(["debug", "debug", "calm"])
            self.slurm.submit(node_set, min(size, COUNTS[node_set]), lasts)
        if self.faults.strike("slurmctld restarts", 0.1):
            self.away_until = now + self.random.choice([1, 4, 8])
        if self.faults.strike("scontrol hangs", 0.1):
            self.hangs_until = now + self.random.choice([0.5, 1.5, 3])
        if self.faults.strike("daemon ends", 0.1):
            self._stop()
            self._start()
        if self.faults.strike("clock jumps", 0.15):
            jump_s = self.random.choice(JUMPS_S)
            self.skew_s += jump_s
            with self.lock:
                self.oracle.excuse(abs(jump_s))
        self.cloud.trouble()

    def _step(self, now: float, passed: float) -> None:
        with self.lock:
            if self.mute or passed > 0.5:
                # slurmctld can't be reached, or this machine is too busy.
                self.oracle.excuse(passed)
            elif now < self.tokens.down_until:
                self.oracle.excuse_work(passed)
            self._machines(now)
            if now < self.away_until:
                self.slurm.away(passed)
            else:
                self.slurm.step(now, self.machines)
            self.oracle.waits(now)

    def _machines(self, now: float) -> None:
        """Apply what happened to VMs."""
        while not self.cloud.moved.empty():
            moved = self.cloud.moved.get()
            match moved.what:
                case "born":
                    sound = CALM in moved.vm[0] or not self.faults.strike("boot hangs", 4)
                    self.oracle.born(moved.vm, now)
                    # Not sound: it does not run yet, and perhaps never will.
                    self.machines[moved.vm] = Machine(now if sound else 1e12, sound=False)
                case "RUNNING":
                    self.machines[moved.vm] = Machine(self.machines[moved.vm].born)
                case "gone":
                    self.oracle.gone(moved.vm)
                    self.machines.pop(moved.vm, None)
                case "PROVISIONING" | "STAGING":
                    pass
                case status:
                    if status == "deleted":
                        runs = moved.vm in self.machines
                        self.oracle.deleted(moved.vm, works=runs and self.slurm.works(moved.vm))
                    self.oracle.stopped(moved.vm)
                    self.machines.pop(moved.vm, None)

    def _verdict(self) -> list[str]:
        """What is wrong, with all that has happened to VMs until now."""
        now = time.monotonic()
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
            self.google = Google("demo-project", "lab", inbox.put, DRIVER_LIMITS, self.tokens)
        self.events = EventLog(self.folder / "events.jsonl")
        self.daemon = Daemon(
            ObservedState("lab", 0, limits=LIMITS),
            inbox,
            slurm=self,
            cloud=self.fleet(),
            spool=Spool(self.folder / "spool"),
            pace=PACE,
            observe=Observer(StatusFile(self.folder / "status.json"), self.events, Metrics()),
            clock=lambda: time.time() + self.skew_s,
        )
        self.thread = threading.Thread(target=self._run, args=(self.daemon,), daemon=True)
        self.thread.start()

    def fleet(self) -> Metadata:
        """The cluster's VMs for the daemon."""
        return Metadata(self.google, self.cloud.sets(), self.faults)

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
        return time.monotonic() < max(self.away_until, self.hangs_until)

    def nodes(self) -> list[Node]:
        self._reach()
        with self.lock:
            return list(self.slurm.nodes.values())

    def release_nodes(self, names: Iterable[str], reason: str) -> None:
        assert reason
        if time.monotonic() < self.hangs_until and self.random.random() < 0.5:
            # slurmctld does it, and scontrol gets no answer.
            self.apply_release(names)
            names = ()
        self._reach()
        self.apply_release(names)

    def apply_release(self, names: Iterable[str]) -> None:
        """Let slurmctld release nodes; the oracle knows by then what happened to their VMs."""
        now = time.monotonic()
        with self.lock:
            self._machines(now)
            self.slurm.release_nodes(tuple(names), now)

    def _reach(self) -> None:
        hangs_s = self.hangs_until - time.monotonic()
        if hangs_s > 0:
            time.sleep(min(hangs_s, SCONTROL_S))
            raise SlurmError("scontrol: no answer; look at slurmctld")
        if time.monotonic() < self.away_until or self.faults.strike("scontrol fails"):
            raise SlurmError("scontrol: Unable to contact slurm controller (connect failure)")

    def _resume(self, names: tuple[str, ...], jobs: tuple[Job, ...]) -> None:
        waiting = [{"job_id": job.id, "nodes_resume": ",".join(job.nodes)} for job in jobs]
        spool = self.folder / "spool"
        # As muster-resume writes it, by the clock that jumps.
        head = {"nodes": ",".join(names), "asked": time.time() + self.skew_s}
        fresh = spool / f"{time.time_ns()}-{len(waiting)}.resume.new"
        fresh.write_text(f"{json.dumps(head)}\n{json.dumps({'jobs': waiting})}")
        fresh.rename(fresh.with_suffix(""))
        power_save_program.wake(str(spool))
