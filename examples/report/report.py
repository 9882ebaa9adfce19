#!/usr/bin/env python3
"""Print what the job that runs this was given: cores, memory, GPUs."""

import os
import platform
import socket
from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
NO_LIMIT = 2**60


def memory_folders() -> Iterator[Path]:
    """Yield the folders of this process's memory cgroup, innermost first (cgroups(7))."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in ("memory", ""):
            continue
        top = CGROUPS / controllers
        parts = Path(path).parts[1:]
        # Inside a namespace of cgroups the upper part of the path is not visible.
        for start in range(len(parts)):
            folder = top.joinpath(*parts[start:])
            if folder.is_dir():
                yield from (folder, *folder.parents)
                break


def memory() -> str:
    """Return the memory that the job may use, as text."""
    for folder in memory_folders():
        for name in ("memory.limit_in_bytes", "memory.max"):
            file = folder / name
            limit = file.read_text().strip() if file.is_file() else "max"
            if limit != "max" and int(limit) < NO_LIMIT:
                return f"{int(limit) // 2**20} MiB"
    return "no limit"


print(
    f"{socket.gethostname()}: python {platform.python_version()},",
    f"{len(os.sched_getaffinity(0))} core(s), {memory()},",
    f"CUDA_VISIBLE_DEVICES={os.environ.get('CUDA_VISIBLE_DEVICES', '')}",
)
