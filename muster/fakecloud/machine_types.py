"""Shapes of predefined machine types.

From https://cloud.google.com/compute/docs/general-purpose-machines, .../compute-optimized-machines
and .../accelerator-optimized-machines; memory there is in GB, which are GiB. Read 2026-11.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shape:
    """`cpus` are vCPUs; `accelerator` is the type of GPU that belongs to the machine, or ""."""

    cpus: int
    memory_mib: int
    shared_cpu: bool = False
    accelerator: str = ""
    accelerators: int = 0


# Family and class -> (memory in MiB per vCPU, numbers of vCPUs there are).
SERIES: dict[str, tuple[float, tuple[int, ...]]] = {
    "n1-standard": (3840, (1, 2, 4, 8, 16, 32, 64, 96)),
    "n1-highmem": (6656, (2, 4, 8, 16, 32, 64, 96)),
    "n1-highcpu": (921.6, (2, 4, 8, 16, 32, 64, 96)),
    "n2-standard": (4096, (2, 4, 8, 16, 32, 48, 64, 80, 96, 128)),
    "n2-highmem": (8192, (2, 4, 8, 16, 32, 48, 64, 80, 96)),
    "n2-highcpu": (1024, (2, 4, 8, 16, 32, 48, 64, 80, 96)),
    "e2-standard": (4096, (2, 4, 8, 16, 32)),
    "e2-highmem": (8192, (2, 4, 8, 16)),
    "e2-highcpu": (1024, (2, 4, 8, 16, 32)),
    "c2-standard": (4096, (4, 8, 16, 30, 60)),
    "c3-standard": (4096, (4, 8, 22, 44, 88, 176)),
    "c3-highmem": (8192, (4, 8, 22, 44, 88, 176)),
    "c3-highcpu": (2048, (4, 8, 22, 44, 88, 176)),
}
A100, L4 = "nvidia-tesla-a100", "nvidia-l4"

SHAPES: dict[str, Shape] = {
    f"{series}-{cpus}": Shape(cpus, int(per_cpu * cpus))
    for series, (per_cpu, sizes) in SERIES.items()
    for cpus in sizes
} | {
    "f1-micro": Shape(1, 614, shared_cpu=True),
    "g1-small": Shape(1, 1740, shared_cpu=True),
    "e2-micro": Shape(2, 1024, shared_cpu=True),
    "e2-small": Shape(2, 2048, shared_cpu=True),
    "e2-medium": Shape(2, 4096, shared_cpu=True),
    **{f"a2-highgpu-{n}g": Shape(12 * n, 87040 * n, False, A100, n) for n in (1, 2, 4, 8)},
    "a2-megagpu-16g": Shape(96, 1392640, False, A100, 16),
    **{
        f"g2-standard-{cpus}": Shape(cpus, 4096 * cpus, False, L4, gpus)
        for cpus, gpus in {4: 1, 8: 1, 12: 1, 16: 1, 24: 2, 32: 1, 48: 4, 96: 8}.items()
    },
}


def shape(machine_type: str) -> Shape | None:
    """The shape of a machine type by name, or None where it isn't known."""
    return SHAPES.get(machine_type)
