# SPDX-License-Identifier: Apache-2.0
"""Loss, accuracy and the like, which a job writes where `launch` tells it to (MUSTER_METRICS)."""

import json
import math
import os
import re
import stat
from pathlib import Path

_MOST_BYTES = 64 * 1024
"""Read from the end of the file: it may be as long as the training."""
_MOST_NAMES = 20
_READS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_./-]{0,39}")


def path(folder: str, job: str) -> Path:
    """Return the file of a job that was submitted in a folder."""
    return Path(folder) / f"metrics-{job}.jsonl"


def last(file: Path) -> dict[str, float]:
    """Return the last number of each name; none of what is no file.

    Raises:
        OSError: the file is not there, can't be read, or is a link.

    """
    # It is the job's own: a FIFO in its place keeps nobody waiting, and a link does not have root
    # open a device, which can do something by that alone.
    with open(os.open(file, _READS), "rb") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            return {}
        size = stream.seek(0, 2)
        stream.seek(max(0, size - _MOST_BYTES))
        lines = stream.read(_MOST_BYTES).decode("utf-8", "replace").splitlines()
    found: dict[str, float] = {}
    for line in lines:
        try:
            # Whole numbers may be too long for anything else.
            values = json.loads(line, parse_int=float)
        except (ValueError, RecursionError):
            continue  # cut off, being written, or nested without end
        for name, value in values.items() if isinstance(values, dict) else ():
            has_room = name in found or len(found) < _MOST_NAMES
            if has_room and _NAME.fullmatch(name) and _is_number(value):
                found[name] = value
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, float) and math.isfinite(value)


def row(found: dict[str, float]) -> str:
    """Return the numbers in one line."""
    return ", ".join(f"{name} {value:.6g}" for name, value in found.items())
