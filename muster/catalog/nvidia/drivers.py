"""Drivers by system, source and branch: the packages, and what apt must know to install them.

Sources: the package indexes of Debian 12 and 13 (contrib, non-free), packages.ubuntu.com for
Ubuntu's server branches, and "NVIDIA Driver Installation Guide" (compute-only installation) for
NVIDIA's repository.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal

from muster.catalog.nvidia.models import Gpu, Modules

Source = Literal["distribution", "nvidia"]

NVIDIA_REPOSITORIES = "https://developer.download.nvidia.com/compute/cuda/repos"


@dataclass(frozen=True)
class Driver:
    """A driver that can be installed.

    In names of packages, {kernel} is the kernel that runs and {flavour} its kind (amd64,
    cloud-amd64, generic, gcp), which only the host knows.
    """

    branch: int
    modules: Modules
    module: str
    """Name of the kernel module's file: in Debian it differs by package."""
    kernel_packages: tuple[str, ...]
    """The kernel modules and what they are built with."""
    packages: tuple[str, ...]
    """Libraries and programs."""
    components: tuple[str, ...] = ()
    """Components of the distribution's archive that have them."""
    repository: str = ""
    """URL of NVIDIA's repository; empty: the packages are the distribution's."""
    fabric_packages: tuple[str, ...] = ()
    """What GPUs behind NVSwitches need besides; empty: the source has no such package."""


# The metapackage of the flavour also installs the headers of each later kernel.
_HEADERS = ("linux-headers-{kernel}", "linux-headers-{flavour}")
_CONTRIB = ("contrib", "non-free", "non-free-firmware")


def _pinned(branch: int, *names: str) -> tuple[str, ...]:
    """Packages whose version is that of the driver."""
    return tuple(f"{name}={branch}.*" for name in names)


def _debian(branch: int) -> Iterator[Driver]:
    """The driver of a Debian release, in parts: `nvidia-driver` itself needs a display server."""
    kinds: tuple[tuple[Modules, str, str], ...] = (
        ("open", "nvidia-open-kernel-dkms", "nvidia-current-open"),
        ("proprietary", "nvidia-kernel-dkms", "nvidia-current"),
    )
    for modules, package, module in kinds:
        libraries = ("libcuda1", "libnvidia-ml1", "libnvidia-cfg1", "libnvidia-nvvm4")
        yield Driver(
            branch,
            modules,
            module,
            (*_HEADERS, *_pinned(branch, package)),
            # The last two have other versions.
            (
                *_pinned(branch, "nvidia-smi", *libraries, "nvidia-cuda-mps"),
                *("nvidia-persistenced", "nvidia-modprobe"),
            ),
            _CONTRIB,
        )


def _debian_tesla(branch: int) -> Iterator[Driver]:
    """An older branch that Debian also keeps, with other names and no open modules."""
    libraries = [f"libnvidia-tesla-{branch}-{part}" for part in ("cuda1", "ml1", "cfg1", "nvvm4")]
    yield Driver(
        branch,
        "proprietary",
        f"nvidia-tesla-{branch}",
        (*_HEADERS, *_pinned(branch, f"nvidia-tesla-{branch}-kernel-dkms")),
        (
            *_pinned(branch, f"nvidia-tesla-{branch}-smi", *libraries),
            *("nvidia-persistenced", "nvidia-modprobe"),
        ),
        _CONTRIB,
    )


def _ubuntu(branch: int) -> Iterator[Driver]:
    """A server branch of Ubuntu: modules built and signed by Ubuntu, one package per flavour."""
    kinds: tuple[tuple[Modules, str], ...] = (("open", "-open"), ("proprietary", ""))
    for modules, suffix in kinds:
        yield Driver(
            branch,
            modules,
            "nvidia",
            (
                *_pinned(branch, f"nvidia-headless-no-dkms-{branch}-server{suffix}"),
                # Its version is the kernel's.
                f"linux-modules-nvidia-{branch}-server{suffix}-{{flavour}}",
            ),
            (*_pinned(branch, f"nvidia-utils-{branch}-server"), "nvidia-modprobe"),
            ("restricted", "multiverse"),
            fabric_packages=_pinned(branch, f"nvidia-fabricmanager-{branch}"),
        )


def _nvidia(release: str, branch: int) -> Iterator[Driver]:
    """A branch of NVIDIA's repository for Debian, without what draws on a screen."""
    kinds: tuple[tuple[Modules, str], ...] = (
        ("open", "nvidia-kernel-open-dkms"),
        ("proprietary", "nvidia-kernel-dkms"),
    )
    # Before 580 the branch is a part of the name.
    fabric = "nvidia-fabricmanager" if branch >= 580 else f"nvidia-fabricmanager-{branch}"
    for modules, package in kinds:
        yield Driver(
            branch,
            modules,
            "nvidia",
            (*_HEADERS, *_pinned(branch, package)),
            _pinned(branch, "nvidia-driver-cuda", "nvidia-persistenced", "nvidia-modprobe"),
            repository=f"{NVIDIA_REPOSITORIES}/{release}/x86_64/",
            fabric_packages=_pinned(branch, fabric),
        )


def _offered() -> Iterator[tuple[str, Source, Driver]]:
    """Every driver; for each system and source the default branch comes first."""
    for system, branch, tesla in (("debian-12", 535, 470), ("debian-13", 550, 535)):
        for driver in (*_debian(branch), *_debian_tesla(tesla)):
            yield system, "distribution", driver
    # Ubuntu's other server branches are transitional packages that install this one.
    for system in ("ubuntu-22.04", "ubuntu-24.04"):
        for driver in _ubuntu(580):
            yield system, "distribution", driver
    # 580 first: supported until 2028, the last one for Volta and older, new enough for Blackwell.
    repository = {"debian-12": (580, 570, 575, 590, 595), "debian-13": (580, 590, 595)}
    for system, numbers in repository.items():
        for number in numbers:
            for driver in _nvidia(system.replace("-", ""), number):
                yield system, "nvidia", driver


@cache
def _drivers(system: str, source: Source) -> dict[int, list[Driver]]:
    by_branch: dict[int, list[Driver]] = {}
    for name, origin, driver in _offered():
        if (name, origin) == (system, source):
            by_branch.setdefault(driver.branch, []).append(driver)
    return by_branch


def branches(system: str, source: Source) -> list[int]:
    """Branches that a source has for a system, the default one first; empty if it has none."""
    return list(_drivers(system, source))


def modules_of(system: str, source: Source, branch: int) -> list[Modules]:
    """Kernel modules that a branch comes with."""
    return [driver.modules for driver in _drivers(system, source).get(branch, ())]


def choose(
    system: str, source: Source, branch: int, modules: Modules | None, gpu: Gpu | None
) -> Driver | None:
    """Return the driver for a GPU; None if there is none, which the definition's checks refuse.

    If `modules` is None it is chosen: what the GPU can use, NVIDIA's default first. For an unknown
    GPU (None) `modules` is taken as it is.
    """
    there = {driver.modules: driver for driver in _drivers(system, source).get(branch, ())}
    able = gpu.modules(branch) if gpu else (modules,)
    if gpu and not gpu.known_to(branch):
        return None
    wanted = [kind for kind in able if kind in there and modules in (None, kind)]
    return there[wanted[0]] if wanted else None


def fitting(system: str, gpu: Gpu) -> list[tuple[Source, Driver]]:
    """All drivers for a GPU on a system, the distribution's first."""
    sources: tuple[Source, ...] = ("distribution", "nvidia")
    choices = [
        (source, choose(system, source, branch, None, gpu))
        for source in sources
        for branch in branches(system, source)
    ]
    return [(source, driver) for source, driver in choices if driver]
