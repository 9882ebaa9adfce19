"""How long 10,000 nodes take from plain data to SLURM's files: checked, then rendered.

Run: .venv/bin/python tests/bench/bench_render.py [NODES]
Prints counts first (they don't depend on the machine), then CPU seconds, then wall seconds. The
goal is 2 s for 10,000 nodes, which is what an administrator waits before each play.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

from muster.cluster import validate
from muster.slurm import SlurmFiles, change, render

NODES = 10_000
SETS = 20


def cluster(nodes: int) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """A cluster of `nodes` nodes in 20 sets, half of them with GPUs, and a partition for each."""
    sets = {
        f"set{number}": {
            "sockets": 2,
            "cores_per_socket": 32,
            "threads_per_core": 2,
            "memory_mib": 515072,
            **({"gpus": {"count": 4}} if number % 2 else {}),
        }
        for number in range(SETS)
    }
    hosts = {
        name: [f"bench-{name}-{i:04d}" for i in range(index, nodes, SETS)]
        for index, name in enumerate(sets)
    }
    partitions: dict[str, Any] = {name: {"nodes": [name]} for name in sets}
    partitions["all"] = {"nodes": list(sets), "default": True, "max_time": "7-00:00:00"}
    definition = {
        "name": "bench",
        "os": "debian-13",
        "users": {"people": {"ada": {"uid": 20001}}},
        "nodes": sets,
        "partitions": partitions,
        "accounts": {"research": {"users": ["ada"]}},
    }
    compute = [host for members in hosts.values() for host in members]
    roles = dict.fromkeys(("controller", "database", "login"), ["bench-access"])
    return definition, {**roles, **hosts, "compute": compute}


def timed(name: str, work: Callable[[], Any]) -> Any:
    """Run `work`, print what it cost, return its result."""
    cpu, wall = time.process_time(), time.perf_counter()
    result = work()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    print(f"{name:<10} {cpu:6.2f} s CPU {wall:6.2f} s wall")  # noqa: T201
    return result


def main() -> None:
    """Measure and print."""
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else NODES
    data = cluster(nodes)
    grown = cluster(nodes + SETS)
    files: SlurmFiles = render(validate(*data))
    print(  # noqa: T201
        f"{nodes} nodes, {SETS} node sets: "
        f"{len(files.slurm_conf.splitlines())} lines of slurm.conf, "
        f"{len(files.gres_conf.splitlines())} of gres.conf, {len(files.slurm_conf)} bytes"
    )
    definition = timed("validate", lambda: validate(*data))
    timed("render", lambda: render(definition))
    timed("both", lambda: render(validate(*data)))
    timed("change", lambda: change(files, render(validate(*grown)), "22.05"))


if __name__ == "__main__":
    main()
