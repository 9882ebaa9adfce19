#!/usr/bin/env python3
"""The training of training_table.py: the same layers on made images, timed; `launch` starts it.

It needs PyTorch and nothing of Muster's. The first process prints a line of JSON for each epoch,
and one with what was measured (see table.py, which reads it).
"""

import argparse
import json
import os
import statistics
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

BEGUN = time.time()
"""Before PyTorch is imported."""

import torch  # type: ignore[import-not-found]  # noqa: E402
from torch import distributed, nn  # noqa: E402

PIXELS, CLASSES = 28, 10
HELD_OUT = 10_000
"""Images for the accuracy, which nobody trains on."""
NOISE = 5.0
"""So much that the accuracy stays below 1."""
RATE, MOMENTUM = 0.01, 0.9
PROBES = 100
"""Steps without exchange, and exchanges alone, before the clock starts."""


def images(number: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return images and what they show: a smooth pattern for each class, in noise; as bytes."""
    patterns = torch.randn(CLASSES, 1, 7, 7, generator=torch.Generator().manual_seed(1))
    patterns = nn.functional.interpolate(patterns, size=(PIXELS, PIXELS), mode="bilinear")
    source = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (number,), generator=source)
    made = torch.empty(number, 1, PIXELS, PIXELS, dtype=torch.uint8)
    for begin in range(0, number, 10_000):
        part = labels[begin : begin + 10_000]
        noise = NOISE * torch.randn(len(part), 1, PIXELS, PIXELS, generator=source)
        made[begin : begin + 10_000] = (128 + 10 * (patterns[part] + noise)).clamp(0, 255).byte()
    return made, labels


def model() -> nn.Module:
    """Return the layers: convolution, pool, two dense ones; 693,962 numbers."""
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(1, 32, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 13 * 13, 128),
        nn.ReLU(),
        nn.Linear(128, CLASSES),
    )


def as_input(pixels: torch.Tensor) -> torch.Tensor:
    """Return bytes as numbers around 0."""
    return (pixels.float() - 128) / 64


def sent() -> int:
    """Return the bytes that this node's network has sent, without those to itself."""
    counters = Path("/sys/class/net").glob("*/statistics/tx_bytes")
    return sum(int(path.read_text()) for path in counters if path.parts[-3] != "lo")


def exchange(size: int, times: int) -> float:
    """Return the seconds of an all-reduce of so many numbers, the median of some."""
    numbers, spent = torch.zeros(size), []
    for _ in range(times):
        distributed.barrier()
        begun = time.perf_counter()
        distributed.all_reduce(numbers)
        spent.append(time.perf_counter() - begun)
    return statistics.median(spent)


class Training:
    """The model of this process and what it trains on."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.rank, self.size = distributed.get_rank(), distributed.get_world_size()
        self.batch, self.epochs = options.batch, options.epochs
        self.pixels, self.labels = images(options.images, 2)
        self.steps = -(-options.images // (self.batch * self.size))
        self.network = nn.parallel.DistributedDataParallel(model())
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=RATE, momentum=MOMENTUM)
        self.data = 0.0
        """Seconds spent on making batches."""

    def part(self, order: torch.Tensor, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return this process's batch. Those of all are what one process with a larger one has."""
        begun = time.perf_counter()
        begin = (step * self.size + self.rank) * self.batch
        # The last batch is filled up from the begin, so that all are equally large.
        chosen = order[torch.arange(begin, begin + self.batch) % len(order)]
        batch = as_input(self.pixels[chosen]), self.labels[chosen]
        self.data += time.perf_counter() - begun
        return batch

    def step(self, pixels: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Train on a batch; return its loss."""
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.network(pixels), labels)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def probe(self) -> dict[str, float]:
        """Measure a step without exchange, and exchanges alone; the model stays what it was."""
        state = {name: value.clone() for name, value in self.network.state_dict().items()}
        chosen = torch.arange(PROBES * self.batch) % len(self.labels)
        spent = []
        distributed.barrier()
        for begin in range(0, len(chosen), self.batch):
            part = chosen[begin : begin + self.batch]
            pixels, labels = as_input(self.pixels[part]), self.labels[part]
            begun = time.perf_counter()
            with self.network.no_sync():
                self.step(pixels, labels)
            spent.append(time.perf_counter() - begun)
        self.network.load_state_dict(state)
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=RATE, momentum=MOMENTUM)
        found = {"compute_s": statistics.median(spent), "small_s": 0.0, "large_s": 0.0}
        if self.size > 1:
            numbers = sum(value.numel() for value in self.network.parameters())
            found |= {"small_s": exchange(1, PROBES), "large_s": exchange(numbers, PROBES)}
        return found

    def run(self) -> dict[str, float]:
        """Train; return what was measured from the first to the last step."""
        distributed.barrier()
        self.data, before, begun = 0.0, sent(), time.perf_counter()
        loss = torch.zeros(())
        for epoch in range(self.epochs):
            order = torch.randperm(
                len(self.labels), generator=torch.Generator().manual_seed(100 + epoch)
            )
            for step in range(self.steps):
                loss = self.step(*self.part(order, step))
            if self.rank == 0:
                self.tell({"epoch": epoch + 1, "seconds": time.perf_counter() - begun})
        distributed.barrier()
        seconds, steps = time.perf_counter() - begun, self.epochs * self.steps
        last = loss.clone()
        distributed.all_reduce(last)
        return {
            "seconds": seconds,
            "steps": steps,
            "data_s": self.data / steps,
            "sent_bytes": (sent() - before) / steps,
            "loss": float(last) / self.size,
        }

    def accuracy(self) -> float:
        """Return the share of images that it names right, of those that it has not seen."""
        pixels, labels = images(HELD_OUT, 3)
        right = 0
        with torch.no_grad():
            for begin in range(0, HELD_OUT, 1000):
                guessed = self.network.module(as_input(pixels[begin : begin + 1000])).argmax(1)
                right += int((guessed == labels[begin : begin + 1000]).sum())
        return right / HELD_OUT

    def tell(self, line: dict[str, float]) -> None:
        """Print a line for the table."""
        print(json.dumps(line), flush=True)


def main() -> NoReturn:
    """Train on all nodes of the job, and end the process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=60_000)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=128, help="of each process")
    options = parser.parse_args()
    # Of the shell that started all, else this one's.
    begun = float(os.environ.get("TRAINING_BEGUN", BEGUN))
    distributed.init_process_group("gloo", timeout=timedelta(minutes=5))
    training = Training(options)
    start_up = time.time() - begun
    found = {"nodes": training.size, "start_up_s": start_up, **training.probe(), **training.run()}
    if training.rank == 0:
        sizes = {
            "bytes": sum(4 * value.numel() for value in training.network.parameters()),
            "threads": torch.get_num_threads(),
            "cores": len(os.sched_getaffinity(0)),
            "batch": options.batch,
            "epochs": options.epochs,
            "images": options.images,
        }
        training.tell({**found, **sizes, "accuracy": training.accuracy()})
    distributed.barrier()
    # PyTorch was once seen to hang while it ended its threads.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
