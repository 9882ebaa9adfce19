#!/usr/bin/env python3
"""Look for parameters with Optuna, many workers on one study: study.py work|show JOURNAL.

    study.py work JOURNAL --trials 5    try five sets of parameters
    study.py show JOURNAL               print all that were tried, and the best

The study is one file, the journal, in a folder that all nodes see. It needs no database: each
worker appends to it under a lock that works on NFS (a file made with O_EXCL). Optuna takes the lock
away from a worker that was killed with it, after 30 s. Who opens the journal again goes on with the
same study.

Exit code 0: done. 1: an error, in one sentence.
"""

import argparse
import math
import os
import random
import sys
import warnings
from pathlib import Path

import optuna  # type: ignore[import-not-found]
from optuna.storages import JournalStorage  # type: ignore[import-not-found]
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock  # type: ignore[import-not-found]
from optuna.trial import FrozenTrial, Trial, TrialState  # type: ignore[import-not-found]

NAME = "study"
JOURNAL = b'{"op_code":'
"""How a journal of Optuna's begins."""
NO_JOURNAL = (
    "{} is no journal of Optuna's, or is damaged: name another file for a new study, such as "
    "sbatch study.sbatch second.journal"
)
WORKER = "worker"
"""What a trial has about whose it is."""

EPOCHS = 30
FEATURES = 10
SAMPLES, HELD_OUT = 400, 200
WRONG = 0.1
"""Part of the points that are on the wrong side, so that no parameters reach a loss of 0."""

Sample = tuple[list[float], int]


class StudyError(Exception):
    """Why it can't go on, in one sentence."""


# -- your own training takes the place of this ----------------------------------------------------


def objective(trial: Trial) -> float:
    """Train with the parameters that Optuna suggests; return the loss at the end."""
    rate = trial.suggest_float("rate", 1e-4, 10, log=True)
    decay = trial.suggest_float("decay", 1e-6, 1, log=True)
    data, held_out = samples()
    weights = [0.0] * FEATURES
    loss = math.inf
    for epoch in range(EPOCHS):
        for point, side in random.Random(epoch).sample(data, len(data)):  # noqa: S311
            wrong = side - guess(point, weights)
            for n, value in enumerate(point):
                weights[n] += rate * (wrong * value - decay * weights[n])
        loss = loss_of(weights, held_out)
        # The median rule: Optuna's pruner compares it with the others at the same epoch.
        trial.report(loss, epoch)
        if not math.isfinite(loss) or trial.should_prune():
            raise optuna.TrialPruned
    return loss


def samples() -> tuple[list[Sample], list[Sample]]:
    """Return points to train with, and others to measure the loss; the same ones in each trial."""
    source = random.Random(1)  # noqa: S311 (no secret)
    plane = [source.gauss(0, 1) for _ in range(FEATURES)]
    found = []
    for _ in range(SAMPLES + HELD_OUT):
        point = [source.gauss(0, 1) for _ in range(FEATURES)]
        side = sum(a * b for a, b in zip(point, plane, strict=True)) > 0
        found.append((point, int(side != (source.random() < WRONG))))
    return found[:SAMPLES], found[SAMPLES:]


def guess(point: list[float], weights: list[float]) -> float:
    """Return the probability that a point is on side 1."""
    return (1 + math.tanh(sum(a * b for a, b in zip(point, weights, strict=True)) / 2)) / 2


def loss_of(weights: list[float], data: list[Sample]) -> float:
    """Return the mean loss of points; no number where the weights are none any more."""
    loss = 0.0
    for point, side in data:
        right = guess(point, weights) if side else 1 - guess(point, weights)
        loss -= math.log(right if math.isnan(right) else max(right, 1e-12))
    return loss / len(data)


# -- the study ------------------------------------------------------------------------------------


def opened(journal: Path) -> optuna.Study:
    """Open the study of a journal; the first worker makes it.

    Raises:
        StudyError: the file is no journal.
        OSError: it can't be read or written.

    """
    try:
        lock = JournalFileOpenLock(str(journal))
        mend(journal, lock)
        storage = JournalStorage(JournalFileBackend(str(journal), lock_obj=lock))
        return optuna.create_study(
            study_name=NAME,
            storage=storage,
            load_if_exists=True,
            # With constant_liar a worker keeps away from what others are trying at the moment.
            sampler=optuna.samplers.TPESampler(constant_liar=True),
            pruner=optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=3),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StudyError(NO_JOURNAL.format(journal)) from error


def mend(journal: Path, lock: JournalFileOpenLock) -> None:
    """Cut off a last line that is not whole, as a full disk leaves one: Optuna would read no more.

    Raises:
        StudyError: the file is no journal; Optuna would append to it all the same.
        OSError: it can't be read or written.

    """
    if not journal.exists():
        return
    lock.acquire()
    try:
        with journal.open("r+b") as file:
            content = file.read()
            if content and not content.startswith(JOURNAL):
                raise StudyError(NO_JOURNAL.format(journal))
            whole = content.rfind(b"\n") + 1
            if whole < len(content):
                file.truncate(whole)
                print(f"{journal}: a half line at its end was cut off", flush=True)
    finally:
        lock.release()


def work(journal: Path, worker: str, count: int) -> None:
    """Try sets of parameters, until this worker has tried so many.

    A worker that was killed and is started again tries again what it was trying, and then what is
    left of its number. Killed between the first two writes of a trial it leaves one without
    parameters, which nobody tries: it is not known whose it is.
    """
    study = opened(journal)
    own = [trial for trial in study.get_trials(False) if trial.user_attrs.get(WORKER) == worker]
    for trial in own:
        if trial.state == TrialState.RUNNING:
            study.tell(trial.number, state=TrialState.FAIL)
            study.enqueue_trial(trial.params)
            print(f"trial {trial.number} was interrupted: its parameters are tried again")
    left = count - sum(trial.state in (TrialState.COMPLETE, TrialState.PRUNED) for trial in own)

    def of_this_worker(trial: Trial) -> float:
        trial.set_user_attr(WORKER, worker)
        return objective(trial)

    study.optimize(of_this_worker, n_trials=max(left, 0))


def show(journal: Path) -> None:
    """Print all that were tried, the best first.

    Raises:
        StudyError: there is no study, or nothing has been tried to its end.

    """
    if not journal.exists():
        raise StudyError(f"{journal} is not there: sbatch study.sbatch begins a study")
    trials = opened(journal).get_trials(False)
    for trial in sorted(trials, key=loss_at_end):
        loss = f"{trial.value:.4f}" if trial.value is not None else "-"
        parameters = " ".join(f"{name}={value:.3g}" for name, value in trial.params.items())
        print(f"trial {trial.number}: loss {loss}, {trial.state.name.lower()}, {parameters}")
    done = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    if not done:
        raise StudyError(f"no trial of {journal} has come to its end: read the output of its jobs")
    best = min(done, key=loss_at_end)
    parameters = " ".join(f"{name}={value:.6g}" for name, value in best.params.items())
    print(f"the best of {len(trials)}: trial {best.number}, {parameters}, loss {best.value:.4f}")


def loss_at_end(trial: FrozenTrial) -> float:
    """Return a trial's loss; the worst of all where it has none."""
    done = trial.state == TrialState.COMPLETE and trial.value is not None
    return trial.value if done and trial.value is not None else math.inf


def main() -> int:
    """Do what the words say; return the exit code."""
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("work", "show"):
        command = commands.add_parser(name)
        command.add_argument("journal", type=Path)
        if name == "work":
            command.add_argument("--trials", type=int, required=True)
    options = parser.parse_args()
    job = os.environ.get("SLURM_ARRAY_JOB_ID", "")
    worker = f"{job}_{os.environ.get('SLURM_ARRAY_TASK_ID', '')}" if job else str(os.getpid())
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    try:
        if options.command == "work":
            work(options.journal, worker, options.trials)
        else:
            show(options.journal)
    except (OSError, StudyError) as error:
        print(f"study.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
