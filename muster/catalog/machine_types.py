"""Machine types of Google Compute Engine: what a VM of each has.

A committed table, because the definition is checked and rendered without access to a cloud. Source:
the tables of https://cloud.google.com/compute/docs/general-purpose-machines,
.../compute-optimized-machines and .../accelerator-optimized-machines; the API says the same
(machineTypes.get: guestCpus, memoryMb, accelerators).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from muster.catalog import local_ssds


@dataclass(frozen=True)
class MachineType:
    """One machine type."""

    name: str
    cpus: int
    """Virtual CPUs: hardware threads where `threads_per_core` is 2."""
    memory_mib: int
    """Memory in Google's tables; see `usable_memory_mib`."""
    threads_per_core: int
    gpus: int = 0
    gpu_type: str = ""
    """Accelerator's name in the API, such as nvidia-l4; empty without GPUs."""
    shared_cpu: bool = False
    """Whether its virtual CPUs are only a part of a core's time."""

    @property
    def series(self) -> str:
        """Machine series, such as n1."""
        return self.name.split("-", 1)[0]

    @property
    def short_gpu_type(self) -> str:
        """GPU type as people call it, such as l4; empty without GPUs."""
        return self.gpu_type.removeprefix("nvidia-").removeprefix("tesla-")

    @property
    def has_nvswitches(self) -> bool:
        """Whether NVSwitches join its GPUs, which then compute nothing without a fabric manager.

        Assumed for all whole boards of eight A100 or H100; smaller types have a part of one. Seen
        on Google's VMs: https://github.com/dstackai/dstack/issues/2348
        """
        return self.series in ("a2", "a3") and self.gpus >= 8

    @property
    def usable_memory_mib(self) -> int:
        """Memory that the kernel of such a VM reports, estimated from below.

        Firmware, page tables and the kernel take a fixed part and one that grows with the memory.
        The estimate is below what real VMs had, because slurmd must not report less than
        RealMemory.
        """
        return self.memory_mib - 400 - 30 * (self.memory_mib // 1024)

    @property
    def local_ssds(self) -> int:
        """Local SSDs that each VM of it has."""
        return local_ssds.built_in(self.name)

    @property
    def numbers_of_local_ssds(self) -> tuple[int, ...]:
        """How many local SSDs a VM of it may be given; empty: none."""
        return local_ssds.numbers(self.name, self.cpus)

    @property
    def compact_placement(self) -> bool:
        """Whether a compact placement policy allows it.

        https://cloud.google.com/compute/docs/instances/placement-policies-overview
        """
        return self.series in _COMPACT_PLACEMENT

    @property
    def on_host_maintenance(self) -> str:
        """What Google is asked to do when a VM's host needs maintenance: MIGRATE or TERMINATE.

        Google refuses MIGRATE for a type that can't be moved, and TERMINATE for E2:
        https://cloud.google.com/compute/docs/instances/setting-vm-host-options#limitations
        """
        return "TERMINATE" if self.gpus or self.series in _NOT_MOVED else "MIGRATE"


# H3 is not in Google's list of types that are not moved, but a VM of H3 has a whole host, and
# TERMINATE is refused only for E2.
_NOT_MOVED = ("h3",)
_COMPACT_PLACEMENT = ("a2", "a3", "c2", "c2d", "c3", "c3d", "g2", "h3", "n2", "n2d")


@dataclass(frozen=True)
class _Line:
    """Types that differ in size only."""

    prefix: str
    mib_per_cpu: float
    sizes: tuple[int, ...]
    threads_per_core: int = 2


_N1 = (2, 4, 8, 16, 32, 64, 96)
_N2 = (2, 4, 8, 16, 32, 48, 64, 80, 96)
_N2D = (2, 4, 8, 16, 32, 48, 64, 80, 96)
_C2D = (2, 4, 8, 16, 32, 56, 112)
_C3 = (4, 8, 22, 44, 88, 176)
_LINES = (
    _Line("n1-standard", 3840, (1, *_N1)),
    _Line("n1-highmem", 6656, _N1),
    _Line("n1-highcpu", 921.6, _N1),
    _Line("n2-standard", 4096, (*_N2, 128)),
    _Line("n2-highmem", 8192, _N2),
    _Line("n2-highcpu", 1024, _N2),
    _Line("n2d-standard", 4096, (*_N2D, 128, 224)),
    _Line("n2d-highmem", 8192, _N2D),
    _Line("n2d-highcpu", 1024, (*_N2D, 128, 224)),
    _Line("e2-standard", 4096, (2, 4, 8, 16, 32)),
    _Line("e2-highmem", 8192, (2, 4, 8, 16)),
    _Line("e2-highcpu", 1024, (2, 4, 8, 16, 32)),
    _Line("t2d-standard", 4096, (1, 2, 4, 8, 16, 32, 48, 60), threads_per_core=1),
    _Line("c2-standard", 4096, (4, 8, 16, 30, 60)),
    _Line("c2d-standard", 4096, _C2D),
    _Line("c2d-highmem", 8192, _C2D),
    _Line("c2d-highcpu", 2048, _C2D),
    _Line("c3-standard", 4096, _C3),
    _Line("c3-highmem", 8192, _C3),
    _Line("c3-highcpu", 2048, _C3),
    _Line("h3-standard", 4096, (88,), threads_per_core=1),
)
_GIB = 1024
_SHARED_CORE = (
    MachineType("f1-micro", 1, 614, 1, shared_cpu=True),
    MachineType("g1-small", 1, 1740, 1, shared_cpu=True),
    MachineType("e2-micro", 2, 1024, 2, shared_cpu=True),
    MachineType("e2-small", 2, 2048, 2, shared_cpu=True),
    MachineType("e2-medium", 2, 4096, 2, shared_cpu=True),
)
_WITH_GPUS = (
    MachineType("a2-highgpu-1g", 12, 85 * _GIB, 2, 1, "nvidia-tesla-a100"),
    MachineType("a2-highgpu-2g", 24, 170 * _GIB, 2, 2, "nvidia-tesla-a100"),
    MachineType("a2-highgpu-4g", 48, 340 * _GIB, 2, 4, "nvidia-tesla-a100"),
    MachineType("a2-highgpu-8g", 96, 680 * _GIB, 2, 8, "nvidia-tesla-a100"),
    MachineType("a2-megagpu-16g", 96, 1360 * _GIB, 2, 16, "nvidia-tesla-a100"),
    MachineType("a2-ultragpu-1g", 12, 170 * _GIB, 2, 1, "nvidia-a100-80gb"),
    MachineType("a2-ultragpu-2g", 24, 340 * _GIB, 2, 2, "nvidia-a100-80gb"),
    MachineType("a2-ultragpu-4g", 48, 680 * _GIB, 2, 4, "nvidia-a100-80gb"),
    MachineType("a2-ultragpu-8g", 96, 1360 * _GIB, 2, 8, "nvidia-a100-80gb"),
    MachineType("a3-highgpu-8g", 208, 1872 * _GIB, 2, 8, "nvidia-h100-80gb"),
    MachineType("g2-standard-4", 4, 16 * _GIB, 2, 1, "nvidia-l4"),
    MachineType("g2-standard-8", 8, 32 * _GIB, 2, 1, "nvidia-l4"),
    MachineType("g2-standard-12", 12, 48 * _GIB, 2, 1, "nvidia-l4"),
    MachineType("g2-standard-16", 16, 64 * _GIB, 2, 1, "nvidia-l4"),
    MachineType("g2-standard-24", 24, 96 * _GIB, 2, 2, "nvidia-l4"),
    MachineType("g2-standard-32", 32, 128 * _GIB, 2, 1, "nvidia-l4"),
    MachineType("g2-standard-48", 48, 192 * _GIB, 2, 4, "nvidia-l4"),
    MachineType("g2-standard-96", 96, 384 * _GIB, 2, 8, "nvidia-l4"),
)


def _all() -> Iterator[MachineType]:
    for line in _LINES:
        for cpus in line.sizes:
            # One virtual CPU is one hardware thread, even of a core that has two.
            threads = 1 if cpus == 1 else line.threads_per_core
            memory = round(line.mib_per_cpu * cpus)
            yield MachineType(f"{line.prefix}-{cpus}", cpus, memory, threads)
    yield from _SHARED_CORE
    yield from _WITH_GPUS


@cache
def machine_types() -> dict[str, MachineType]:
    """Return all known machine types by name."""
    return {machine_type.name: machine_type for machine_type in _all()}
