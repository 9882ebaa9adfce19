# SPDX-License-Identifier: Apache-2.0
"""SLURM's compressed lists: `lab-gpu-[01-02,7]` of nodes, `4(x2),1` of numbers."""

import re
from collections.abc import Iterator

from muster_launch.errors import LaunchError

MOST_NAMES = 100_000
"""In one list: more is a mistake, and would fill the memory."""

_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?")
_REPEATED = re.compile(r"([0-9]+)(?:\(x([0-9]+)\))?")


def expand(hostlist: str) -> list[str]:
    """Return the names of a list in its order, as `scontrol show hostnames` does.

    Raises:
        LaunchError: it is no list, or has more than `MOST_NAMES`.

    """
    names: list[str] = []
    for part in _parts(hostlist):
        for name in _names(part, hostlist):
            names.append(name)
            if len(names) > MOST_NAMES:
                raise _wrong(hostlist)
    if not names:
        raise _wrong(hostlist)
    return names


def repeated(numbers: str) -> list[int]:
    """Return the numbers of `4(x2),1`: 4, 4, 1.

    Raises:
        LaunchError: it is no such list.

    """
    found: list[int] = []
    for part in numbers.split(","):
        match = _REPEATED.fullmatch(part)
        if not match or len(found) + int(match[2] or 1) > MOST_NAMES:
            raise _wrong(numbers)
        found += [int(match[1])] * int(match[2] or 1)
    return found


def _parts(hostlist: str) -> Iterator[str]:
    """Yield what is between commas, those in brackets apart."""
    start = depth = 0
    for place, sign in enumerate(hostlist):
        depth += (sign == "[") - (sign == "]")
        if sign == "," and depth == 0:
            yield hostlist[start:place]
            start = place + 1
    yield hostlist[start:]


def _names(part: str, hostlist: str) -> Iterator[str]:
    found = _BRACKETS.search(part)
    if not found:
        if not part or set(part) & set("[]"):
            raise _wrong(hostlist)
        yield part
        return
    before, after = part[: found.start()], part[found.end() :]
    for word in found[1].split(","):
        ends = _RANGE.fullmatch(word)
        if not ends:
            raise _wrong(hostlist)
        first, last = int(ends[1]), int(ends[2] or ends[1])
        if not 0 <= last - first < MOST_NAMES:
            raise _wrong(hostlist)
        for number in range(first, last + 1):
            name = f"{before}{number:0{len(ends[1])}}{after}"
            # A name may have brackets twice: rack[1-2]n[1-4].
            yield from _names(name, hostlist)


def _wrong(text: str) -> LaunchError:
    shown = text if len(text) <= 100 else f"{text[:100]}..."
    return LaunchError(
        f"SLURM's list {shown!r} can't be read; start the program with srun, which sets it"
    )
