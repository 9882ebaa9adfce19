#!/usr/bin/env python3
"""Train a small model on all nodes of a job, by torchrun or launch: ddp.py FOLDER [OPTION ...].

What is here beside PyTorch's own is what a cluster adds: checkpoints that the first process writes
to FOLDER (checkpoints.py), a stop on which all of them agree, and a word about who is slow or lost
(workers.py). Each has a GPU of its own, or none where the nodes have none. A file FOLDER.stopped
says that the run ended before the last step, with exit code 75, FOLDER.lost that a worker was lost.
Losses go to the file that MUSTER_METRICS names, else to FOLDER.jsonl.
"""

import argparse
import io
import math
import os
import platform
import signal
import sys
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found]
from checkpoints import Checkpoints
from metrics import Metrics
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


def packed(state: dict[str, object]) -> bytes:
    """Return a state as PyTorch writes it to a file."""
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


def loss_at_the_end(model: nn.Module, device: torch.device) -> float:
    """Return the loss on points that are the same for all: so must it be, as the model is."""
    points = torch.randn(1024, 64, generator=torch.Generator().manual_seed(1)).to(device)
    with torch.no_grad():
        loss = nn.functional.mse_loss(model(points), points.sum(1, keepdim=True))
    return float(loss)


def arguments() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, help="of the checkpoints")
    parser.add_argument("--steps", type=int, default=20000)
    parser.add_argument("--compress", choices=["fp16", "powersgd"], help="what processes exchange")
    parser.add_argument(
        "--scale-lr",
        choices=["linear", "sqrt"],
        help="learning rate by the number of processes: linear is for SGD, sqrt for Adam",
    )
    parser.add_argument("--profile", action="store_true", help="a trace, into FOLDER.profile")
    parser.add_argument(
        "--wait",
        type=patience,
        default=30,
        metavar="SECONDS",
        help="how long processes wait for each other in a step, 15 to 3600: longer than saving "
        "takes (default: 30)",
    )
    return parser.parse_args()


def patience(text: str) -> int:
    """Return how long to wait: a run in which nobody gives up keeps its nodes to the time limit."""
    seconds = int(text)
    if not 15 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text} is not from 15 to 3600")
    return seconds


def save(
    checkpoints: Checkpoints, step: int, model: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    """Save what `resume` reads."""
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    checkpoints.save(step, packed(state))


def resume(
    content: bytes, model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device
) -> int:
    """Put a checkpoint into model and optimizer; return the steps that are done."""
    state = torch.load(io.BytesIO(content), map_location=device)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])


def join(seconds: int) -> tuple[Any, torch.device]:
    """Meet the other processes; return their group, and this one's device.

    Args:
        seconds: How long they wait for each other in a step; for the start they have half an hour.

    """
    gpus = torch.cuda.is_available()
    # So that NCCL too gives up a wait. From PyTorch 2.2 on it does so by itself.
    os.environ.setdefault("NCCL_ASYNC_ERROR_HANDLING", "1")
    distributed.init_process_group("nccl" if gpus else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpus else torch.device("cpu")
    if gpus:
        torch.cuda.set_device(device)
    return distributed.new_group(timeout=timedelta(seconds=seconds)), device


def model_on(
    device: torch.device, group: Any, how: str | None
) -> nn.parallel.DistributedDataParallel:
    """Return the model, the same in all processes, whose gradients they exchange."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1)).to(device)
    devices = [device.index] if device.index is not None else None
    network = nn.parallel.DistributedDataParallel(model, devices, process_group=group)
    compress(network, how)
    return network


def work(
    network: nn.Module, step: int, place: tuple[int, int], device: torch.device
) -> torch.Tensor:
    """Return the loss of a step. Each process has data of its own, also after a restart."""
    rank, processes = place
    source = torch.Generator().manual_seed(step * processes + rank)
    points = torch.randn(128, 64, generator=source).to(device)
    loss = nn.functional.mse_loss(network(points), points.sum(1, keepdim=True))
    if device.type == "cuda":
        torch.cuda.synchronize()
    return loss


def main() -> int:
    """Train until the last step, or until SIGTERM; return the exit code."""
    options = arguments()
    ends = ("stopped", "lost", "profile")
    stopped, lost, profiled = (options.folder.with_name(f"{options.folder.name}.{e}") for e in ends)
    checkpoints = Checkpoints(options.folder)
    metrics = Metrics(Path(os.environ.get("MUSTER_METRICS") or f"{options.folder}.jsonl"))

    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: told.append(number))
    group, device = join(options.wait)
    rank, processes = distributed.get_rank(), distributed.get_world_size()
    first = rank == 0

    network = model_on(device, group, options.compress)
    model, optimizer = network.module, torch.optim.AdamW(network.parameters(), lr=RATE)
    # All go on from what the first one read: another node may not see the newest file yet.
    workers = Workers(rank, processes, lost, options.wait - ENDING_SECONDS)
    told_all: list[Any] = [checkpoints.newest() if first else None, workers.meeting]
    distributed.broadcast_object_list(told_all)
    name, meeting = told_all
    # Each reads it itself: it may be larger than what processes should send each other.
    step = resume(checkpoints.read(name, options.wait), model, optimizer, device) if name else 0
    if first:
        metrics.begin(step)
        print(f"{processes} processes, from step {step}", flush=True)
    # From here on they wait for each other no longer than in a step.
    distributed.barrier()

    stop = torch.zeros(1, device=device)
    workers.meet(os.environ["MASTER_ADDR"], meeting)
    with workers, profiler(profiled, rank) if options.profile else nullcontext() as trace:
        while step < options.steps and not stop.item():
            with workers.work(step):
                loss = work(network, step, (rank, processes), device)
            optimizer.zero_grad()
            loss.backward()
            optimizer.param_groups[0]["lr"] = rate(step, processes, options.scale_lr)
            optimizer.step()
            step += 1
            if trace:
                trace.step()
            # A process that stops alone leaves the others waiting for its gradients.
            stop.fill_(len(told))
            distributed.all_reduce(stop, group=group)
            if first and (step % SAVE_STEPS == 0 or stop.item() or step == options.steps):
                # Before the checkpoint: a run that goes on from it does not write this line again.
                metrics.add(step, loss=loss.item())
                with workers.saving():
                    save(checkpoints, step, model, optimizer)
                print(f"step {step}: loss {loss.item():.4f}", flush=True)
        # When one ends, srun has the others killed: the first one may still save.
        distributed.barrier(group)
    is_stopped = step < options.steps
    if first and is_stopped:
        stopped.touch()
    at_the_end = loss_at_the_end(model, device)
    print(f"{platform.node()}: process {rank} of {processes}, loss {at_the_end:.6f}", flush=True)
    distributed.barrier(group)
    distributed.destroy_process_group()
    return STOPPED if is_stopped else 0


if __name__ == "__main__":
    sys.exit(main())
