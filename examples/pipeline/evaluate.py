#!/usr/bin/env python3
"""Say how good the model of fit.py is on data that it has not seen: evaluate.py FOLDER."""

from pathlib import Path

from points import MODEL, PARTS, Sample, StepError, guess, part, read, run

ENOUGH = 0.8
"""The part that has to be right: a worse model is an error, so that nobody takes it for good."""


def evaluate(folder: Path) -> None:
    """Print it.

    Raises:
        StepError: files are not there, or the model is bad.

    """
    weights = read(folder / MODEL, "fit.sbatch")["weights"]
    samples: list[Sample] = []
    for number in read(folder / PARTS, "prepare.sbatch")["held_out"]:
        samples += read(part(folder, number), "prepare.sbatch")
    right = sum((guess(point, weights) > 0.5) == side for point, side in samples)
    print(f"{right} of {len(samples)} points are right", flush=True)
    if right < ENOUGH * len(samples):
        raise StepError(
            f"that is less than {100 * ENOUGH:.0f} %: {folder / MODEL} is no good model"
        )


if __name__ == "__main__":
    raise SystemExit(run(evaluate))
