"""Into what GPUs can be cut."""

import re

import pytest

from muster.catalog.nvidia import geometries, gpus, named

CUTTABLE = [gpu for gpu in gpus().values() if geometries(gpu)]


def geometry(name: str, profile: str):
    gpu = named(name)
    assert gpu
    return next(known for known in geometries(gpu) or [] if profile in known.profiles)


@pytest.mark.parametrize("gpu", CUTTABLE, ids=lambda gpu: gpu.name)
def test_the_largest_profile_is_the_whole_gpu_and_each_one_fits_alone(gpu):
    for cuts in geometries(gpu):
        *_, (largest, slices) = cuts.profiles.items()
        assert slices.memory == cuts.whole.memory
        assert not cuts.holds({largest: 2})
        assert all(cuts.holds({profile: 1}) for profile in cuts.profiles)


@pytest.mark.parametrize("gpu", CUTTABLE, ids=lambda gpu: gpu.name)
def test_names_say_how_many_slices_of_processors_a_profile_takes(gpu):
    for cuts in geometries(gpu):
        for name, slices in cuts.profiles.items():
            assert re.fullmatch(rf"{slices.compute}g\.\d+gb", name)


# How many at most: the tables of the user guide, "Number of Instances Available".
@pytest.mark.parametrize(
    ("gpu", "profile", "most"),
    [
        *[("h100", profile, most) for profile, most in (("1g.10gb", 7), ("1g.20gb", 4))],
        *[("h100", profile, most) for profile, most in (("2g.20gb", 3), ("3g.40gb", 2))],
        *[("h100", profile, most) for profile, most in (("4g.40gb", 1), ("7g.80gb", 1))],
        *[("a30", profile, most) for profile, most in (("1g.6gb", 4), ("2g.12gb", 2))],
        ("a100", "1g.5gb", 7),
        ("a100", "1g.10gb", 4),  # of the one with 40 GB; of the other it is the smallest
        ("h200", "1g.18gb", 7),
        ("b200", "1g.23gb", 7),
        ("rtxpro6000", "1g.24gb", 4),
    ],
)
def test_as_many_fit_as_nvidia_says(gpu, profile, most):
    cuts = geometry(gpu, profile)
    assert cuts.holds({profile: most})
    assert not cuts.holds({profile: most + 1})


@pytest.mark.parametrize(
    ("layout", "fits"),
    [
        ({"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}, True),
        ({"4g.40gb": 1, "3g.40gb": 1}, True),
        ({"3g.40gb": 1, "1g.10gb": 4}, True),
        # Seven slices of processors, and nine of memory.
        ({"3g.40gb": 2, "1g.10gb": 1}, False),
        ({"4g.40gb": 1, "2g.20gb": 2}, False),
    ],
)
def test_which_profiles_fit_beside_each_other(layout, fits):
    assert geometry("h100", "1g.10gb").holds(layout) is fits


def test_gpus_before_ampere_and_those_for_graphics_have_none():
    for name in ("v100", "t4", "l40s", "a40", "rtx4090"):
        assert geometries(gpus()[name]) == []


def test_of_some_it_is_not_known():
    assert geometries(gpus()["b300"]) is None
