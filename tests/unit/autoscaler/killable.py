"""A program: the daemon as systemd starts it, but with all files in one folder, and short times."""

import sys
from pathlib import Path

from quick import DRIVER_LIMITS, LIMITS, PACE, hurry

from muster.autoscaler import __main__ as program
from muster.autoscaler.compute import driver
from muster.autoscaler.daemon import Daemon
from muster.autoscaler.report.event_log import EventLog
from muster.autoscaler.report.status_file import StatusFile
from muster.autoscaler.slurm.job_start_gate import Gate
from muster.autoscaler.slurm.slurmctld import Slurm


def main(folder: Path) -> int:
    hurry()
    changed = {
        "Slurm": lambda: Slurm(folder, timeout_s=2),
        "StatusFile": lambda: StatusFile(folder / "status.json"),
        "EventLog": lambda: EventLog(folder / "events.jsonl"),
        "Limits": lambda **_: LIMITS,
        "Gate": lambda coming: Gate(coming, ("127.0.0.1", 0)),
    }
    for name, value in changed.items():
        assert hasattr(program, name)
        setattr(program, name, value)
    driver.Limits = lambda: DRIVER_LIMITS  # type: ignore[misc, assignment]
    assert Daemon.__init__.__kwdefaults__
    Daemon.__init__.__kwdefaults__["pace"] = PACE
    return program.main(folder / "autoscaler.json")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
