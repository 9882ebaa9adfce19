"""MIG: the instances that a GPU can be cut into.

A committed table. Source: the chapters "Supported GPUs" and "Supported MIG Profiles" of NVIDIA's
Multi-Instance GPU User Guide. Without the profiles with media engines or graphics (+me, +gfx):
SLURM can't have a type with such a name.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from muster.catalog.nvidia.models import Gpu


@dataclass(frozen=True)
class Slices:
    """What a profile takes of a GPU, or what a GPU has."""

    compute: int
    memory: int


@dataclass(frozen=True)
class Geometry:
    """How one GPU with a certain memory can be cut."""

    whole: Slices
    profiles: Mapping[str, Slices]

    def holds(self, layout: Mapping[str, int]) -> bool:
        """Whether instances of these profiles have room beside each other."""
        taken = [(self.profiles[profile], number) for profile, number in layout.items()]
        compute = sum(slices.compute * number for slices, number in taken)
        memory = sum(slices.memory * number for slices, number in taken)
        return compute <= self.whole.compute and memory <= self.whole.memory


def _sevenths(*names: str) -> Geometry:
    """GPUs with 7 slices of processors and 8 of memory; names from the smallest on."""
    sizes = ((1, 1), (1, 2), (2, 2), (3, 4), (4, 4), (7, 8))
    cuts = {name: Slices(*size) for name, size in zip(names, sizes, strict=True)}
    return Geometry(Slices(7, 8), cuts)


def _quarters(*names: str) -> Geometry:
    cuts = {name: Slices(size, size) for name, size in zip(names, (1, 2, 4), strict=True)}
    return Geometry(Slices(4, 4), cuts)


_40_GB = _sevenths("1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb")
_80_GB = _sevenths("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")
_94_GB = _sevenths("1g.12gb", "1g.24gb", "2g.24gb", "3g.47gb", "4g.47gb", "7g.94gb")
_96_GB = _sevenths("1g.12gb", "1g.24gb", "2g.24gb", "3g.48gb", "4g.48gb", "7g.96gb")
_141_GB = _sevenths("1g.18gb", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb")
_180_GB = _sevenths("1g.23gb", "1g.45gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb")

_GEOMETRIES = {
    "a30": [_quarters("1g.6gb", "2g.12gb", "4g.24gb")],
    "a100": [_40_GB, _80_GB],
    "a800": [_40_GB, _80_GB],
    "h20": [_96_GB],
    "h100": [_80_GB, _94_GB, _96_GB],
    "h800": [_80_GB],
    "h200": [_141_GB],
    "b200": [_180_GB],
    "rtxpro6000": [_quarters("1g.24gb", "2g.48gb", "4g.96gb")],
}
_PERHAPS = ("b100", "b300", "rtxpro4000", "rtxpro5000")
"""GPUs that have MIG, at least some models of that name; their profiles are not in the table."""


def geometries(gpu: Gpu) -> list[Geometry] | None:
    """Return how a GPU can be cut, by its memory; empty: not at all; None: not known."""
    return None if gpu.name in _PERHAPS else _GEOMETRIES.get(gpu.name, [])
