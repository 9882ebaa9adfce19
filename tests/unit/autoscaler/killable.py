"""A program: the daemon as systemd starts it, with all files in one folder and a fast clock."""

import json
import sys
from pathlib import Path

from quick import DRIVER_LIMITS, FastClock, Start

from muster.autoscaler import __main__ as program
from muster.autoscaler.clock import Clock
from muster.autoscaler.compute import driver
from muster.autoscaler.report.event_log import EventLog
from muster.autoscaler.report.status_file import StatusFile
from muster.autoscaler.slurm.job_start_gate import Gate
from muster.autoscaler.slurm.slurmctld import Slurm


def gate(coming: object, *, clock: Clock) -> Gate:
    return Gate(coming, ("127.0.0.1", 0), clock=clock)  # type: ignore[arg-type]


def main(folder: Path) -> int:
    # The run's and its cloud's: what one process has seen the next one knows the age of.
    start = Start(*json.loads((folder / "start.json").read_text()))
    changed = {
        "Clock": lambda: FastClock(start),
        "Slurm": lambda: Slurm(folder, timeout_s=2),
        "StatusFile": lambda: StatusFile(folder / "status.json"),
        "EventLog": lambda: EventLog(folder / "events.jsonl"),
        "Gate": gate,
    }
    for name, value in changed.items():
        assert hasattr(program, name)
        setattr(program, name, value)
    driver.Limits = lambda: DRIVER_LIMITS  # type: ignore[misc, assignment]
    return program.main(folder / "autoscaler.json")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
