#!/usr/bin/env python3
"""Try parameters, a task of an array for each, and stop those that lose: search.py task|table.

    search.py task FOLDER LINE    train with the parameters of a line of parameters.jsonl
    search.py table FOLDER        print what all tasks found, and the best parameters

parameters.jsonl is that in FOLDER, where submit.sh copies it, or else the one beside this program.
It needs Python's standard library alone. Each task writes its loss of each epoch to a file of its
own in FOLDER, which all nodes see, and reads those of the others: by the median rule it stops
itself when it is behind. Nobody cancels it from outside, so nothing that it has found is lost. A
task that is started again goes on after the last epoch that it saved.

Exit code 0: done, or stopped because it is behind; table: all tasks are. 1: an error, in one
sentence; table: tasks are missing.
"""

import argparse
import errno
import json
import math
import os
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

EPOCHS = 60
FIRST_EPOCHS = 5
"""Epochs that each task gets, however bad it looks."""
OTHERS = 3
"""Others that must have come as far before a task compares itself with them."""
TRIES = 5
"""How often to open a file that another node replaces at the same moment (ESTALE of NFS)."""

FEATURES = 10
SAMPLES, HELD_OUT = 400, 200
WRONG = 0.1
"""Part of the points that are on the wrong side, so that no parameters reach a loss of 0."""

RUNNING, DONE, STOPPED, DIVERGED = "running", "done", "stopped", "diverged"

Sample = tuple[list[float], int]


class SearchError(Exception):
    """Why it can't go on, in one sentence."""


class Trial(NamedTuple):
    """What a task has found so far; the others read it."""

    parameters: dict[str, Any]
    losses: list[float]
    """That of each epoch."""
    state: str


# -- your own training takes the place of this ----------------------------------------------------


def samples() -> tuple[list[Sample], list[Sample]]:
    """Return points to train with, and others to measure the loss; the same ones in each task."""
    source = random.Random(1)  # noqa: S311 (no secret)
    plane = [source.gauss(0, 1) for _ in range(FEATURES)]
    found = []
    for _ in range(SAMPLES + HELD_OUT):
        point = [source.gauss(0, 1) for _ in range(FEATURES)]
        side = dot(point, plane) > 0
        found.append((point, int(side != (source.random() < WRONG))))
    return found[:SAMPLES], found[SAMPLES:]


def dot(left: Sequence[float], right: Sequence[float]) -> float:
    """Return the sum of the products."""
    return sum(a * b for a, b in zip(left, right, strict=True))


def guess(point: Sequence[float], weights: Sequence[float]) -> float:
    """Return the probability that a point is on side 1."""
    return (1 + math.tanh(dot(point, weights) / 2)) / 2


def train(weights: list[float], data: list[Sample], epoch: int, rate: float, decay: float) -> None:
    """Go once through `data` in an order that follows from `epoch`."""
    for point, side in random.Random(epoch).sample(data, len(data)):  # noqa: S311
        wrong = side - guess(point, weights)
        for n, value in enumerate(point):
            weights[n] += rate * (wrong * value - decay * weights[n])


def loss_of(weights: list[float], data: list[Sample]) -> float:
    """Return the mean loss of points; no number where the weights are none any more."""
    loss = 0.0
    for point, side in data:
        right = guess(point, weights) if side else 1 - guess(point, weights)
        loss -= math.log(right if math.isnan(right) else max(right, 1e-12))
    return loss / len(data)


# -- the rule -------------------------------------------------------------------------------------


def is_behind(losses: Sequence[float], others: Sequence[Sequence[float]]) -> bool:
    """Whether the best loss so far is worse than the median of the others' means so far.

    Others that have not come as far don't count. The one with the lowest mean of all is never
    behind, so a task is left to go on, in whatever order they run.
    """
    epochs = len(losses)
    means = [fmean(other[:epochs]) for other in others if len(other) >= epochs]
    if epochs < FIRST_EPOCHS or len(means) < OTHERS:
        return False
    return min(losses) > median(means)


# -- files ----------------------------------------------------------------------------------------


def write(file: Path, content: object) -> None:
    """Write a file under another name, then rename it: others read the old one or the new one.

    Raises:
        SearchError: it can't be written; the old one is as it was.

    """
    new = file.with_name(f".{file.name}.{os.uname().nodename}.{os.getpid()}")
    try:
        with new.open("w", encoding="utf-8") as opened:
            json.dump(content, opened, allow_nan=False)
            opened.flush()
            os.fsync(opened.fileno())
        new.replace(file)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise SearchError(
            f"{file} can't be written ({error.strerror}): make room there (muster-quota shows what "
            f"you may have), then go on with sbatch --array=LINE search.sbatch {file.parent}"
        ) from error


def read(file: Path) -> Any:
    """Return what is in a file, None where there is none.

    Raises:
        SearchError: it can't be read.

    """
    for _ in range(TRIES):
        try:
            return json.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise SearchError(f"{file} can't be read ({error.strerror})") from error
        except ValueError as error:
            raise SearchError(
                f"{file} was not written by search.py, or is damaged: remove it, and that task "
                "begins from the start when it runs again"
            ) from error
    raise SearchError(f"{file} is replaced each time that it is read: try again")


def trial_file(folder: Path, line: int) -> Path:
    """Return where a task's losses are."""
    return folder / f"{line}.json"


def trial_of(folder: Path, line: int) -> Trial | None:
    """Return what a task has found so far; None: it has not begun."""
    found = read(trial_file(folder, line))
    return None if found is None else Trial(**found)


def parameters_file(folder: Path) -> Path:
    """Return where the parameters of a search are; those beside the program may have changed."""
    kept = folder / "parameters.jsonl"
    return kept if kept.exists() else Path(__file__).with_name(kept.name)


def lines_of(file: Path) -> list[dict[str, Any]]:
    """Return the parameters of each task.

    Raises:
        SearchError: a line has none.

    """
    found = []
    for n, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        try:
            parameters = json.loads(line)
        except ValueError:
            parameters = None
        if not isinstance(parameters, dict):
            raise SearchError(f'{file}, line {n}: write a line as {{"rate": 0.1, "decay": 0.01}}')
        found.append(parameters)
    return found


# -- commands -------------------------------------------------------------------------------------


def task(folder: Path, line: int, all_parameters: Sequence[dict[str, Any]]) -> None:
    """Train with the parameters of a line, until it is done or behind.

    Raises:
        SearchError: it can't.

    """
    count = len(all_parameters)
    if not 1 <= line <= count:
        raise SearchError(
            f"parameters.jsonl has {count} lines and no line {line}: type sbatch --array=1-{count}"
        )
    parameters = all_parameters[line - 1]
    folder.mkdir(parents=True, exist_ok=True)
    known = trial_of(folder, line) or Trial(parameters, [], RUNNING)
    if known.parameters != parameters:
        raise SearchError(
            f"{trial_file(folder, line)} was made with other parameters than those of line {line}: "
            "begin another search with bash submit.sh"
        )
    # The losses are written first: the checkpoint is never ahead of them.
    checkpoint = folder / f"{line}.checkpoint.json"
    saved = read(checkpoint) or {"epochs": 0, "weights": [0.0] * FEATURES}
    epochs, weights = saved["epochs"], saved["weights"]
    losses, state = known.losses[:epochs], known.state
    data, held_out = samples()
    print(f"{os.uname().nodename}: line {line}, {shown(parameters)}: {epochs} epochs are done")
    while state == RUNNING and epochs < EPOCHS:
        train(weights, data, epochs, **parameters)
        epochs += 1
        loss = loss_of(weights, held_out)
        if not math.isfinite(loss):
            write(trial_file(folder, line), Trial(parameters, losses, DIVERGED)._asdict())
            print(f"epoch {epochs}: the loss is no number: these parameters lead nowhere")
            return
        losses.append(loss)
        write(trial_file(folder, line), Trial(parameters, losses, RUNNING)._asdict())
        write(checkpoint, {"epochs": epochs, "weights": weights})
        print(f"epoch {epochs}: loss {loss:.4f}", flush=True)
        found = [trial_of(folder, other) for other in range(1, count + 1) if other != line]
        if is_behind(losses, [trial.losses for trial in found if trial]):
            state = STOPPED
    if state == RUNNING:
        state = DONE
    write(trial_file(folder, line), Trial(parameters, losses, state)._asdict())
    print(f"{state} after {epochs} epochs")


def table(folder: Path, count: int) -> list[int]:
    """Print what all tasks found; return the lines whose tasks have not ended.

    Raises:
        SearchError: a file can't be read, or no task is done.

    """
    trials = {line: trial_of(folder, line) for line in range(1, count + 1)}
    begun = {line: trial for line, trial in trials.items() if trial}
    rows = [("line", "parameters", "epochs", "best loss", "state")]
    for line, trial in sorted(begun.items(), key=lambda one: min(one[1].losses, default=math.inf)):
        best = f"{min(trial.losses):.4f}" if trial.losses else "-"
        rows.append((str(line), shown(trial.parameters), str(len(trial.losses)), best, trial.state))
    widths = [max(len(row[n]) for row in rows) for n in range(5)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).strip())
    done = {line: trial for line, trial in begun.items() if trial.state == DONE}
    if done:
        best_line = min(done, key=lambda line: min(done[line].losses))
        best_trial = done[best_line]
        best_epoch = best_trial.losses.index(min(best_trial.losses)) + 1
        print(
            f"the best: line {best_line}, {shown(best_trial.parameters)}, "
            f"loss {min(best_trial.losses):.4f} in epoch {best_epoch}"
        )
    return [line for line, trial in trials.items() if trial is None or trial.state == RUNNING]


def shown(parameters: dict[str, Any]) -> str:
    """Return parameters in a line."""
    return " ".join(f"{name}={value}" for name, value in parameters.items())


def main() -> int:
    """Do what the words say; return the exit code."""
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("task", "table"):
        command = commands.add_parser(name)
        command.add_argument("folder", type=Path)
        if name == "task":
            command.add_argument("line", type=int)
    options = parser.parse_args()
    try:
        parameters = lines_of(parameters_file(options.folder))
        if options.command == "task":
            task(options.folder, options.line, parameters)
            return 0
        missing = table(options.folder, len(parameters))
    except (OSError, SearchError) as error:
        print(f"search.py: {error}", file=sys.stderr)
        return 1
    if missing:
        lines = ",".join(map(str, missing))
        print(
            f"not ended: line {lines}: read search-*_LINE.out, then go on with "
            f"sbatch --array={lines} search.sbatch {options.folder}",
            file=sys.stderr,
        )
    return 1 if missing else 0


if __name__ == "__main__":
    raise SystemExit(main())
