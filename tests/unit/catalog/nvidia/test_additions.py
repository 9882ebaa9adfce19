"""What is installed beside the driver: packages by system and branch, and their repository."""

import pytest

from muster.catalog.nvidia import branches, cdi, dcgm

CUDA = "https://developer.download.nvidia.com/compute/cuda/repos"


@pytest.mark.parametrize(
    ("system", "branch", "cuda", "release"),
    [
        ("debian-12", 470, 11, "debian12"),
        ("debian-12", 535, 12, "debian12"),
        ("debian-12", 575, 12, "debian12"),
        ("debian-12", 580, 13, "debian12"),
        ("debian-12", 595, 13, "debian12"),
        ("ubuntu-22.04", 580, 13, "ubuntu2204"),
        ("ubuntu-24.04", 580, 13, "ubuntu2404"),
    ],
)
def test_dcgm_is_that_of_the_driver_s_cuda(system, branch, cuda, release):
    addition = dcgm(system, branch)
    assert addition is not None
    assert addition.packages == (
        "datacenter-gpu-manager-4-core",
        f"datacenter-gpu-manager-4-cuda{cuda}",
        "datacenter-gpu-manager-4-proprietary",
        f"datacenter-gpu-manager-4-proprietary-cuda{cuda}",
        "datacenter-gpu-manager-exporter",
    )
    assert addition.repository == f"{CUDA}/{release}/x86_64/"
    assert addition.key == f"{CUDA}/{release}/x86_64/cuda-archive-keyring.gpg"


@pytest.mark.parametrize("system", ["debian-12", "ubuntu-22.04", "ubuntu-24.04"])
@pytest.mark.parametrize("source", ["distribution", "nvidia"])
def test_each_driver_has_a_dcgm_where_nvidia_has_packages(system, source):
    assert all(dcgm(system, branch) for branch in branches(system, source))


def test_debian_13_has_none():
    assert dcgm("debian-13", 580) is None


def test_cdi_is_the_toolkit_without_hooks_for_runtimes():
    addition = cdi()
    assert addition.packages == ("nvidia-container-toolkit-base",)
    assert addition.repository == "https://nvidia.github.io/libnvidia-container/stable/deb/amd64/"
    assert addition.key == "https://nvidia.github.io/libnvidia-container/gpgkey"
    # Armored: apt takes it for such by this ending alone.
    assert addition.keyring.endswith(".asc")
