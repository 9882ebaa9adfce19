"""Record what a real slurmctld does with nodes in the cloud, and when: data of a unit test.

Run: .venv/bin/python tests/bench/record_slurmctld.py [bookworm | trixie [GROUP ...]]
As root, with podman; twenty minutes a release. Writes
tests/unit/autoscaler/slurm/data/RELEASE/timing.yml, or only some GROUPS of it.
slurmctld has Muster's settings with shorter timeouts. A VM is a real slurmd whose uptime began when
the VM's kernel would have started; ResumeProgram and SuspendProgram only say that they were called.
Not real: authentication (auth/none), the nodes' cgroups. The clock that is set is slurmctld's own
(libfaketime), not the machine's.
"""

import datetime
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from bench_slurmctld import container, gate, load, slurm_image

from muster_sandbox.containers import base_image
from muster_sandbox.containers.podman import exists, podman, ulimits

NAME = "record-slurmctld"
DATA = Path(__file__).parents[1] / "unit/autoscaler/slurm/data"
NODES = 60
SETTINGS = {
    "SuspendTime": "5",
    "SuspendTimeout": "10",
    "ResumeTimeout": "40",
    "SlurmdTimeout": "60",
    "KillWait": "5",
    "ResumeProgram": "/bench/resume",
    "SuspendProgram": "/bench/suspend",
    "ResumeFailProgram": "/bench/resume-failed",
    "SlurmctldDebug": "debug",
    "DebugFlags": "Power",
}
# The uptime: no step of the clock changes it.
PROGRAM = """#!/bin/sh
read -r now _ </proc/uptime
echo "$now ${0##*/} $1" >>/var/bench/calls
"""
GROUPS = (
    "alone",
    "shut down for 20 s",
    "killed for 20 s",
    "killed for 50 s",
    "stopped for 20 s",
    "clock 60 s forward",
    "clock 60 s back",
)
TIMES = ("at", "booted")


def image(release: str) -> str:
    """SLURM's packages, and a clock for slurmctld that can be set."""
    name = f"localhost/muster-record-slurm:{release}"
    if not exists("image", name):
        recipe = (
            f"FROM {slurm_image(release)}\nRUN apt-get update && apt-get install -y libfaketime\n"
        )
        podman("build", "--network", "host", "--tag", name, "-", stdin=recipe, timeout=600)
    return name


def recorded(release: str, group: str) -> dict[str, list[dict[str, Any]]]:
    """The events of each trial of a group; times are seconds since the first that was done."""
    with (
        container(
            *(release, "elastic", NODES),
            boots=False,
            name=NAME,
            settings=SETTINGS,
            programs=dict.fromkeys(("resume", "suspend", "resume-failed"), PROGRAM),
            inside="trials.py",
            image=image(release),
        ) as pid,
        gate(pid),
    ):
        said = podman("exec", NAME, "python3", "/inside.py", group, timeout=900)
    trials: dict[str, list[dict[str, Any]]] = json.loads(said.splitlines()[-1])
    for events in trials.values():
        begin = next(event["at"] for event in events if "did" in event)
        for event in events:
            event |= {key: round(event[key] - begin, 1) for key in TIMES if key in event}
    return trials


def version(release: str) -> str:
    query = ["dpkg-query", "--show", "--showformat=${Version}", "slurmctld"]
    return podman("run", "--rm", *ulimits(), image(release), *query).strip()


def flow(value: object) -> str:
    """A value in one line of YAML."""
    line = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=1000)
    return line.removesuffix("...\n").strip()


def text(recording: dict[str, Any]) -> str:
    """A recording as YAML, an event a line."""
    lines = ["# Written by tests/bench/record_slurmctld.py"]
    lines += [f"{key}: {flow(recording[key])}" for key in ("slurmctld", "settings")]
    lines.append("groups:")
    for group, recorded_group in recording["groups"].items():
        lines += [f"  {group}:", f"    recorded: {recorded_group['recorded']}", "    trials:"]
        for trial, events in recorded_group["trials"].items():
            lines += [f"      {trial}:", *(f"        - {flow(event)}" for event in events)]
    return "\n".join(lines) + "\n"


def record(release: str, groups: Sequence[str]) -> None:
    """Record groups of trials; what the file has of others stays."""
    package = version(release)
    file = DATA / ".".join(package.split(".")[:2]) / "timing.yml"
    recording = yaml.safe_load(file.read_text()) if file.exists() else {"groups": {}}
    recording["slurmctld"] = package
    recording["settings"] = {key: int(text) for key, text in SETTINGS.items() if text.isdigit()}
    for group in groups:
        now = datetime.datetime.now(datetime.UTC)
        trials = recorded(release, group)
        recording["groups"][group] = {"recorded": now.date(), "trials": trials}
        file.write_text(text(recording))
        print(f"{now:%F %T}, {release}, {group}: {load()}", flush=True)
        for trial, events in trials.items():
            for event in events:
                if "missed" in event:
                    print(f"  {trial}: not within its time: {event['missed']}", flush=True)


if __name__ == "__main__":
    for release in sys.argv[1:2] or list(base_image.RELEASES):
        record(release, sys.argv[2:] or GROUPS)
