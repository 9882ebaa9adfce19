"""What the three steps of the pipeline share: files, and points with the side that they are on."""

import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Point = list[float]
Sample = tuple[Point, int]

PARTS = "parts.json"
"""Names the parts of the data; it is written last, so where it is, all of them are."""
MODEL = "model.json"


class StepError(Exception):
    """Why a step can't go on, in one sentence."""


def write(file: Path, content: object) -> None:
    """Write a file under another name, then rename it: a kill leaves no half of one.

    Raises:
        OSError: it can't be written.

    """
    new = file.with_name(f".{file.name}.{os.uname().nodename}.{os.getpid()}")
    try:
        with new.open("w", encoding="utf-8") as opened:
            json.dump(content, opened, allow_nan=False)
            opened.flush()
            os.fsync(opened.fileno())
        new.replace(file)
    finally:
        new.unlink(missing_ok=True)


def read(file: Path, made_by: str) -> Any:
    """Return what a step has left.

    Raises:
        StepError: it is not there, or no JSON.

    """
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StepError(
            f"{file} can't be read ({error}): it is made by {made_by}; begin again with "
            "bash submit.sh"
        ) from error


def part(folder: Path, number: int) -> Path:
    """Return where a part of the data is."""
    return folder / f"part-{number:03}.json"


def guess(point: Point, weights: Point) -> float:
    """Return the probability that a point is on side 1."""
    return (1 + math.tanh(sum(a * b for a, b in zip(point, weights, strict=True)) / 2)) / 2


def run(step: Callable[[Path], None]) -> int:
    """Do a step in the folder that the command line names; return the exit code."""
    name = Path(sys.argv[0]).name
    if len(sys.argv) != 2 or not sys.argv[1]:
        print(f"{name}: name the folder of the pipeline, such as pipeline-41", file=sys.stderr)
        return 1
    try:
        step(Path(sys.argv[1]))
    except (OSError, StepError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    return 0
