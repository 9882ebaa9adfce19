#!/usr/bin/python3 -I
# SPDX-License-Identifier: Apache-2.0
"""Say what this node keeps of shared folders on its own disk, and whether it really does.

Learns it from the kernel: the option `fsc` of a mount says what was asked for, and a folder is
mounted with it and not cached where cachefilesd does not run. Ends with 1 where a folder is not
cached that should be. Runs with the Python of the system alone.
"""

import argparse
import json
import os
import re
import sys
from collections.abc import Iterator
from typing import TypedDict

PLACE = "/var/cache/fscache"
MIB = 2**20
STOP_PERCENT = 3
"""bstop of cachefilesd.conf: with less than this free nothing new is kept."""
NOT_RUNNING = "cachefilesd does not run: systemctl status cachefilesd muster-cache-disk"
FULL = f"less than {STOP_PERCENT} % of its disk are free, so nothing new is kept"


class Folder(TypedDict):
    """A mounted folder, and what was read of it since then."""

    path: str
    asked: bool
    read_bytes: int
    from_server_bytes: int
    read_calls: int


class Disk(TypedDict):
    """The disk of the cache."""

    bytes: int
    free_bytes: int


class State(TypedDict):
    """What the kernel says of the cache."""

    active: bool
    disk: Disk | None
    disk_reads: int
    disk_writes: int
    folders: list[Folder]


class Report(State):
    """The same with what is wrong with it."""

    problem: str


def read(path: str) -> str:
    """Return the text at `path`, "" if the kernel has no such file."""
    try:
        # People name mounts, with whatever bytes.
        with open(path, encoding="utf-8", errors="backslashreplace", newline="\n") as stream:
            return stream.read()
    except FileNotFoundError:
        return ""


def is_active(caches: str) -> bool:
    """Whether a cache of /proc/fs/fscache/caches takes pages: state A (fs/fscache/cache.c)."""
    rows = [line.split() for line in caches.splitlines()]
    return any(len(row) >= 7 and row[5] == "A" for row in rows)


def disk_io(stats: str) -> tuple[int, int]:
    """Return how often the cache's disk was read and written, of /proc/fs/fscache/stats."""
    match = re.search(r"^IO\s*: rd=(\d+) wr=(\d+)", stats, re.MULTILINE)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def value(name: str, part: str) -> str:
    """Return what a line of /proc/self/mountstats says, "" if there is no such line."""
    match = re.search(rf"^\t{name}:\t(.+)$", part, re.MULTILINE)
    return match[1] if match else ""


def folders(mountstats: str) -> list[Folder]:
    """Return each NFS mount of /proc/self/mountstats, since it was mounted."""
    mounts: list[Folder] = []
    for part in re.split(r"^device ", mountstats, flags=re.MULTILINE)[1:]:
        head = re.match(r"[^ ]* mounted on ([^ ]+) with fstype nfs4? ", part)
        if head:
            options = value("opts", part).split(",")
            # nfs_iostat.h: read by programs, written, the same without the page cache, and 5th
            # read from the server.
            counts = value("bytes", part).split()
            mounts.append(
                {
                    "path": head[1],
                    "asked": "fsc" in options,
                    "read_bytes": int(counts[0]) + int(counts[2]),
                    "from_server_bytes": int(counts[4]),
                    # Newer kernels read by READ_PLUS, which leaves out holes (RFC 7862).
                    "read_calls": sum(
                        int(calls)
                        for calls in re.findall(r"^\s+READ(?:_PLUS)?: (\d+)", part, re.MULTILINE)
                    ),
                }
            )
    return sorted(mounts, key=lambda folder: folder["path"])


def disk(place: str) -> Disk | None:
    """Return size and free bytes of the cache's disk; None where none is mounted."""
    if not os.path.ismount(place):
        return None
    room = os.statvfs(place)
    return {"bytes": room.f_blocks * room.f_frsize, "free_bytes": room.f_bavail * room.f_frsize}


def report(proc: str = "/proc", place: str = PLACE) -> Report:
    """Return what there is to say, as data."""
    reads, writes = disk_io(read(f"{proc}/fs/fscache/stats"))
    state: State = {
        "active": is_active(read(f"{proc}/fs/fscache/caches")),
        "disk": disk(place),
        "disk_reads": reads,
        "disk_writes": writes,
        "folders": folders(read(f"{proc}/self/mountstats")),
    }
    return {**state, "problem": problem(state)}


def problem(state: State) -> str:
    """Return why what should be cached is not, "" where it is or nothing should be."""
    if not any(folder["asked"] for folder in state["folders"]):
        return ""
    if not state["active"]:
        return NOT_RUNNING
    space = state["disk"]
    full = space is not None and space["free_bytes"] * 100 < space["bytes"] * STOP_PERCENT
    return FULL if full else ""


def spared(folder: Folder) -> str:
    """Return the part of what programs read that the server was not asked for, in percent."""
    if not folder["read_bytes"]:
        return "-"
    return f"{max(0, 100 - 100 * folder['from_server_bytes'] // folder['read_bytes'])} %"


def lines(state: State) -> Iterator[str]:
    """Yield the lines of the table."""
    space = state["disk"]
    if space:
        used = space["bytes"] - space["free_bytes"]
        yield f"disk: {used // MIB} of {space['bytes'] // MIB} MiB used"
    else:
        yield f"disk: none is mounted at {PLACE}"
    yield f"since the boot: {state['disk_reads']} reads of it, {state['disk_writes']} writes"
    yield f"{'FOLDER':<16} {'CACHED':<7} {'READ':>10} {'BY SERVER':>12} {'SPARED':>7} {'READs':>8}"
    for folder in state["folders"]:
        cached = "yes" if folder["asked"] and state["active"] else "no"
        yield (
            f"{folder['path']:<16} {cached:<7} {folder['read_bytes'] // MIB:>6} MiB "
            f"{folder['from_server_bytes'] // MIB:>8} MiB {spared(folder):>7} "
            f"{folder['read_calls']:>8}"
        )


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="the same as JSON")
    asked = parser.parse_args()
    state = report()
    if asked.json:
        print(json.dumps(state))
    else:
        print(*lines(state), sep="\n")
    if state["problem"]:
        sys.exit(f"not cached: {state['problem']}")


if __name__ == "__main__":
    main()
