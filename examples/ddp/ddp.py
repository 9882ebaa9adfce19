#!/usr/bin/env python3
"""Train a small model on all nodes of a job, by torchrun or launch: ddp.py FOLDER [OPTION ...].

model.py has the model and its data. What is here beside PyTorch's own is what a cluster adds:
checkpoints that the first process writes to FOLDER (checkpoints.py), a stop on which all of them
agree, data that is read ahead (packed.py), and a word about who is slow or lost (workers.py). Each
process has a GPU of its own, or none where the nodes have none. A file FOLDER.stopped says that the
run ended before the last step, with exit code 75, FOLDER.lost that a worker was lost, FOLDER.done
that all steps are done. Losses, of the first process's batches, go to the file that MUSTER_METRICS
names, else to FOLDER.jsonl.
"""

import argparse
import io
import math
import os
import pickle
import platform
import signal
import sys
from contextlib import closing, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import torch  # type: ignore[import-not-found]
from checkpoints import CheckpointError, Checkpoints
from metrics import Metrics
from model import BATCH, decoded, loss_at_the_end, loss_of, made, new_model
from packed import DataError, Packed, batches
from torch import distributed, nn
from torch.distributed.algorithms.ddp_comm_hooks import (  # type: ignore[import-not-found]
    default_hooks,
    powerSGD_hook,
)
from workers import Workers

SAVE_STEPS = 1000
"""Steps between two checkpoints: what is lost at most when a node dies."""
RATE = 1e-3
"""Learning rate of one process."""
WARM_UP_STEPS = 500
"""Until a rate that --scale-lr has raised is reached."""
ENDING_SECONDS = 10
"""So much before processes give up waiting, workers.py says who is stuck."""
STOPPED = 75
"""Exit code of a run that was told to stop and has saved: another one goes on (EX_TEMPFAIL)."""


class StartError(Exception):
    """Why there is no training, in one sentence."""


def rate(step: int, processes: int, scale: str | None) -> float:
    """Return the learning rate: of more processes each step sees more data, and may be longer.

    It rises from that of one process, as large steps at the begin can go astray.
    """
    factors = {None: 1.0, "linear": float(processes), "sqrt": math.sqrt(processes)}
    factor = factors[scale]
    return RATE * (1 + (factor - 1) * min(1.0, step / WARM_UP_STEPS))


def compress(network: nn.parallel.DistributedDataParallel, how: str | None) -> None:
    """Have the processes exchange less: halves of numbers, or a product of two thin matrices.

    What PowerSGD leaves out is added to the next step's; a run that goes on begins with nothing.
    """
    if how == "fp16":
        network.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif how == "powersgd":
        # The first steps change much, and are sent whole.
        state = powerSGD_hook.PowerSGDState(None, 1, start_powerSGD_iter=WARM_UP_STEPS)
        network.register_comm_hook(state, powerSGD_hook.powerSGD_hook)


def profiler(folder: Path, rank: int) -> torch.profiler.profile:
    """Return PyTorch's profiler, of ten steps; TensorBoard and ui.perfetto.dev show its trace."""
    return torch.profiler.profile(
        schedule=torch.profiler.schedule(wait=10, warmup=5, active=10, repeat=1),
        on_trace_ready=torch.profiler.tensorboard_trace_handler(str(folder), f"worker-{rank}"),
    )


def arguments() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, help="of the checkpoints")
    parser.add_argument("--steps", type=int, default=20000)
    parser.add_argument("--data", type=Path, help="folder that packed.py has made")
    parser.add_argument(
        "--fsdp",
        action="store_true",
        help="each process holds a part of the model (FullyShardedDataParallel, PyTorch 2.6)",
    )
    parser.add_argument("--compress", choices=["fp16", "powersgd"], help="what processes exchange")
    parser.add_argument(
        "--scale-lr",
        choices=["linear", "sqrt"],
        help="learning rate by the number of processes: linear is for SGD, sqrt for Adam",
    )
    parser.add_argument("--profile", action="store_true", help="a trace, into FOLDER.profile")
    parser.add_argument(
        "--wait",
        type=seconds,
        default=30,
        metavar="SECONDS",
        help="how long processes wait for each other in a step, 15 to 3600: longer than saving "
        "takes (default: 30)",
    )
    options = parser.parse_args()
    if options.fsdp and options.compress:
        parser.error("--compress is for whole models in each process: leave it out with --fsdp")
    return options


def seconds(text: str) -> int:
    """Return how long to wait: a run in which nobody gives up keeps its nodes to the time limit."""
    found = int(text)
    if not 15 <= found <= 3600:
        raise argparse.ArgumentTypeError(f"{text} is not from 15 to 3600")
    return found


def state(network: nn.Module, optimizer: torch.optim.Optimizer, *, fsdp: bool) -> dict[str, Any]:
    """Return what `resume` reads of model and optimizer; all processes call it together."""
    if fsdp:
        import sharded  # noqa: PLC0415

        in_model, in_optimizer = sharded.full_state(network, optimizer)
    else:
        in_model, in_optimizer = network.module.state_dict(), optimizer.state_dict()
    return {"fsdp": fsdp, "model": in_model, "optimizer": in_optimizer}


def save(checkpoints: Checkpoints, workers: Workers, states: dict[str, Any]) -> None:
    """Save a checkpoint, as PyTorch writes it to a file."""
    file = io.BytesIO()
    with workers.saving():
        torch.save(states, file)
        checkpoints.save(states["step"], file.getvalue())


def resume(
    content: bytes | None,
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    fsdp: bool,
) -> tuple[int, int]:
    """Put a checkpoint into model and optimizer; return the steps that are done, and the points.

    Raises:
        CheckpointError: it is of another model or program, or of a run with other options.

    """
    if content is None:
        return 0, 0
    try:
        # A GPU has the model and the optimizer already, and may have no room for them twice.
        states = torch.load(io.BytesIO(content), map_location="cpu")
        if states["fsdp"] != fsdp:
            ran = "with" if states["fsdp"] else "without"
            raise CheckpointError(
                f"the checkpoint is of a run {ran} --fsdp: start it so again, or name another "
                "folder"
            )
        if fsdp:
            import sharded  # noqa: PLC0415

            sharded.load_full_state((states["model"], states["optimizer"]), network, optimizer)
        else:
            network.module.load_state_dict(states["model"])
            optimizer.load_state_dict(states["optimizer"])
        return int(states["step"]), int(states["seen"])
    except torch.cuda.OutOfMemoryError:
        # It is a RuntimeError, and says nothing about the checkpoint.
        raise
    except (EOFError, KeyError, RuntimeError, ValueError, pickle.UnpicklingError) as error:
        raise CheckpointError(
            f"the checkpoint is of another model: name another folder ({error!r})"
        ) from error


def join(seconds: int) -> tuple[Any, torch.device]:
    """Meet the other processes; return their group, and this one's device.

    Args:
        seconds: How long they wait for each other in a step; for the start they have half an hour.

    Raises:
        StartError: there is no telling where they are.

    """
    if not {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys():
        raise StartError(
            "PyTorch can't find the processes: start it in a job by srun launch python3 ddp.py, or "
            "by torchrun"
        )
    gpus = torch.cuda.is_available()
    # So that NCCL too gives up a wait. From PyTorch 2.2 on it does so by itself.
    os.environ.setdefault("NCCL_ASYNC_ERROR_HANDLING", "1")
    distributed.init_process_group("nccl" if gpus else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpus else torch.device("cpu")
    if gpus:
        torch.cuda.set_device(device)
    return distributed.new_group(timeout=timedelta(seconds=seconds)), device


def meet(workers: Workers, checkpoints: Checkpoints, seconds: float) -> bytes | None:
    """Have the processes know each other; return the checkpoint with which all of them go on."""
    first = distributed.get_rank() == 0
    # What the first one has found: another node may not see the newest file yet.
    told_all: list[Any] = [checkpoints.newest() if first else None, workers.meeting]
    distributed.broadcast_object_list(told_all)
    name, meeting = told_all
    workers.meet(os.environ["MASTER_ADDR"], meeting)
    # Each reads it itself: it may be larger than what processes should send each other.
    return checkpoints.read(name, seconds) if name else None


def model_on(device: torch.device, group: Any, options: argparse.Namespace) -> nn.Module:
    """Return the model, the same in all processes, whose gradients they exchange.

    Raises:
        StartError: PyTorch has no --fsdp that works.

    """
    model = new_model()
    if options.fsdp:
        try:
            import sharded  # noqa: PLC0415
        except ImportError as error:
            raise StartError(
                f"--fsdp needs PyTorch 2.6, and this is {torch.__version__}: load a module that "
                "has it (module avail; Debian 13's has), or leave the option out"
            ) from error
        # From the node's memory: all of it may not fit into one GPU.
        return sharded.shard(model, device, group)
    model = model.to(device)
    devices = [device.index] if device.index is not None else None
    network = nn.parallel.DistributedDataParallel(model, devices, process_group=group)
    compress(network, options.compress)
    return network


def work(network: nn.Module, points: torch.Tensor) -> torch.Tensor:
    """Return the loss of a step."""
    loss = loss_of(network, points)
    if points.device.type == "cuda":
        torch.cuda.synchronize()
    return loss


def learn(optimizer: torch.optim.Optimizer, loss: torch.Tensor, now: float) -> None:
    """Have all processes take the same step, by what they exchange."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.param_groups[0]["lr"] = now
    optimizer.step()


def main() -> NoReturn:
    """Train until the last step, or until SIGTERM, and end the process."""
    options = arguments()
    ends = ("stopped", "done", "lost", "profile")
    stopped, done, lost, profiled = (Path(f"{options.folder}.{end}") for end in ends)
    checkpoints = Checkpoints(options.folder)
    metrics = Metrics(Path(os.environ.get("MUSTER_METRICS") or f"{options.folder}.jsonl"))

    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: told.append(number))
    # Before it waits for others: a folder that is not there is told at once.
    data = Packed(options.data) if options.data else None
    group, device = join(options.wait)
    rank, processes = place = distributed.get_rank(), distributed.get_world_size()
    first = rank == 0

    network = model_on(device, group, options)
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE)
    workers = Workers(rank, processes, lost, options.wait - ENDING_SECONDS)
    # It has no name here, so that it goes when it is read.
    step, seen = resume(
        meet(workers, checkpoints, options.wait), network, optimizer, fsdp=options.fsdp
    )
    if first:
        checkpoints.begin(step)
        metrics.begin(step)
        print(f"{processes} processes, from step {step}", flush=True)
    # From here on they wait for each other no longer than in a step.
    distributed.barrier()

    stop = torch.zeros(1, device=device)
    source = batches(data, seen, place, BATCH, decoded) if data else made(step, place)
    trace_to = profiler(profiled, rank) if options.profile else nullcontext()
    with workers, closing(source), trace_to as trace:
        while step < options.steps and not stop.item():
            # Such as dropout: another in each process, and the same when a step is done again.
            torch.manual_seed(hash((step, rank, processes)))
            with workers.work(step):
                loss = work(network, next(source).to(device))
            learn(optimizer, loss, rate(step, processes, options.scale_lr))
            step, seen = step + 1, seen + BATCH * processes
            if trace:
                trace.step()
            # A process that stops alone leaves the others waiting for its gradients.
            stop.fill_(len(told))
            distributed.all_reduce(stop, group=group)
            if step % SAVE_STEPS == 0 or stop.item() or step == options.steps:
                states = state(network, optimizer, fsdp=options.fsdp)
                if first:
                    # Before the checkpoint: a run that goes on from it does not write it again.
                    metrics.add(step, loss=loss.item())
                    save(checkpoints, workers, {**states, "step": step, "seen": seen})
                    print(f"step {step}: loss {loss.item():.4f}", flush=True)
        # When one ends, srun has the others killed: the first one may still save.
        distributed.barrier(group)
    is_stopped = step < options.steps
    if first:
        (stopped if is_stopped else done).touch()
    at_the_end = loss_at_the_end(network, device)
    print(f"{platform.node()}: process {rank} of {processes}, loss {at_the_end:.6f}", flush=True)
    distributed.barrier(group)
    # PyTorch was once seen to hang while it ended its threads, and so the job kept its nodes.
    sys.stdout.flush()
    os._exit(STOPPED if is_stopped else 0)


if __name__ == "__main__":
    try:
        main()
    except (CheckpointError, DataError, StartError) as wrong:
        sys.exit(f"ddp.py: {wrong}")
