#!/usr/bin/env python3
"""Train a small model, and go on where an earlier run stopped: train.py CHECKPOINT [--epochs N].

It needs Python's standard library alone, so it runs on each node as it is. Your own program takes
the same four things from it: it reads the checkpoint at its start if there is one, saves now and
then, saves when it gets SIGTERM, and says by its exit code whether it is done.

Exit code 0: done; 75: stopped before the end, and what was done is in CHECKPOINT.
"""

import argparse
import json
import math
import os
import random
import signal
import time
from pathlib import Path

STOPPED = 75
"""EX_TEMPFAIL of sysexits.h."""

SAVE_S = 60.0
"""Seconds between two checkpoints: what is lost at most when the node dies."""

FEATURES = 10
SAMPLES = 2000
RATE = 0.05

Sample = tuple[list[float], int]


def dot(left: list[float], right: list[float]) -> float:
    """Return the sum of the products."""
    return sum(a * b for a, b in zip(left, right, strict=True))


def samples() -> list[Sample]:
    """Return points, each with the side of a plane that it is on; the same ones in each run."""
    source = random.Random(1)  # noqa: S311 (no secret)
    plane = [source.gauss(0, 1) for _ in range(FEATURES)]
    points = [[source.gauss(0, 1) for _ in range(FEATURES)] for _ in range(SAMPLES)]
    return [(point, int(dot(point, plane) > 0)) for point in points]


def train(weights: list[float], data: list[Sample], epoch: int) -> float:
    """Go once through `data` in an order that follows from `epoch`; return the mean loss."""
    order = random.Random(epoch).sample(data, len(data))  # noqa: S311
    loss = 0.0
    for point, side in order:
        guess = 1 / (1 + math.exp(-dot(point, weights)))
        loss -= math.log(max(guess if side else 1 - guess, 1e-12))
        for n, value in enumerate(point):
            weights[n] += RATE * (side - guess) * value
    return loss / len(data)


def load(checkpoint: Path) -> tuple[int, list[float]]:
    """Return how many epochs are done, and the weights."""
    if not checkpoint.exists():
        return 0, [0.0] * FEATURES
    state = json.loads(checkpoint.read_text(encoding="utf-8"))
    return state["epochs"], state["weights"]


def save(checkpoint: Path, epochs: int, weights: list[float]) -> None:
    """Write the checkpoint under another name, then rename it: a kill leaves the old or the new."""
    new = checkpoint.with_name(f"{checkpoint.name}.new")
    with new.open("w", encoding="utf-8") as file:
        json.dump({"epochs": epochs, "weights": weights}, file)
        file.flush()
        os.fsync(file.fileno())
    new.replace(checkpoint)


def main() -> int:
    """Train, and return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--epochs", type=int, default=1000)
    options = parser.parse_args()

    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: told.append(number))
    data = samples()
    epochs, weights = load(options.checkpoint)
    print(f"{os.uname().nodename}: {epochs} of {options.epochs} epochs are done", flush=True)
    saved = time.monotonic()
    while epochs < options.epochs and not told:
        loss = train(weights, data, epochs)
        epochs += 1
        if epochs % 100 == 0:
            print(f"epoch {epochs}: loss {loss:.4f}", flush=True)
        if time.monotonic() - saved > SAVE_S:
            save(options.checkpoint, epochs, weights)
            saved = time.monotonic()
    save(options.checkpoint, epochs, weights)
    if epochs < options.epochs:
        print(f"stopped after {epochs} epochs, which are saved", flush=True)
        return STOPPED
    print(f"done: {epochs} epochs", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
