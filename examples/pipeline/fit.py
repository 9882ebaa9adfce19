#!/usr/bin/env python3
"""Train on the parts that prepare.py has made: fit.py FOLDER. It needs no module."""

import random
from pathlib import Path

from points import MODEL, PARTS, Sample, StepError, guess, part, read, run, write

EPOCHS = 5
RATE = 0.05


def fit(folder: Path) -> None:
    """Train, and write the model.

    Raises:
        StepError: the parts are not there.
        OSError: the model can't be written.

    """
    numbers = read(folder / PARTS, "prepare.sbatch")["training"]
    samples: list[Sample] = []
    for number in numbers:
        samples += read(part(folder, number), "prepare.sbatch")
    if not samples:
        raise StepError(f"{folder} has no data to train with: see what prepare.sbatch has written")
    weights = [0.0] * len(samples[0][0])
    for epoch in range(EPOCHS):
        for point, side in random.Random(epoch).sample(samples, len(samples)):  # noqa: S311
            wrong = side - guess(point, weights)
            for n, value in enumerate(point):
                weights[n] += RATE * wrong * value
    write(folder / MODEL, {"weights": weights})
    print(f"trained on {len(samples)} points of {len(numbers)} parts")


if __name__ == "__main__":
    raise SystemExit(run(fit))
