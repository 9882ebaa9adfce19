"""Which GPU a type names, and which drivers know it."""

import pytest

from muster.catalog.nvidia import gpus, named


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("rtx4080", "rtx4080"),
        ("RTX_4080", "rtx4080"),
        ("geforce-rtx-4080", "rtx4080"),
        ("h100", "h100"),
        ("nvidia_h100_80gb_hbm3", "h100"),
        ("Tesla-V100-SXM2-16GB", "v100"),
        ("a100-80gb", "a100"),
        ("l40s", "l40s"),
        # Accelerators as Google calls them.
        ("nvidia-tesla-t4", "t4"),
        ("nvidia-tesla-a100", "a100"),
        ("nvidia-h100-80gb", "h100"),
        ("rtx_6000_ada", "rtx6000ada"),
        ("rtx6000", "rtx6000"),
    ],
)
def test_a_type_names_a_gpu(written, name):
    gpu = named(written)
    assert gpu
    assert gpu.name == name


@pytest.mark.parametrize(
    "written", ["", "a1000", "mi300x", "h", "h1000", "rtx", "nvidia", "1g.10gb"]
)
def test_what_is_no_known_gpu_is_not_taken_for_one(written):
    assert named(written) is None


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        ("k80", 340, 470),
        ("p100", 375, 580),
        ("v100", 384, 580),
        ("t4", 410, None),
        ("a100", 450, None),
        ("a40", 455, None),
        ("l4", 520, None),
        ("rtx4080", 520, None),
        ("h100", 520, None),
        ("b200", 570, None),
        ("rtx5090", 570, None),
        ("b300", 575, None),
    ],
)
def test_branches_that_know_a_gpu(name, first, last):
    gpu = gpus()[name]
    assert gpu.known_to(first)
    assert not gpu.known_to(first - 1)
    assert gpu.known_to(last or 999)
    assert last is None or not gpu.known_to(last + 1)


@pytest.mark.parametrize(
    ("name", "branch", "modules"),
    [
        ("v100", 580, ("proprietary",)),
        ("t4", 470, ("proprietary",)),
        ("t4", 535, ("proprietary", "open")),
        ("h100", 550, ("proprietary", "open")),
        ("h100", 580, ("open", "proprietary")),
        ("h100", 620, ("open",)),
        # Alpha quality on cards with a display, and off unless forced.
        ("rtx4080", 550, ("proprietary",)),
        ("rtx4080", 580, ("open", "proprietary")),
        ("b200", 580, ("open",)),
        ("rtx5090", 580, ("open",)),
    ],
)
def test_modules_that_a_gpu_can_use_the_default_first(name, branch, modules):
    assert gpus()[name].modules(branch) == modules
