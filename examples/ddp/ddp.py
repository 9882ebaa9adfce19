#!/usr/bin/env python3
"""Train a small model on all nodes of a job, by torchrun or launch: ddp.py FOLDER [--steps N].

What is here beside PyTorch's own is what a cluster adds: checkpoints that the first process writes
to FOLDER (checkpoints.py), and a stop on which all of them agree. Each has a GPU of its own, or
none where the nodes have none. A file FOLDER.stopped says that the run ended before the last step.
"""

import argparse
import io
import os
import platform
import signal
from pathlib import Path

import torch  # type: ignore[import-not-found]
from checkpoints import Checkpoints
from torch import distributed, nn

SAVE_STEPS = 1000
"""Steps between two checkpoints: what is lost at most when a node dies."""


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


def main() -> None:
    """Train until the last step, or until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, help="of the checkpoints")
    parser.add_argument("--steps", type=int, default=20000)
    options = parser.parse_args()
    stopped = options.folder.with_name(f"{options.folder.name}.stopped")
    checkpoints = Checkpoints(options.folder)

    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: told.append(number))
    gpus = torch.cuda.is_available()
    distributed.init_process_group("nccl" if gpus else "gloo")
    rank, processes = distributed.get_rank(), distributed.get_world_size()
    first = rank == 0
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpus else torch.device("cpu")
    if gpus:
        torch.cuda.set_device(device)
    torch.manual_seed(1)

    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1)).to(device)
    network = nn.parallel.DistributedDataParallel(model, [device.index] if gpus else None)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    step = 0
    # All go on from what the first one read: another node may not see the newest file yet.
    found = [checkpoints.newest() if first else None]
    distributed.broadcast_object_list(found)
    if found[0] is not None:
        state = torch.load(io.BytesIO(found[0][1]), map_location=device)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    if first:
        print(f"{processes} processes, from step {step}", flush=True)

    stop = torch.zeros(1, device=device)
    while step < options.steps and not stop.item():
        # Each process has data of its own, and after a restart what it would have had.
        seed = step * processes + rank
        points = torch.randn(128, 64, generator=torch.Generator().manual_seed(seed)).to(device)
        loss = nn.functional.mse_loss(network(points), points.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        # A process that stops alone leaves the others waiting for its gradients.
        stop.fill_(len(told))
        distributed.all_reduce(stop)
        if first and (step % SAVE_STEPS == 0 or stop.item() or step == options.steps):
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            checkpoints.save(step, packed(state))
            print(f"step {step}: loss {loss.item():.4f}", flush=True)
    if first and step < options.steps:
        stopped.touch()
    loss = loss_at_the_end(model, device)
    print(f"{platform.node()}: process {rank} of {processes}, loss {loss:.6f}", flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
