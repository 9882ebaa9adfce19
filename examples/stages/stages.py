#!/usr/bin/env python3
"""Train a model whose layers are on two nodes: launch python3 stages.py FOLDER [--steps N].

Each task has the layers of one stage, and its optimizer: for models that don't fit into one node.
A batch goes through in small parts, microbatches, so the second stage computes with one while the
first one computes with the next (GPipe). Each task writes checkpoints of its own stage to a folder
in FOLDER (checkpoints.py); a run that goes on begins with the newest that both have. At SIGTERM
both stop after the same step and save, a file FOLDER.stopped says so, and the exit code is 75.
Losses go to the file that MUSTER_METRICS names, else to FOLDER.jsonl.
"""

import argparse
import inspect
import io
import os
import pickle
import platform
import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import torch  # type: ignore[import-not-found]
from checkpoints import CheckpointError, Checkpoints
from metrics import Metrics
from torch import distributed, nn

STAGES, MICROBATCHES = 2, 8
"""Tasks, and parts of a batch: with more of these the stages wait less for each other."""
BATCH, NUMBERS, HIDDEN = 256, 64, 256
"""Points of a step, numbers of a point, and the model's width."""
RATE = 1e-3
SAVE_STEPS = 500
"""Steps between two checkpoints."""
LOST_SECONDS = 30
"""How long the stages wait for each other in a step."""
STOPPED = 75
"""Exit code of a run that was told to stop and has saved: another one goes on (EX_TEMPFAIL)."""


class StartError(Exception):
    """Why there is no training, in one sentence."""


def layers(stage: int) -> nn.Module:
    """Return the layers of a stage; no task ever has those of both."""
    torch.manual_seed(stage)
    first = nn.Sequential(nn.Linear(NUMBERS, HIDDEN), nn.ReLU())
    return first if stage == 0 else nn.Linear(HIDDEN, 1)


def join() -> tuple[Any, torch.device]:
    """Meet the other task; return the group of both, and this one's device.

    Raises:
        StartError: there are more tasks or fewer.

    """
    tasks = int(os.environ.get("WORLD_SIZE", "1"))
    if tasks != STAGES:
        raise StartError(
            f"the model has {STAGES} stages, and there are {tasks} tasks: ask for a node for each "
            f"(--nodes={STAGES} --ntasks-per-node=1), and start it by srun launch"
        )
    gpus = torch.cuda.is_available()
    distributed.init_process_group("nccl" if gpus else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpus else torch.device("cpu")
    if gpus:
        torch.cuda.set_device(device)
    return distributed.new_group(timeout=timedelta(seconds=LOST_SECONDS)), device


def schedule_of(module: nn.Module, stage: int, device: torch.device, group: Any) -> Any:
    """Return what leads a batch through both stages.

    Raises:
        StartError: PyTorch has none.

    """
    try:
        from torch.distributed.pipelining import (  # type: ignore[import-not-found]  # noqa: PLC0415
            PipelineStage,
            ScheduleGPipe,
        )
    except ImportError as error:
        raise StartError(
            f"pipeline parallelism needs PyTorch 2.6, and this is {torch.__version__}: load a "
            "module that has it (module avail; Debian 13's has)"
        ) from error
    # What goes into a stage, and out of it. Else PyTorch finds out in the first step of a run: it
    # computes once more, and draws random numbers for that.
    widths = (NUMBERS, HIDDEN, 1)[stage : stage + 2]
    shapes = (torch.empty(BATCH // MICROBATCHES, width, device="meta") for width in widths)
    part = PipelineStage(module, stage, STAGES, device, *shapes, group=group)
    # Schedule1F1B takes less memory, for GPUs: over Gloo that of PyTorch 2.6 waits for ever.
    return ScheduleGPipe(part, MICROBATCHES, loss_fn=nn.functional.mse_loss)


def average(schedule: Any, module: nn.Module) -> None:
    """Make gradients those of the mean loss, where a schedule adds those of the microbatches.

    That of PyTorch 2.6 does; later ones divide by themselves (scale_grads).
    """
    if "scale_grads" in inspect.signature(type(schedule).__init__).parameters:
        return
    for parameter in module.parameters():
        if parameter.grad is not None:
            parameter.grad /= MICROBATCHES


def points_of(step: int, device: torch.device, number: int = BATCH) -> torch.Tensor:
    """Return the points of a step, the same for both stages, also after a restart."""
    return torch.randn(number, NUMBERS, generator=torch.Generator().manual_seed(step)).to(device)


def target(points: torch.Tensor) -> torch.Tensor:
    """Return what the model has to learn: the sum of a point's numbers."""
    return points.sum(1, keepdim=True)


def save(checkpoints: Checkpoints, step: int, module: nn.Module, optimizer: Any) -> None:
    """Save what `resume` reads: one stage."""
    file = io.BytesIO()
    torch.save({"model": module.state_dict(), "optimizer": optimizer.state_dict()}, file)
    checkpoints.save(step, file.getvalue())


def resume(checkpoints: Checkpoints, module: nn.Module, optimizer: Any) -> int:
    """Go on from the newest checkpoint that both stages have; return its step.

    Raises:
        CheckpointError: it can't be read, or is of another model.

    """
    mine = checkpoints.newest()
    newest: list[Any] = [None] * STAGES
    distributed.all_gather_object(newest, mine)
    # A run that was killed may have saved one stage, and not the other.
    step = min(int(name.partition("-")[0]) if name else 0 for name in newest)
    if step:
        _read(checkpoints, step, module, optimizer)
    elif mine:
        print("the other stage has no checkpoint: both start from step 0", flush=True)
    # Both have read theirs. What one has saved more fits nothing that the other will save.
    distributed.barrier()
    checkpoints.begin(step)
    return step


def _read(checkpoints: Checkpoints, step: int, module: nn.Module, optimizer: Any) -> None:
    """Put the checkpoint of a step into a stage."""
    name = checkpoints.newest(step)
    if name is None or int(name.partition("-")[0]) != step:
        raise CheckpointError(
            f"{checkpoints.folder} has no checkpoint of step {step}, the newest of the other "
            "stage: name another folder"
        )
    content = checkpoints.read(name, LOST_SECONDS)
    try:
        # A GPU has the stage and its optimizer already, and may have no room for them twice.
        state = torch.load(io.BytesIO(content), map_location="cpu")
        module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    except torch.cuda.OutOfMemoryError:
        # It is a RuntimeError, and says nothing about the checkpoint.
        raise
    except (EOFError, KeyError, RuntimeError, ValueError, pickle.UnpicklingError) as error:
        raise CheckpointError(
            f"{checkpoints.folder / name} is of another model: name another folder ({error!r})"
        ) from error


def loss_at_the_end(module: nn.Module, stage: int, device: torch.device) -> float:
    """Return the loss on points that are the same for each run, to both."""
    module.eval()  # without dropout
    points = points_of(-1, device, 1024)
    loss = torch.zeros(1, device=device)
    with torch.no_grad():
        if stage == 0:
            distributed.send(module(points), 1)
        else:
            between = torch.empty(len(points), HIDDEN, device=device)
            distributed.recv(between, 0)
            loss[0] = nn.functional.mse_loss(module(between), target(points))
    distributed.broadcast(loss, STAGES - 1)
    return float(loss)


def main() -> NoReturn:
    """Train until the last step, or until SIGTERM, and end the process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, help="of the checkpoints")
    parser.add_argument("--steps", type=int, default=2000)
    options = parser.parse_args()
    metrics = Metrics(Path(os.environ.get("MUSTER_METRICS") or f"{options.folder}.jsonl"))
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: told.append(number))

    group, device = join()
    stage = distributed.get_rank()
    last = stage == STAGES - 1
    module = layers(stage).to(device)
    schedule = schedule_of(module, stage, device, group)
    optimizer = torch.optim.AdamW(module.parameters(), lr=RATE)
    checkpoints = Checkpoints(options.folder / f"stage-{stage}")
    step = resume(checkpoints, module, optimizer)
    if last:
        # The last stage alone knows the loss.
        metrics.begin(step)
        print(f"{STAGES} stages, from step {step}", flush=True)

    stop = torch.zeros(1, device=device)
    while step < options.steps and not stop.item():
        # Such as dropout: another in each stage, and the same when a step is done again.
        torch.manual_seed(hash((step, stage, STAGES)))
        points = points_of(step, device)
        losses: list[Any] = []
        optimizer.zero_grad()
        if last:
            schedule.step(target=target(points), losses=losses)
        else:
            schedule.step(points)
        average(schedule, module)
        optimizer.step()
        step += 1
        # One that stops alone leaves the other waiting.
        stop.fill_(len(told))
        distributed.all_reduce(stop, group=group)
        if step % SAVE_STEPS == 0 or stop.item() or step == options.steps:
            if last:
                loss = torch.stack(losses).mean().item()
                # Before the checkpoint: a run that goes on from it does not write it again.
                metrics.add(step, loss=loss)
                print(f"step {step}: loss {loss:.4f}", flush=True)
            save(checkpoints, step, module, optimizer)
    # When one ends, srun has the other killed: it may still save.
    distributed.barrier()
    is_stopped = step < options.steps
    # By the first stage, which is on the node of the script that looks for it.
    if stage == 0 and is_stopped:
        Path(f"{options.folder}.stopped").touch()
    at_the_end = loss_at_the_end(module, stage, device)
    print(f"{platform.node()}: process {stage} of {STAGES}, loss {at_the_end:.6f}", flush=True)
    distributed.barrier()
    # PyTorch was once seen to hang while it ended its threads, and so the job kept its nodes.
    sys.stdout.flush()
    os._exit(STOPPED if is_stopped else 0)


if __name__ == "__main__":
    try:
        main()
    except (CheckpointError, StartError) as wrong:
        sys.exit(f"stages.py: {wrong}")
