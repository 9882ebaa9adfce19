"""How long 10,000 nodes take from plain data to SLURM's files: checked, then rendered.

Run: .venv/bin/python tests/bench/bench_render.py [NODES]
Prints counts first (they don't depend on the machine), then CPU seconds, then wall seconds. The
goal is 2 s for 10,000 nodes: an administrator waits that long before each play.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

from muster.definition import validate
from muster.render.slurm import render

NODES = 10_000
SETS = 20
NEWLINE = "\n"


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
        # Every seventh is missing: real node sets have gaps, which hostlists have to spell out.
        name: [f"bench-{name}-{i:04d}" for i in range(nodes * 7 // 6 // SETS + 1) if i % 7][
            : nodes // SETS
        ]
        for name in sets
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
    roles = {role: ["bench-access"] for role in ("controller", "database", "login")}
    return definition, {**roles, **hosts, "compute": compute}


def timed(work: Callable[[], Any]) -> tuple[Any, str]:
    """Run `work`; return its result and what it cost."""
    cpu, wall = time.process_time(), time.perf_counter()
    result = work()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return result, f"{cpu:6.2f} s CPU {wall:6.2f} s wall"


def main() -> None:
    """Measure each step once, as in a program that has just started, and print."""
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else NODES
    data = cluster(nodes)
    definition, validating = timed(lambda: validate(*data))
    files, rendering = timed(lambda: render(definition))
    lines = [
        f"{nodes} nodes, {SETS} node sets: {files.slurm_conf.count(NEWLINE)} lines of slurm.conf, "
        f"{files.gres_conf.count(NEWLINE)} of gres.conf, {len(files.slurm_conf)} bytes",
        f"validate {validating}",
        f"render   {rendering}",
    ]
    print("\n".join(lines))


if __name__ == "__main__":
    main()
