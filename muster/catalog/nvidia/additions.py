"""NVIDIA's software beside the driver: its packages and their repository.

Sources: "Install DCGM" and "Install DCGM Exporter" (docs.nvidia.com/datacenter/dcgm), the list of
the repositories that have DCGM (NVIDIA/cuda-repo-management#41: none for Debian 13), and "CUDA
Compatibility" for the first branch of each CUDA; "Installing the NVIDIA Container Toolkit" and
"Support for Container Device Interface" (docs.nvidia.com/datacenter/cloud-native).
"""

from dataclasses import dataclass

from muster.catalog.nvidia.drivers import NVIDIA_REPOSITORIES


@dataclass(frozen=True)
class Addition:
    """Something that is installed beside the driver."""

    name: str
    packages: tuple[str, ...]
    repository: str
    """URL of the repository that has them; apt takes nothing else from it."""
    key: str
    """URL of its key."""
    keyring: str
    """File on the node that has the key; its ending says in which form (sources.list(5))."""


_DCGM_SYSTEMS = ("debian-12", "ubuntu-22.04", "ubuntu-24.04")
_FIRST_BRANCHES = {13: 580, 12: 525, 11: 450}
"""First branch of the driver whose libcuda is of that CUDA."""


def dcgm(system: str, branch: int) -> Addition | None:
    """Return DCGM with its exporter for a branch of the driver; None if there are no packages."""
    cuda = next((major for major, first in _FIRST_BRANCHES.items() if branch >= first), None)
    if system not in _DCGM_SYSTEMS or cuda is None:
        return None
    repository = f"{NVIDIA_REPOSITORIES}/{system.replace('-', '').replace('.', '')}/x86_64/"
    manager = "datacenter-gpu-manager"
    return Addition(
        "dcgm",
        (
            *(f"{manager}-4-core", f"{manager}-4-cuda{cuda}"),
            # NVIDIA recommends these too: the profiling counters (DCGM_FI_PROF_*), of which the
            # exporter shows some, and further tests.
            *(f"{manager}-4-proprietary", f"{manager}-4-proprietary-cuda{cuda}"),
            f"{manager}-exporter",
        ),
        repository,
        f"{repository}cuda-archive-keyring.gpg",
        "/usr/share/keyrings/cuda-archive-keyring.gpg",
    )


def cdi() -> Addition:
    """Return the part of NVIDIA's container toolkit that writes CDI specifications.

    The rest of it hooks into runtimes that know no CDI.
    """
    toolkit = "https://nvidia.github.io/libnvidia-container"
    return Addition(
        "cdi",
        ("nvidia-container-toolkit-base",),
        # One repository for all systems.
        f"{toolkit}/stable/deb/amd64/",
        f"{toolkit}/gpgkey",
        "/usr/share/keyrings/nvidia-container-toolkit-keyring.asc",
    )
