"""GPUs by the names that jobs ask for: their generation, and the drivers that know them.

A committed table, of GPUs in machines with x86 processors. Sources: "CUDA Toolkit, Driver, and
Architecture Matrix" of NVIDIA's data center drivers (docs.nvidia.com/datacenter/tesla/drivers) for
the last branch of a generation and the first CUDA that knows it; the release notes of CUDA for the
driver that came with that CUDA; the chapter "Open Linux Kernel Modules" of the driver's README for
what the open modules can.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal

Modules = Literal["open", "proprietary"]

OPEN_BY_DEFAULT = 560
"""First branch whose open modules NVIDIA installs by default, on GPUs with a display too.

Before, they are of alpha quality on GeForce and workstation cards, and off unless forced.
"""
_OPEN_IN_DATA_CENTERS = 515
_NO_PROPRIETARY = 620
"""Branch from which on there are open modules only (NVIDIA Driver Installation Guide, r620)."""


@dataclass(frozen=True)
class Generation:
    """GPUs that the same drivers know."""

    name: str
    first_branch: int
    last_branch: int | None = None
    """Last branch that knows them; None if new branches still do."""
    modules: tuple[Modules, ...] = ("open", "proprietary")


@dataclass(frozen=True)
class Gpu:
    """A model of GPU."""

    name: str
    generation: Generation
    has_display: bool = False
    """Whether it is a GeForce or workstation card rather than one for data centers."""

    def known_to(self, branch: int) -> bool:
        """Whether drivers of this branch know it."""
        last = self.generation.last_branch
        return self.generation.first_branch <= branch and (last is None or branch <= last)

    def modules(self, branch: int) -> tuple[Modules, ...]:
        """Kernel modules of a branch that it can use, NVIDIA's default first."""
        able: dict[Modules, bool] = {
            "open": branch >= (OPEN_BY_DEFAULT if self.has_display else _OPEN_IN_DATA_CENTERS),
            "proprietary": branch < _NO_PROPRIETARY,
        }
        both: tuple[Modules, ...] = ("open", "proprietary")
        order = both if branch >= OPEN_BY_DEFAULT else both[::-1]
        return tuple(kind for kind in order if able[kind] and kind in self.generation.modules)


# The open modules need the GPU System Processor, which came with Turing.
_KEPLER = Generation("Kepler", 340, 470, ("proprietary",))
_MAXWELL = Generation("Maxwell", 346, 580, ("proprietary",))
_PASCAL = Generation("Pascal", 375, 580, ("proprietary",))
_VOLTA = Generation("Volta", 384, 580, ("proprietary",))
_TURING = Generation("Turing", 410)
_AMPERE = Generation("Ampere", 450)
# Compute capability 8.6 came with CUDA 11.1, 10.3 with CUDA 12.9.
_AMPERE_86 = Generation("Ampere", 455)
_ADA = Generation("Ada", 520)
_HOPPER = Generation("Hopper", 520)
_BLACKWELL = Generation("Blackwell", 570, modules=("open",))
_BLACKWELL_103 = Generation("Blackwell", 575, modules=("open",))

_DATA_CENTER = {
    _KEPLER: "k40 k80",
    _MAXWELL: "m40 m60",
    _PASCAL: "p4 p40 p100",
    _VOLTA: "v100 v100s",
    _TURING: "t4",
    _AMPERE: "a30 a100 a800",
    _AMPERE_86: "a2 a10 a10g a16 a40",
    _ADA: "l4 l20 l40 l40s",
    _HOPPER: "h20 h100 h200 h800",
    _BLACKWELL: "b100 b200",
    _BLACKWELL_103: "b300",
}
_WITH_DISPLAY = {
    _PASCAL: "gtx1060 gtx1070 gtx1080 gtx1080ti titanxp",
    _VOLTA: "titanv",
    _TURING: "rtx2060 rtx2070 rtx2080 rtx2080ti rtx5000 rtx6000 rtx8000 titanrtx",
    _AMPERE_86: "rtx3060 rtx3070 rtx3080 rtx3080ti rtx3090 rtx3090ti a4000 a4500 a5000 a5500 a6000 "
    "rtxa4000 rtxa4500 rtxa5000 rtxa5500 rtxa6000",
    _ADA: "rtx4060 rtx4070 rtx4080 rtx4090 rtx4000ada rtx5000ada rtx6000ada",
    _BLACKWELL: "rtx5060 rtx5070 rtx5080 rtx5090 rtxpro4000 rtxpro5000 rtxpro6000",
}


def _all() -> Iterator[Gpu]:
    for table, has_display in ((_DATA_CENTER, False), (_WITH_DISPLAY, True)):
        for generation, names in table.items():
            for name in names.split():
                yield Gpu(name, generation, has_display)


@cache
def gpus() -> dict[str, Gpu]:
    """Return all known GPUs by name."""
    return {gpu.name: gpu for gpu in _all()}


def named(gpu_type: str) -> Gpu | None:
    """Return the GPU that a type of the definition names, if it is known.

    People write rtx4080, RTX_4080, h100 or nvidia_h100_80gb_hbm3: the model comes first.
    """
    words = re.findall(r"[a-z0-9]+", gpu_type.lower())
    words = [word for word in words if word not in ("nvidia", "tesla", "geforce", "quadro")]
    for length in range(len(words), 0, -1):
        if gpu := gpus().get("".join(words[:length])):
            return gpu
    return None
