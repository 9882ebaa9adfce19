#!/usr/bin/env python3
"""Train a small model on all nodes of a job, started by torchrun: ddp.py CHECKPOINT [--steps N].

What is here beside PyTorch's own is what a cluster adds: a checkpoint that the first process
writes, and a stop on which all of them agree. Each has a GPU of its own, or none where the nodes
have none. A file CHECKPOINT.stopped says that the run ended before the last step.
"""

import argparse
import os
import platform
import signal
from pathlib import Path

import torch  # type: ignore[import-not-found]
from torch import distributed, nn

SAVE_STEPS = 1000
"""Steps between two checkpoints: what is lost at most when a node dies."""


def save(checkpoint: Path, state: dict[str, object]) -> None:
    """Write the checkpoint under another name, then rename it: a kill leaves the old or the new."""
    new = checkpoint.with_name(f"{checkpoint.name}.new")
    torch.save(state, new)
    new.replace(checkpoint)


def main() -> None:
    """Train until the last step, or until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--steps", type=int, default=20000)
    options = parser.parse_args()
    stopped = options.checkpoint.with_name(f"{options.checkpoint.name}.stopped")

    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: told.append(number))
    gpus = torch.cuda.is_available()
    distributed.init_process_group("nccl" if gpus else "gloo")
    rank, processes = distributed.get_rank(), distributed.get_world_size()
    first = rank == 0
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpus else torch.device("cpu")
    torch.manual_seed(rank)  # each process has data of its own

    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1)).to(device)
    network = nn.parallel.DistributedDataParallel(model, [device.index] if gpus else None)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    step = 0
    if options.checkpoint.exists():
        state = torch.load(options.checkpoint, map_location=device)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    if first:
        print(f"{processes} processes, from step {step}", flush=True)

    stop = torch.zeros(1, device=device)
    while step < options.steps and not stop.item():
        points = torch.randn(128, 64, device=device)
        loss = nn.functional.mse_loss(network(points), points.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        # A process that stops alone leaves the others waiting for its gradients.
        stop.fill_(len(told))
        distributed.all_reduce(stop)
        if first and (step % SAVE_STEPS == 0 or stop.item() or step == options.steps):
            save(
                options.checkpoint,
                {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step},
            )
            print(f"step {step}: loss {loss.item():.4f}", flush=True)
    if first and step < options.steps:
        stopped.touch()
    # The same points for all: each process has the same model, or something is wrong.
    points = torch.randn(1024, 64, generator=torch.Generator().manual_seed(1)).to(device)
    with torch.no_grad():
        loss = nn.functional.mse_loss(model(points), points.sum(1, keepdim=True))
    print(f"{platform.node()}: process {rank} of {processes}, loss {loss.item():.6f}", flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
