"""An observer of reconcile passes, with its files in a folder."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from clockkit import SetClock
from plankit import Rounds

from muster.autoscaler.reconcile.model import Close, Released
from muster.autoscaler.report.event_log import EventLog
from muster.autoscaler.report.metrics import Metrics
from muster.autoscaler.report.observer import Observer
from muster.autoscaler.report.status_file import Status, StatusFile, read


class Watched:
    """Reconcile passes that an observer sees."""

    def __init__(self, folder: Path) -> None:
        self.status_file, self.log_file = folder / "status.json", folder / "events.jsonl"
        self.rounds = Rounds()
        self.events = EventLog(self.log_file)
        self.begin()

    def begin(self) -> None:
        """Start a daemon's observer."""
        self.clock = SetClock()
        self.metrics = Metrics(self.clock)
        self.observer = Observer(StatusFile(self.status_file), self.events, self.metrics)

    def round(self, at: float, **given: Any) -> None:
        self.rounds.round({"at": at, **given})
        actions, observed = self.rounds.actions, self.rounds.observed
        self.clock.since_boot = observed.now
        self.observer(observed, self.rounds.tracked, actions)
        released = [event for event in self.rounds.heard if isinstance(event, Released)]
        if released:
            self.observer(replace(observed, events=released), self.rounds.tracked, [])
            # The observer hears of it once.
            self.rounds.heard = []
        # As the daemon does.
        closed = {action.request for action in actions if isinstance(action, Close)}
        left = [request for request in observed.requests if request.id not in closed]
        self.rounds.observed = replace(observed, requests=left)

    def stops(self, place: str, at: float, *, since: int = 100, spot: bool = False) -> None:
        """Let a VM stop, such as that of `debug-0 in a`: a list says it, and then the VM itself."""
        node, _, zone = place.partition(" in ")
        text = f"TERMINATED in {zone} since {since}{' spot' if spot else ''}"
        self.round(at - 5, vms={node: text})
        elsewhere = [f"absent {node} in {other}" for other in "ab" if other != zone]
        self.round(at, events=[f"found {place}: TERMINATED", *elsewhere])
        # The status file is written again.
        self.round(at + 1)

    def restart(self) -> None:
        """Restart the daemon, which then tracks nothing."""
        self.rounds.tracked = type(self.rounds.tracked)()
        self.begin()

    @property
    def status(self) -> Status:
        return read(self.status_file)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log_file.read_text().splitlines()]

    def stages(self, node: str = "lab-debug-0") -> list[str]:
        return [
            line["stage"] for line in self.lines if line.get("node") == node and "stage" in line
        ]

    def sample(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, labels)


def cold_start(watched: Watched, node: str = "debug-0", at: float = 100, job: int = 7) -> None:
    """Let a node come into service for a job, in 31 seconds."""
    watched.round(
        at,
        nodes={node: "powering_up busy"},
        requests={f"r{at:.0f}": {"at": at - 1, "nodes": node, "jobs": {str(job): node}}},
        vms={},
    )
    watched.round(at + 5, events=[f"made {node}"], vms={node: f"STAGING in a since {at}"})
    watched.round(at + 10, vms={node: f"RUNNING in a since {at}"})
    watched.round(at + 30, nodes={node: "up busy"})
