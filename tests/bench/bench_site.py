"""What site.yml costs on one controller and two nodes: tasks, packages, CPU seconds, seconds.

Run: .venv/bin/python tests/bench/bench_site.py [core|accounting ...]
Raises the machines from nothing and runs site.yml twice. Prints counts first (they don't depend on
the machine), then CPU seconds of the control side and of the whole machine, then wall seconds, with
the load before each run: figures of two programs compare only if they were taken side by side.
"""

import os
import re
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from muster_sandbox.containers import machines
from muster_sandbox.containers.podman import check_machine
from muster_sandbox.demo.instance import Instance

ROOT = Path(__file__).resolve().parents[2]
INVENTORIES = ROOT / "tests" / "bench" / "inventories"
RECAP = re.compile(r"^(\S+)\s+: ok=(\d+)\s+changed=(\d+).*skipped=(\d+)", re.M)


@dataclass(frozen=True)
class Cost:
    """What one run of site.yml cost."""

    tasks: dict[str, str]
    control_cpu: float
    machine_cpu: float
    wall: float
    load: float


def machine_cpu() -> float:
    """CPU seconds that this machine has spent since its boot, idle time left out (proc(5))."""
    fields = Path("/proc/stat").read_text(encoding="utf-8").split("\n", 1)[0].split()[1:]
    idle = int(fields[3]) + int(fields[4])
    return (sum(map(int, fields[:8])) - idle) / os.sysconf("SC_CLK_TCK")


def measure(instance: Instance) -> Cost:
    """Run site.yml once."""
    load = os.getloadavg()[0]
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy, start = machine_cpu(), time.monotonic()
    done = subprocess.run(
        [
            str(Path(sys.executable).with_name("ansible-playbook")),
            *("--inventory", str(instance.folder), "ansible/site.yml"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"ANSIBLE_NOCOLOR": "1"},
    )
    if done.returncode != 0:
        sys.exit(f"site.yml failed:\n{done.stdout[-4000:]}{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(
        tasks={
            host: f"{ok} tasks, {changed} changed, {skipped} skipped"
            for host, ok, changed, skipped in RECAP.findall(done.stdout)
        },
        control_cpu=after.ru_utime + after.ru_stime - children.ru_utime - children.ru_stime,
        machine_cpu=machine_cpu() - busy,
        wall=time.monotonic() - start,
        load=load,
    )


def packages(instance: Instance) -> dict[str, int]:
    """Return how many packages each host has."""
    fleet = instance.fleet()
    count = "dpkg-query -W -f '${db:Status-Status}\\n' | grep -cx installed"
    return {
        machine.name: int(
            machines.execute(fleet.container(machine.name), "sh", "-c", count).strip()
        )
        for machine in fleet.machines
    }


def bench(kind: str) -> None:
    """Measure the cluster `kind`."""
    instance = Instance(ROOT / "build" / "muster-bench")
    instance.remove(instance.folder.name)
    try:
        instance.create(INVENTORIES / kind, "bookworm")
        machines.up(instance.fleet())
        before = packages(instance)
        costs = {"first run": measure(instance), "second run": measure(instance)}
        added = {host: after - before[host] for host, after in packages(instance).items()}
    finally:
        instance.remove(instance.folder.name)
    print(f"{kind}: one controller, two nodes, {time.strftime('%Y-%m-%d %H:%M')}")
    for host, number in added.items():
        print(f"  {host}: {number} packages installed")
    for name, cost in costs.items():
        for host, tasks in cost.tasks.items():
            print(f"  {name}: {host}: {tasks}")
    for name, cost in costs.items():
        print(
            f"  {name}: CPU {cost.control_cpu:.1f} s control, {cost.machine_cpu:.1f} s in all; "
            f"wall {cost.wall:.1f} s; load before {cost.load:.1f}"
        )


if __name__ == "__main__":
    check_machine()
    for wanted in sys.argv[1:] or ["core", "accounting"]:
        bench(wanted)
