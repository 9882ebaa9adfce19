#!/usr/bin/env python3
"""Train on a slice of the data: work.py --percent 10. Your own program takes the place of this.

It needs Python's standard library alone. What matters is the option: the same program runs on a
slice in the trial, and on all of the data (--percent 100) later.
"""

import argparse
import math
import random

POINTS = 400_000
"""All of the data."""
FEATURES = 10
PASSES = 240
RATE = 0.001


def slice_of(percent: float) -> list[tuple[list[float], int]]:
    """Return the first part of the data, in memory."""
    source = random.Random(1)  # noqa: S311 (no secret)
    plane = [source.gauss(0, 1) for _ in range(FEATURES)]
    found = []
    for _ in range(round(POINTS * percent / 100)):
        point = [source.gauss(0, 1) for _ in range(FEATURES)]
        found.append((point, int(sum(a * b for a, b in zip(point, plane, strict=True)) > 0)))
    return found


def main() -> None:
    """Train, and say how well it went."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--percent", type=float, default=100)
    percent = parser.parse_args().percent
    data = slice_of(percent)
    print(f"{len(data)} points, {percent:g} % of all", flush=True)
    weights = [0.0] * FEATURES
    for number in range(1, PASSES + 1):
        right = 0
        for point, side in data:
            dot = sum(a * b for a, b in zip(point, weights, strict=True))
            right += (dot > 0) == side
            wrong = side - (1 + math.tanh(dot / 2)) / 2
            for n, value in enumerate(point):
                weights[n] += RATE * wrong * value
        print(f"pass {number}: {100 * right / len(data):.1f} % are right", flush=True)


if __name__ == "__main__":
    main()
