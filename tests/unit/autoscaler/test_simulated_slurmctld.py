"""The simulated slurmctld does what a real one did, at the times at which it did it.

tests/bench/record_slurmctld.py recorded what slurmctld of each release does with nodes. Each trial
is played with the simulated one: the same actions at the same times. It must show the same states
of each node in one order, each at the same time. Times count from the last state that both showed,
so that one difference does not become the next one's. A node powers up or down when ResumeProgram
or SuspendProgram is called for it.

Not compared, because the autoscaler does not see it: when a job's script starts after its nodes are
up, and a node's reason.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yamlkit
from oracle import Oracle, Place
from slurmctld import Machine, Saved, Slurmctld, Task, Times

from muster.autoscaler.reconcile.model import Node, Power
from muster.autoscaler.slurm.slurmctld import _state

Event = Mapping[str, Any]
DATA = Path(__file__).parent / "slurm/data"
RELEASES = ("22.05", "24.11")
AGAIN_S = 121
"""A job that is queued again begins when its credential has expired (120 s, cred_expire of
slurm.conf(5)) and a second later: src/slurmctld/job_mgr.c."""
LATE_S = 2.5
"""The simulated one steps each second, and compares with `>`. The real one was read every 0.2 s."""
EARLY_S = 4.0
"""The real one looks for jobs 3 s after a submission (batch_sched_delay of slurm.conf(5)), and for
nodes each second (src/slurmctld/power_save.c); its slurmds need up to 2.3 s until they register."""
LOOKS_EVERY_S = 11.0
"""The same for timeouts: it looks at nodes every 10 s while no node changes (power_save_interval in
power_save.c), and compares whole seconds."""
PINGS_S = 40.0
"""The same for SlurmdTimeout: it asks slurmds three times in it, looks then who has answered, and
asks again only when the last round has ended. Recorded: 14 s to 35 s later."""
PASSING_S = 3.0
"""So short a state is not compared if it only waits until slurmctld looks at nodes: leaving, or
allocated and off."""
LEFT_OUT = {
    "released and set down with a job, VM gone": "Muster sets nodes DOWN first",
    "killed for 20 s: idle": "the end of a job was not saved, and its node is busy for a second "
    "again: for the autoscaler a node in service is the same with a job",
    "killed for 50 s: idle": "the same",
    "24.11, clock 60 s forward: its job ends": "by the new clock slurmd answered longer ago "
    "than SlurmdTimeout. The node is DOWN for a second: the autoscaler waits for ten minutes",
    "22.05, shut down for 20 s: idle": "22.05 counts SuspendTime from its start, 24.11 and the "
    "simulated one from the end of the job: the node only powers down some seconds later",
}
"""Trials that are not compared, some of them of one release, and why."""
REFUSED = "it runs"
"""What is missed where slurmctld refuses a VM that booted before it asked for the node."""


@cache
def recording(release: str) -> dict[str, Any]:
    data: dict[str, Any] = yamlkit.load((DATA / release / "timing.yml").read_text())
    return data


@cache
def trials() -> dict[tuple[str, str], list[Event]]:
    """Release and name -> what was recorded."""
    return {
        (release, trial if group == "alone" else f"{group}: {trial}"): events
        for release in RELEASES
        for group, recorded in recording(release)["groups"].items()
        for trial, events in recorded["trials"].items()
    }


def times(release: str) -> Times:
    """The settings of a recording."""
    settings = recording(release)["settings"]
    return Times(
        suspend_s=settings["SuspendTimeout"],
        idle_s=settings["SuspendTime"],
        resume_s=settings["ResumeTimeout"],
        boot_s=0,
        again_s=AGAIN_S,
        lost_s=settings["SlurmdTimeout"],
        try_s=60,
    )


def state_of(node: Node) -> str:
    flags = {"down": node.down, "busy": node.busy, "leaving": node.leaving}
    return " ".join([node.power, *(flag for flag, on in flags.items() if on)])


def recorded_state(event: Event) -> str:
    """A state as the autoscaler reads it."""
    power, down, drained, not_responding, busy, leaving, invalid = _state(event["state"].encode())
    return state_of(Node("", power, down, drained, not_responding, busy, leaving, invalid))


def passes(state: str) -> bool:
    """Whether slurmctld changes it when it looks at nodes next."""
    return state.endswith("leaving") or state == f"{Power.OFF} busy"


def expected(events: list[Event]) -> list[Event]:
    """Actions, and states that differ from the one before and do not only pass."""
    kept: list[Event] = []
    ends: dict[int, float] = {}
    for event in reversed(events):
        if "state" in event and "node" in event:
            state, node = recorded_state(event), event["node"]
            end, ends[node] = ends.get(node, float("inf")), event["at"]
            if not passes(state) or end - event["at"] >= PASSING_S:
                kept.append({"at": event["at"], "node": node, "shows": state})
        elif "did" in event:
            kept.append(event)
    last = dict.fromkeys(ends, str(Power.OFF))
    result = []
    for event in reversed(kept):
        if "shows" in event:
            if last[event["node"]] == event["shows"]:
                continue
            last[event["node"]] = event["shows"]
        result.append(event)
    return result


@dataclass
class Player:
    """Plays a trial with the simulated slurmctld."""

    events: list[Event]
    times: Times
    saved: Saved
    away: bool = False
    ahead: float = 0
    """How much later the simulated one showed the last state than the real one."""
    jobs: dict[int, Task] = field(default_factory=dict)
    vms: dict[Place, Machine] = field(default_factory=dict)

    def __post_init__(self) -> None:
        size = 1 + max(event.get("node", 0) for event in self.events)
        self.names = [f"lab-debug-{number}" for number in range(size)]
        oracle = Oracle(resume_s=1000, healthy_s=1000)
        self.slurm = Slurmctld(oracle, lambda *_: None, self.names, self.times)
        self.shown = [str(Power.OFF)] * size
        self.second_at = self.now = self.events[0]["at"]
        self.pending = expected(self.events)

    def play(self) -> str:
        """Return the first difference; empty: there is none."""
        while self.pending:
            event = self.pending[0]
            # An early state does not make early what counts from one before it.
            until = self.ahead if "did" in event else max(self.ahead, 0) + LATE_S
            change = self._advance(event["at"] + until)
            if change:
                wrong = self._compare(*change)
                if wrong:
                    return wrong
            elif "did" in event:
                # Nobody could see the states between actions of one moment.
                at = event["at"]
                while self.pending and "did" in self.pending[0] and self.pending[0]["at"] == at:
                    action = self.pending.pop(0)
                    getattr(self, f"_{action['did']}")(action)
            else:
                return f"real: {event}; simulated: {self.shown} at {self._time}"
        change = self._advance(self.events[-1]["at"] + self.ahead - EARLY_S)
        return f"not real: {change} at {self._time}" if change else ""

    @property
    def _time(self) -> str:
        """The time of the recording."""
        return f"{self.now - self.ahead:.1f} s"

    def _advance(self, end: float) -> tuple[int, str, str] | None:
        """Go on until a node shows another state; return the node and both states."""
        while True:
            for node, name in enumerate(self.names):
                state = state_of(self.slurm.nodes[name])
                wanted = self._next(node)
                if state != self.shown[node] and (
                    not passes(state) or (wanted and wanted["shows"] == state)
                ):
                    if wanted and wanted["shows"] != state:
                        # The real one may not have been read in that second.
                        self._second()
                        state = state_of(self.slurm.nodes[name])
                    before, self.shown[node] = self.shown[node], state
                    return node, before, state
            if self.second_at > end:
                self.now = max(self.now, end)
                return None
            self._second()

    def _second(self) -> None:
        self.now = self.second_at
        self.second_at += 1
        if not self.away:
            self.slurm.step(self.now, self.vms)

    def _next(self, node: int) -> Event | None:
        states = (event for event in self.pending if "shows" in event and event["node"] == node)
        return next(states, None)

    def _compare(self, node: int, before: str, state: str) -> str:
        event = self._next(node)
        if event is None:
            late = self.now - self.ahead > self.events[-1]["at"] - EARLY_S
            return "" if late else f"not real: {state} of node {node} at {self._time}"
        early_s = EARLY_S
        if state.startswith((Power.POWERING_DOWN, Power.OFF)):
            early_s = PINGS_S if before.endswith("busy leaving") else LOOKS_EVERY_S
        if state != event["shows"] or self.now < event["at"] + self.ahead - early_s:
            return f"real: {event}; simulated: {state} at {self._time}"
        self.pending.remove(event)
        self.ahead = self.now - event["at"]
        return ""

    # --- actions

    def _submit(self, event: Event) -> None:
        self.slurm.submit("debug", len(self.names), float("inf"))
        self.jobs[event["job"]] = self.slurm.waiting[-1]

    def _end(self, event: Event) -> None:
        self.jobs[event["job"]].seconds = 0

    def _boot(self, event: Event) -> None:
        vm = self.names[event["node"]], "zone", str(event["at"])
        self.vms[vm] = Machine(event["booted"] + self.ahead)

    def _delete(self, event: Event) -> None:
        for vm in [vm for vm in self.vms if vm[0] == self.names[event["node"]]]:
            del self.vms[vm]

    def _down(self, event: Event) -> None:
        self.slurm.set_down((self.names[event["node"]],), self.now)

    def _release(self, event: Event) -> None:
        self.slurm.release_nodes((self.names[event["node"]],), self.now)

    def _step(self, event: Event) -> None:
        self.slurm.skew_s = event["seconds"]

    def _away(self, _event: Event) -> None:
        self.away = True

    def _back(self, _event: Event) -> None:
        self.away = False
        self.slurm.recover(self.saved)


def difference(release: str, trial: str, times: Times) -> str:
    """What the simulated one does otherwise, however much it had saved if it was killed."""
    may_be = list(Saved) if trial.startswith("killed") else [Saved.ALL]
    found = [Player(trials()[release, trial], times, saved).play() for saved in may_be]
    return "" if "" in found else found[0]


def compared() -> list[tuple[str, str]]:
    return [key for key in trials() if LEFT_OUT.keys().isdisjoint({key[1], ", ".join(key)})]


@pytest.mark.parametrize(("release", "trial"), compared())
def test_it_does_what_the_real_one_did(release, trial):
    assert not difference(release, trial, times(release))


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(
    "constants",
    [
        {"suspend_s": 3},
        {"suspend_s": 30},
        {"idle_s": 12},
        {"resume_s": 20},
        {"resume_s": 60},
        {"again_s": 30},
        {"lost_s": 0},
        {"boot_s": 10},
    ],
    ids=str,
)
def test_a_wrong_constant_is_found(release, constants):
    wrong = replace(times(release), **constants)
    assert any(difference(*key, wrong) for key in compared() if key[0] == release)


@pytest.mark.parametrize("release", RELEASES)
def test_nothing_else_is_missed_in_a_recording_than_a_refused_vm(release):
    missed = {
        (trial, event["missed"])
        for (recorded, trial), events in trials().items()
        for event in events
        if recorded == release and "missed" in event
    }
    seconds = ("5", "3", "2", "1.1")
    assert missed == {(f"booted {early} s before", REFUSED) for early in seconds}
