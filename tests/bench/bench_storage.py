"""NFS calls for a Python environment: a tree of files, a cached tree, one squashfs file.

Run: .venv/bin/python tests/bench/bench_storage.py [1 4]
As root, with what `make vm` installs: half an hour for one client, three quarters for four.
Virtual machines with their own kernels import all modules of an environment of 3,500 files: on a
node that has never read it, and again after the node's reboot. They are emulated, so calls are
counted and seconds are not.
"""

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).parents[1] / "vm"))
from vmkit import environment
from vmkit.calls import calls
from vmkit.machine import Machine
from vmkit.site import RELEASE, STORAGE, Site, booted

from muster_sandbox.containers import base_image

T = TypeVar("T")

CACHE = "/var/cache/fscache"
IMAGE = "/apps/env.squashfs"
LOOPED = "/mnt/env"


def cluster(*, cached: bool) -> dict[str, object]:
    """The definition: modules from NFS, cached or not."""
    return {
        "name": "vm",
        "os": base_image.RELEASES[RELEASE],
        "nodes": {"cpu": {"sockets": 1, "cores_per_socket": 1, "memory_mib": 512}},
        "partitions": {"main": {"nodes": ["cpu"], "default": True}},
        "storage": {
            "apps": {"kind": "nfs", "path": "/apps", "size_gib": 1, "cached": cached},
            **({"cache": {"device": "/dev/vda", "any_kernel": True}} if cached else {}),
        },
    }


def all_at_once(work: Callable[[Machine], T], nodes: list[Machine]) -> list[T]:
    """Do the same on some nodes at the same time."""
    with ThreadPoolExecutor(len(nodes)) as pool:
        return list(pool.map(work, nodes))


def import_all(folder: str) -> Callable[[Machine], Counter[str]]:
    """A function that imports the environment in `folder` and returns the calls it took."""

    def run(node: Machine) -> Counter[str]:
        # ssh answers before folders are mounted.
        node.check("systemctl start apps.mount")
        before = calls(node, "/apps")
        if folder == LOOPED:
            node.check(f"mkdir -p {LOOPED} && mount -o loop,ro {IMAGE} {LOOPED}")
        program = f"import sys; sys.path.insert(0, '{folder}'); import everything"
        done = node.ssh(f'python3 -I -c "{program}"', timeout=1800)
        assert done.returncode == 0, done.stderr
        asked = calls(node, "/apps") - before
        if folder == LOOPED:
            node.check(f"umount {LOOPED}")
        return asked

    return run


def forget(node: Machine) -> None:
    """Clear a node's caches, as if it had never read the environment."""
    node.check("systemctl stop apps.mount")
    if node.ssh("systemctl is-active cachefilesd").returncode == 0:
        node.check(f"systemctl stop cachefilesd && rm -rf {CACHE}/* && systemctl start cachefilesd")
    node.check("echo 3 >/proc/sys/vm/drop_caches; systemctl start apps.mount")


def row(store: str, nodes: int, when: str, asked: Iterable[Counter[str]]) -> str:
    """One line of the table: the calls of each node, and the most frequent ones."""
    counters = list(asked)
    total: Counter[str] = sum(counters, Counter())
    sums = sorted(sum(counter.values()) for counter in counters)
    most = ", ".join(f"{count // nodes:,} {name}" for name, count in total.most_common(4))
    spread = f"{sums[0]:,}" if sums[0] == sums[-1] else f"{sums[0]:,} to {sums[-1]:,}"
    return f"| {store} | {nodes} | {when} | {spread} | {total['READ'] // nodes:,} | {most} |"


def measure(site: Site, nodes: list[Machine]) -> None:
    """Print the rows for so many nodes."""
    stores = [
        ("tree", False, "/apps/env"),
        ("cached tree", True, "/apps/env"),
        ("squashfs file, cached", True, LOOPED),
    ]
    for store, cached, folder in stores:
        site.define(cluster(cached=cached))
        site.play(roles=STORAGE)
        all_at_once(forget, nodes)
        work = import_all(folder)
        print(row(store, len(nodes), "never seen", all_at_once(work, nodes)), flush=True)
        all_at_once(Machine.reboot, nodes)
        print(row(store, len(nodes), "after a reboot", all_at_once(work, nodes)), flush=True)


def main() -> None:
    """Measure with the numbers of clients named on the command line, or with one and four."""
    counts = [int(word) for word in sys.argv[1:]] or [1, 4]
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs; booting", file=sys.stderr)
    with booted(max(counts)) as site:
        program = Path(environment.__file__).read_text(encoding="utf-8")
        site.server.check(f"python3 - /apps/env <<'end'\n{program}end")
        site.server.check(f"mksquashfs /apps/env {IMAGE} -quiet -no-progress")
        kernel = site.client.check("uname -r")
        files = environment.PACKAGES * environment.MODULES
        print(f"{files:,} files; kernel {kernel}; calls of each node")
        print("| store | nodes | node | calls | READ | most |\n|---|---|---|---|---|---|")
        for count in counts:
            measure(site, site.clients[:count])


if __name__ == "__main__":
    main()
