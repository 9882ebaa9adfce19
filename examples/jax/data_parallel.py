#!/usr/bin/env python3
"""Train a small model with JAX in all tasks of a job: launch python3 data_parallel.py FOLDER.

Each task gives its part of a batch, and XLA adds the gradients of all. launch says where the tasks
meet, and JAX finds the rest in SLURM's variables. The first task writes checkpoints to FOLDER
(checkpoints.py); a run that goes on begins with the newest. At SIGTERM all of them stop after the
same step, which JAX sees to: then that is saved, a file FOLDER.stopped says so, and the exit code
is 75. Losses go to the file that MUSTER_METRICS names, else to FOLDER.jsonl.
"""

import argparse
import io
import os
import platform
import sys
import zipfile
from pathlib import Path
from typing import Any

import jax  # type: ignore[import-not-found]
import jax.numpy as jnp  # type: ignore[import-not-found]
import numpy as np  # type: ignore[import-not-found, unused-ignore]
from checkpoints import CheckpointError, Checkpoints
from jax.experimental import multihost_utils  # type: ignore[import-not-found]
from jax.sharding import NamedSharding, PartitionSpec  # type: ignore[import-not-found]
from metrics import Metrics

BATCH, NUMBERS, HIDDEN = 128, 64, 256
"""Points that a task sees in a step, numbers of a point, and the model's width."""
RATE = 1e-3
SAVE_STEPS = 500
"""Steps between two checkpoints."""
LOST_SECONDS = 30
"""After these without a word from a task the others end."""
STOPPED = 75
"""Exit code of a run that was told to stop and has saved: another one goes on (EX_TEMPFAIL)."""


class StartError(Exception):
    """Why the tasks can't meet, in one sentence."""


def join() -> None:
    """Meet the other tasks.

    Raises:
        StartError: there is no telling where they are.

    """
    if not os.environ.get("JAX_COORDINATOR_ADDRESS"):
        raise StartError(
            "JAX can't find the tasks: start it in a job by srun launch python3 data_parallel.py"
        )
    # What CPUs exchange gradients by; GPUs have NCCL.
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(heartbeat_timeout_seconds=LOST_SECONDS)


def begin() -> dict[str, Any]:
    """Return the state before the first step: the model, and the means of Adam."""
    source = np.random.default_rng(1)
    model = {
        "in": source.normal(0, NUMBERS**-0.5, (NUMBERS, HIDDEN)),
        "in_bias": np.zeros(HIDDEN),
        "out": source.normal(0, HIDDEN**-0.5, (HIDDEN, 1)),
        "out_bias": np.zeros(1),
    }
    state = {f"model/{name}": value.astype(np.float32) for name, value in model.items()}
    for mean in ("mean", "square"):
        state |= {f"{mean}/{name}": np.zeros_like(state[f"model/{name}"]) for name in model}
    return {**state, "step": np.zeros((), np.int32)}


def loss_of(model: dict[str, Any], points: Any) -> Any:
    """Return the loss: the model has to learn the sum of a point's numbers."""
    hidden = jax.nn.relu(points @ model["in"] + model["in_bias"])
    return ((hidden @ model["out"] + model["out_bias"] - points.sum(1, keepdims=True)) ** 2).mean()


def part(state: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a part of the state: model, mean or square."""
    return {key.partition("/")[2]: state[key] for key in state if key.startswith(f"{name}/")}


def learn(state: dict[str, Any], points: Any) -> tuple[dict[str, Any], Any]:
    """Return the state after a step of Adam, and the loss before it."""
    model, mean, square = (part(state, name) for name in ("model", "mean", "square"))
    loss, gradients = jax.value_and_grad(loss_of)(model, points)
    step = state["step"] + 1
    new = {"step": step}
    for name, gradient in gradients.items():
        first = new[f"mean/{name}"] = 0.9 * mean[name] + 0.1 * gradient
        second = new[f"square/{name}"] = 0.999 * square[name] + 0.001 * gradient**2
        change = (first / (1 - 0.9**step)) / (jnp.sqrt(second / (1 - 0.999**step)) + 1e-8)
        new[f"model/{name}"] = model[name] - RATE * change
    return new, loss


def points_of(step: int, rank: int, tasks: int) -> Any:
    """Return a task's part of a batch: each has points of its own, also after a restart."""
    source = np.random.default_rng(step * tasks + rank)
    return source.normal(size=(BATCH, NUMBERS)).astype(np.float32)


def save(checkpoints: Checkpoints, state: dict[str, Any]) -> None:
    """Save what `resumed` reads."""
    file = io.BytesIO()
    np.savez(file, **{name: np.asarray(value) for name, value in state.items()})
    checkpoints.save(int(state["step"]), file.getvalue())


def resumed(content: bytes, fresh: dict[str, Any]) -> dict[str, Any]:
    """Return the state of a checkpoint.

    Raises:
        CheckpointError: it is of another model or program.

    """
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            found = {name: file[name] for name in file.files}
    except (EOFError, ValueError, zipfile.BadZipFile):
        found = {}
    if {n: v.shape for n, v in found.items()} != {n: v.shape for n, v in fresh.items()}:
        raise CheckpointError("the checkpoint is of another model: name another folder")
    return found


def told_by_the_first(text: str) -> str:
    """Return what the first task says, to each of them."""
    room = np.zeros(256, np.uint8)
    letters = text.encode()
    room[: len(letters)] = list(letters)
    return bytes(np.asarray(multihost_utils.broadcast_one_to_all(room))).rstrip(b"\0").decode()


def main() -> int:
    """Train until the last step, or until SIGTERM; return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, help="of the checkpoints")
    parser.add_argument("--steps", type=int, default=2000)
    options = parser.parse_args()
    checkpoints = Checkpoints(options.folder)
    metrics = Metrics(Path(os.environ.get("MUSTER_METRICS") or f"{options.folder}.jsonl"))

    join()
    rank, tasks = jax.process_index(), jax.process_count()
    first = rank == 0
    # Another node may not see the newest file yet, so all take what the first one has found.
    name = told_by_the_first((checkpoints.newest() or "") if first else "")
    fresh = begin()
    state = resumed(checkpoints.read(name, LOST_SECONDS), fresh) if name else fresh
    step = int(state["step"])
    if first:
        checkpoints.begin(step)
        metrics.begin(step)
        print(f"{tasks} processes, from step {step}", flush=True)

    # Each device has the whole model, and its part of the points.
    mesh = jax.make_mesh((jax.device_count(),), ("devices",))
    replicated = NamedSharding(mesh, PartitionSpec())
    sharded = NamedSharding(mesh, PartitionSpec("devices"))
    state = jax.device_put(state, replicated)
    learning = jax.jit(learn, donate_argnums=0, out_shardings=replicated)
    stop = False
    while step < options.steps and not stop:
        mine = points_of(step, rank, tasks)
        state, loss = learning(state, jax.make_array_from_process_local_data(sharded, mine))
        step += 1
        stop = multihost_utils.reached_preemption_sync_point(step)
        if first and (step % SAVE_STEPS == 0 or stop or step == options.steps):
            # Before the checkpoint: a run that goes on from it does not write this line again.
            metrics.add(step, loss=float(loss))
            save(checkpoints, state)
            print(f"step {step}: loss {float(loss):.4f}", flush=True)
    is_stopped = step < options.steps
    if first and is_stopped:
        Path(f"{options.folder}.stopped").touch()
    points = np.random.default_rng(1).normal(size=(1024, NUMBERS)).astype(np.float32)
    model = {key: np.asarray(value) for key, value in part(state, "model").items()}
    # On points that are the same for all: so must it be, as the model is.
    at_the_end = float(loss_of(model, points))
    print(f"{platform.node()}: process {rank} of {tasks}, loss {at_the_end:.6f}", flush=True)
    # When one ends, srun has the others killed: the first one may still save.
    multihost_utils.sync_global_devices("the end")
    jax.distributed.shutdown()
    return STOPPED if is_stopped else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (CheckpointError, StartError) as wrong:
        sys.exit(f"data_parallel.py: {wrong}")
