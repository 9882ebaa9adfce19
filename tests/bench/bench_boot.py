"""How long a compute node's boot takes: from the first moment of its systemd until SLURM has it.

Run: .venv/bin/python tests/bench/bench_boot.py [bookworm | trixie ...]
As root. Raises the cluster of `make cloud-demo` (five minutes a release), lets jobs make nodes one
after the other, and destroys it. VMs are containers: nothing waits for a kernel, udev or DHCP, so
real VMs take longer.
"""

import os
import statistics
import sys
from pathlib import Path

from muster_sandbox.cloud_demo import tour
from muster_sandbox.cloud_demo.cli import engine_here
from muster_sandbox.cloud_demo.site import Site, Stack
from muster_sandbox.containers import base_image
from muster_sandbox.containers.podman import as_root, podman

BOOTS = 5
WATCH = """
import subprocess, sys, time
while True:
    show = ["scontrol", "-o", "show", "node", sys.argv[1]]
    line = subprocess.run(show, capture_output=True, text=True).stdout
    state = line.partition(" State=")[2].partition(" ")[0]
    if state and "POWER" not in state:
        break
    time.sleep(0.02)
print(time.monotonic())
"""
"""Runs on the controller: the time when SLURM has a node. All containers have the same clock."""


def boot(stack: Stack, number: int) -> float:
    """Let a job create a node; return the seconds from its systemd's start to its service."""
    node = f"{stack.name}-debug-{number}"
    tour.run(stack, f"sbatch --nodelist={node} --output=/dev/null --wrap true")
    controller = stack.container(f"{stack.name}-controller")
    registered = float(podman("exec", controller, "python3", "-c", WATCH, node, timeout=300))
    asked = ("systemctl", "show", "--property=UserspaceTimestampMonotonic", "--value")
    return registered - int(podman("exec", stack.container(node), *asked)) / 1e6


def chain(stack: Stack, number: int) -> list[str]:
    """The units that slurmd waited for on a node, the last first: a unit and its time per line."""
    node = stack.container(f"{stack.name}-debug-{number}")
    said = podman("exec", node, "systemd-analyze", "critical-chain", "--no-pager", "slurmd.service")
    return [line.strip(" └─") for line in said.splitlines() if "@" in line or " +" in line]


def measure(release: str) -> None:
    """Raise a cluster, print the figures, destroy it."""
    site = Site(Path("build/muster-bench-boot"), release, "10.214.96.0/20")
    engine = engine_here(site.folder)
    site.create()
    with site.cloud() as server:
        stack = site.stack(engine, server)
        stack.show("up")
        took = [boot(stack, number) for number in range(BOOTS)]
        units = chain(stack, 0)
        stack.release_state()
        stack.show("destroy")
    print(
        f"{release}: userspace to registered {statistics.median(took):.2f} s, longest of {BOOTS}: "
        f"{max(took):.2f} s; {len(units)} units on slurmd's critical chain; load "
        f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs"
    )
    print("\n".join(f"  {unit}" for unit in units), flush=True)


def main() -> None:
    """Measure the releases named on the command line, or both."""
    if os.geteuid():
        os.execvp("sudo", as_root([sys.executable, *sys.argv]))  # noqa: S606
    for release in sys.argv[1:] or list(base_image.RELEASES):
        measure(release)


if __name__ == "__main__":
    main()
