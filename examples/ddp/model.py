"""The model of ddp.py, its loss and its data: here you put your own.

It learns the sum of a point's numbers. Points are from packed.py, or made up.
"""

import itertools
from collections.abc import Generator

import torch  # type: ignore[import-not-found]
from packed import NUMBERS, DataError
from torch import nn

BATCH = 128
"""Points that a process sees in a step."""


def new_model() -> nn.Module:
    """Return a model, the same in all processes."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(NUMBERS, 256), nn.ReLU(), nn.Linear(256, 1))


def loss_of(model: nn.Module, points: torch.Tensor) -> torch.Tensor:
    """Return the loss of a batch."""
    return nn.functional.mse_loss(model(points), points.sum(1, keepdim=True))


def loss_at_the_end(model: nn.Module, device: torch.device) -> float:
    """Return the loss on points that are the same for all: so must it be, as the model is."""
    model.eval()  # without dropout
    points = torch.randn(1024, NUMBERS, generator=torch.Generator().manual_seed(1)).to(device)
    with torch.no_grad():
        return float(loss_of(model, points))


def decoded(samples: list[bytes]) -> torch.Tensor:
    """Return samples of packed data as a batch.

    Raises:
        DataError: they are no points.

    """
    if {len(sample) for sample in samples} != {4 * NUMBERS}:
        raise DataError(
            f"samples are no points of {NUMBERS} numbers: make some (python3 packed.py points "
            "FOLDER), or change decoded() in model.py for your data"
        )
    numbers = torch.frombuffer(bytearray(b"".join(samples)), dtype=torch.float32)
    return numbers.view(-1, NUMBERS)


def made(step: int, place: tuple[int, int]) -> Generator[torch.Tensor, None, None]:
    """Return batches that are made up, each process its own, also after a restart."""
    rank, processes = place
    for number in itertools.count(step):
        source = torch.Generator().manual_seed(number * processes + rank)
        yield torch.randn(BATCH, NUMBERS, generator=source)
