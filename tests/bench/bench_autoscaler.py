"""What the autoscaler costs with thousands of nodes: calls, CPU, memory and seconds.

The daemon and SLURM's programs run as they are installed; Google Cloud is fakecloud in another
process, with instances that are records, 100 ms until each answer, 20 calls a second of each group
of methods and 10 bulk operations at once. scontrol is a stand-in, except for the row `reconcile`:
it reads a real slurmctld in a container, or with --played a list like slurmctld's.

As root, with podman (without --played). Ten minutes: to delete 5,000 VMs at 20 a second takes four.
Ends with 0 when the work was done, however long it took; the table is Markdown.
"""

import argparse
import os
import platform
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import bench_slurmctld
from daemonkit import FALLING, POWERING_UP, UP, Controller, PlayedSlurm, controller, until
from fakekit import Call, Fake, fake

from muster_sandbox.containers.podman import as_root, podman

NODES = 10_000
VMS = 5000
JOBS = 1000
PAIRS = 50
ANSWER_S = 0.1
CALLS_PER_SECOND = 20
OPERATION_S = 2.0
WAIT_S = 600
"""Timeout of the longest work; work that doesn't end has no figures."""
REPEATED = 5
READ_AGAIN_S = 1.5
"""After a read the daemon reconciles and writes its status file within a second each."""

ASKING = ("instances.bulkInsert", "instances.insert")
"""Methods that create VMs."""
PAGES = "instances.aggregatedList"


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    work: str
    asked: str
    measured: str


@dataclass(frozen=True)
class Scene:
    """The cloud, the controller and SLURM of one measurement."""

    cloud: Fake
    controller: Controller
    slurm: PlayedSlurm

    def resume(self, nodes: list[str], jobs: dict[int, list[str]]) -> float:
        """Let SLURM ask for nodes; return when ResumeProgram was started."""
        self.slurm.set(nodes, POWERING_UP)
        return self.controller.call("muster-resume", nodes, jobs)

    def running(self, count: int) -> None:
        """Wait until so many VMs run."""
        self.until(lambda: self.cloud.statuses()["RUNNING"] == count, f"{count} VMs run")

    def settled(self) -> None:
        """Wait until the daemon has no request left."""
        self.until(lambda: not self.controller.spooled(), "all requests are settled")

    def until(self, state: Callable[[], object], what: str) -> None:
        """Wait for a state, or exit with the daemon's log."""
        try:
            until(state, what, WAIT_S)
        except SystemExit as error:
            sys.exit(f"{error}; the daemon says:\n{self.controller.said()}")


@contextmanager
def scene(vms: int = 0, **settings: object) -> Iterator[Scene]:
    """Start a cloud and a controller, with nodes of which the first `vms` are in service."""
    slurm = PlayedSlurm(NODES)
    with fake() as cloud:
        cloud.make(slurm.names[:vms])
        cloud.set(answer_seconds=ANSWER_S, calls_per_second=CALLS_PER_SECOND, **settings)
        slurm.states |= dict.fromkeys(slurm.names[:vms], UP)
        with controller(slurm.install, cloud.url, cloud.metadata) as made:
            yield Scene(cloud, made, slurm)


def errors(calls: list[Call]) -> str:
    """Refused calls, as a part of a sentence."""
    statuses = Counter(f"{call.method} {call.status}" for call in calls if call.status >= 400)
    return "0 errors" if not statuses else f"ERRORS {dict(statuses)}"


def counted(calls: list[Call]) -> str:
    """Return how many calls there were, by method."""
    by_method = Counter(call.method for call in calls)
    return ", ".join(f"{count} {method}" for method, count in by_method.most_common())


def asked_for(calls: list[Call]) -> list[float]:
    """Return the times of calls that create VMs."""
    return [call.came for call in calls if call.method in ASKING and call.status < 400]


def burst() -> Iterator[Row]:
    with scene() as at:
        nodes = at.slurm.names[:JOBS]
        began = at.resume(nodes, {number: [name] for number, name in enumerate(nodes, 1)})
        at.running(JOBS)
        at.slurm.set(nodes, UP)
        at.settled()
        calls = at.cloud.calls(began)
    work = f"{JOBS:,} one-node exclusive jobs, one burst"
    how = f"**{len(calls)}** ({counted(calls)}); {errors(calls)}"
    yield Row(f"{work}: API calls until all are in service", "<= 20", how)
    last = max(asked_for(calls)) - began
    yield Row(f"{work}: last VM asked for", "<= 6 s", f"**{last:.2f} s**")


def placement() -> Iterator[Row]:
    with scene(latency_seconds={"*": OPERATION_S}) as at:
        nodes = at.slurm.names[: 2 * PAIRS]
        jobs = {number: nodes[2 * number : 2 * number + 2] for number in range(PAIRS)}
        began = at.resume(nodes, {1000 + number: pair for number, pair in jobs.items()})
        at.running(2 * PAIRS)
        done = time.time() - began
        at.slurm.set(nodes, UP)
        at.settled()
        calls = at.cloud.calls(began)
    work = f"{PAIRS} two-node jobs with placement, operations of {OPERATION_S:g} s"
    first = min(asked_for(calls)) - began
    yield Row(f"{work}: first VM asked for", "<= 3 s", f"**{first:.2f} s**")
    how = f"**{done:.2f} s** ({counted(calls)}; {errors(calls)})"
    yield Row(f"{work}: all run", "<= 10 s", how)


def resume() -> Iterator[Row]:
    took = []
    with scene() as at:
        for number in range(REPEATED):
            names = at.slurm.names[number : number + 1]
            began = at.resume(names, {number + 1: names})
            at.running(number + 1)
            took.append(min(asked_for(at.cloud.calls(began))) - began)
            at.slurm.set(names, UP)
            at.settled()
        names = at.slurm.names[REPEATED : REPEATED + VMS]
        began = at.resume(names, {})
        at.running(REPEATED + VMS)
        sent = asked_for(at.cloud.calls(began))
    work = "resume {:,}, from ResumeProgram's start to the request sent"
    how = f"**{max(sent) - began:.2f} s** ({len(sent)} requests)"
    yield Row(work.format(VMS), "<= 1.5 s", how)
    how = f"**{statistics.median(took):.2f} s**, longest of {REPEATED}: {max(took):.2f} s"
    yield Row(work.format(1), "<= 0.3 s", how)


def suspend() -> Iterator[Row]:
    with scene(VMS) as at:
        names = at.slurm.names[:VMS]
        at.slurm.set(names, FALLING)
        before = at.controller.usage()
        began = at.controller.call("muster-suspend", names, {})
        at.until(lambda: not at.cloud.statuses(), "all VMs are gone")
        spent = at.controller.usage().cpu_s - before.cpu_s
        calls = at.cloud.calls(began)
    deletes = [call.came for call in calls if call.method == "instances.delete"]
    last = max(deletes) - began
    beyond = last - VMS / CALLS_PER_SECOND
    work = f"suspend {VMS:,} at {CALLS_PER_SECOND} calls/s"
    how = f"**{beyond:+.1f} s**: after {last:.1f} s ({len(deletes):,} deletions; {errors(calls)})"
    yield Row(f"{work}: last delete sent, beyond {VMS / CALLS_PER_SECOND:g} s", "<= 5 s", how)
    yield Row(f"{work}: CPU per VM", "<= 1 ms", f"**{spent / VMS * 1000:.2f} ms**")


def played_reconcile() -> Iterator[Row]:
    with scene(VMS) as at:
        yield from reconciled(at.cloud, at.controller, "a played scontrol")


def real_reconcile(release: str) -> Iterator[Row]:
    """With a slurmctld of which half of the nodes were powered up and then set down.

    Nobody boots them, and the daemon has nothing to do for nodes that are down or in service.
    """
    name = bench_slurmctld.NAME
    with bench_slurmctld.container(release, "elastic", NODES, boots=False) as pid, fake() as cloud:
        nodes = [f"bench-n0-{number}" for number in range(VMS)]
        start = "import sys; sys.path.insert(0, '/'); import inside; inside.start()"
        podman("exec", name, "python3", "-c", start, timeout=120)
        cloud.make(nodes, "bench")
        cloud.set(answer_seconds=ANSWER_S, calls_per_second=CALLS_PER_SECOND)
        wanted = f"nodename=bench-n0-[0-{VMS - 1}]"
        podman("exec", name, "scontrol", "update", wanted, "state=power_up")
        # Before slurmctld has started they count as off, and the daemon would delete their VMs.
        shown = ("scontrol", "-o", "show", "node")
        until(
            lambda: podman("exec", name, *shown).count("+POWERING_UP") == VMS,
            f"slurmctld powers up {VMS} nodes",
            WAIT_S,
        )
        podman("exec", name, "scontrol", "update", wanted, "state=down", "reason=bench")

        def scontrol(_: Path) -> str:
            enter = f"nsenter --mount --net --uts --target={pid}"
            return f'#!/bin/sh\nexec {enter} scontrol "$@"\n'

        with controller(scontrol, cloud.url, cloud.metadata, "bench") as made:
            yield from reconciled(cloud, made, f"a real slurmctld ({release})")


def reconciled(cloud: Fake, made: Controller, what: str) -> Iterator[Row]:
    cpu, beyond = [], []
    for _ in range(REPEATED):
        time.sleep(READ_AGAIN_S)
        before = made.usage()
        began = made.wake()
        until(
            lambda since=began: read_since(cloud, made, since), "everything is read again", WAIT_S
        )
        time.sleep(READ_AGAIN_S)
        cpu.append(made.usage().cpu_s - before.cpu_s)
        calls = cloud.calls(began)
        beyond.append(sum(call.method != PAGES for call in calls))
    pages = len(calls) - beyond[-1]
    usage = made.usage()
    work = f"one reconcile of {VMS:,} VMs and {NODES:,} nodes of {what}"
    how = f"**{statistics.median(cpu):.2f} s**, most of {REPEATED}: {max(cpu):.2f} s"
    yield Row(f"{work}: CPU with child processes", "<= 0.4 s", how)
    how = f"**{max(beyond)}** (and {pages} pages; last: {counted(calls)}; {errors(calls)})"
    yield Row(f"{work}: calls beyond pages", "<= 3", how)
    how = f"**{usage.memory_mb:.0f} MB**, at most {usage.most_memory_mb:.0f} MB"
    yield Row("memory of the daemon there", "<= 150 MB", how)


def read_since(cloud: Fake, made: Controller, since: float) -> bool:
    """Whether the daemon has read everything since a time, and has said so."""
    status = made.status()
    quotas = any(call.method == "regions.get" for call in cloud.calls(since))
    return quotas and min(status["slurm_read"], status["cloud_read"]) > since


def smaller(by: int) -> None:
    """Reduce all numbers, for a trial run."""
    for name in ("NODES", "VMS", "JOBS", "PAIRS"):
        globals()[name] //= by


def machine() -> str:
    """The machine and the date of the figures."""
    at = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    kernel = platform.release().partition("-")[0]
    return (
        f"Measured {at} on {os.cpu_count()} CPUs ({platform.machine()}), Linux {kernel}, Python "
        f"{platform.python_version()}; *load* is the machine's when the work began and when it "
        "ended."
    )


def main() -> int:
    """Do all measurements and print the table."""
    works = {
        "burst": burst,
        "placement": placement,
        "resume": resume,
        "suspend": suspend,
        "reconcile": lambda: real_reconcile(wanted.release),
    }
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("work", nargs="*", help=f"of {', '.join(works)}; else all of them")
    parser.add_argument("--played", action="store_true", help="no container: scontrol is played")
    parser.add_argument("--release", default="bookworm", help="Debian's, of the real slurmctld")
    parser.add_argument("--part", type=int, default=1, help="an Nth of all work, for a try")
    wanted = parser.parse_args()
    if unknown := sorted({*wanted.work} - works.keys()):
        parser.error(f"no such work: {', '.join(unknown)}")
    if os.geteuid():
        os.execvp("sudo", as_root([sys.executable, *sys.argv]))  # noqa: S606
    smaller(wanted.part)
    if wanted.played:
        works["reconcile"] = played_reconcile
    print(machine())
    print("\n| work | goal | measured | load |\n|---|---|---|---|", flush=True)
    for name in wanted.work or works:
        before = os.getloadavg()[0]
        for row in works[name]():
            line = f"| {row.work} | {row.asked} | {row.measured} "
            print(f"{line}| {before:.1f}, {os.getloadavg()[0]:.1f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
