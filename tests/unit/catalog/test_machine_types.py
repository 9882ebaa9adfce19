"""The table of machine types."""

import pytest

from muster.catalog import accelerators
from muster.catalog.machine_types import machine_types


@pytest.mark.parametrize(
    ("name", "cpus", "memory_mib", "threads"),
    [
        # As machineTypes.get says (guestCpus, memoryMb).
        ("n1-standard-1", 1, 3840, 1),
        ("n1-standard-2", 2, 7680, 2),
        ("n1-highcpu-2", 2, 1843, 2),
        ("n1-highmem-96", 96, 638976, 2),
        ("e2-standard-4", 4, 16384, 2),
        ("t2d-standard-8", 8, 32768, 1),
        ("c2-standard-60", 60, 245760, 2),
        ("g2-standard-24", 24, 98304, 2),
    ],
)
def test_shape(name, cpus, memory_mib, threads):
    shape = machine_types()[name]
    assert (shape.cpus, shape.memory_mib, shape.threads_per_core) == (cpus, memory_mib, threads)


def test_every_type_has_whole_cores_and_memory_to_use():
    for machine_type in machine_types().values():
        assert machine_type.cpus % machine_type.threads_per_core == 0, machine_type
        assert 0 < machine_type.usable_memory_mib < machine_type.memory_mib


def test_gpus_are_named():
    assert machine_types()["a2-highgpu-4g"].gpus == 4
    assert all(bool(shape.gpus) == bool(shape.gpu_type) for shape in machine_types().values())


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("n1-standard-2", "MIGRATE"),
        ("c2-standard-60", "MIGRATE"),
        ("e2-standard-4", "MIGRATE"),
        ("h3-standard-88", "TERMINATE"),
        ("a2-highgpu-1g", "TERMINATE"),
        ("a3-highgpu-8g", "TERMINATE"),
        ("g2-standard-4", "TERMINATE"),
    ],
)
def test_what_can_not_be_moved_is_ended_when_its_host_needs_maintenance(name, wanted):
    assert machine_types()[name].on_host_maintenance == wanted


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("n1-standard-1", (1, 2, 3, 4, 5, 6, 7, 8, 16, 24)),
        ("n2-standard-8", (1, 2, 4, 8, 16, 24)),
        ("n2-highmem-16", (2, 4, 8, 16, 24)),
        ("n2-standard-32", (4, 8, 16, 24)),
        ("n2-standard-80", (8, 16, 24)),
        ("n2-standard-128", (16, 24)),
        ("n2d-standard-48", (2, 4, 8, 16, 24)),
        ("n2d-standard-64", (4, 8, 16, 24)),
        ("n2d-standard-224", (8, 16, 24)),
        ("c2-standard-30", (4, 8)),
        ("c2-standard-60", (8,)),
        ("c2d-highcpu-32", (2, 4, 8)),
        ("c2d-standard-112", (8,)),
        ("a2-highgpu-2g", (2, 4, 8)),
        ("g2-standard-24", (2,)),
        ("g2-standard-32", (1,)),
        # Google's list has none of these.
        ("e2-standard-4", ()),
        ("t2d-standard-8", ()),
        ("c3-standard-8", ()),
        ("h3-standard-88", ()),
        ("f1-micro", ()),
        # These have their own.
        ("a2-ultragpu-4g", ()),
        ("a3-highgpu-8g", ()),
    ],
)
def test_how_many_local_ssds_a_type_takes(name, numbers):
    assert machine_types()[name].numbers_of_local_ssds == numbers


def test_types_with_local_ssds_of_their_own():
    own = {name: shape.local_ssds for name, shape in machine_types().items() if shape.local_ssds}
    assert own == {
        "a2-ultragpu-1g": 1,
        "a2-ultragpu-2g": 2,
        "a2-ultragpu-4g": 4,
        "a2-ultragpu-8g": 8,
        "a3-highgpu-8g": 16,
    }
    assert not any(machine_types()[name].numbers_of_local_ssds for name in own)


def test_every_type_of_a_series_that_takes_local_ssds_takes_some():
    for shape in machine_types().values():
        if shape.series in ("n1", "n2", "n2d", "c2", "c2d", "a2", "g2"):
            assert shape.local_ssds or shape.numbers_of_local_ssds, shape


def test_gpus_that_are_attached_make_a_machine_with_gpus():
    shape, plain = accelerators.machine("n1-standard-8", "t4:2"), machine_types()["n1-standard-8"]
    assert shape is not None
    assert (shape.gpus, shape.gpu_type, shape.short_gpu_type) == (2, "nvidia-tesla-t4", "t4")
    assert shape.on_host_maintenance == "TERMINATE"
    assert not shape.compact_placement
    assert shape.numbers_of_local_ssds == plain.numbers_of_local_ssds
    assert accelerators.machine("n1-standard-8") == plain
    assert accelerators.machine("z9-standard-8", "t4:2") is None


def test_more_gpus_never_allow_fewer_cpus_and_all_allow_some_machine_type():
    smallest = machine_types()["n1-standard-1"].cpus
    for kind in accelerators.KINDS:
        most = list(accelerators.most_cpus(kind).values())
        assert most == sorted(most)
        assert most[0] >= smallest
        assert most[-1] == 96, "as the largest of N1 has"


def test_who_takes_gpus():
    takers = {name for name, shape in machine_types().items() if accelerators.taken_by(shape)}
    assert {name.partition("-")[0] for name in takers} == {"n1"}
    assert not [name for name in takers if machine_types()[name].gpus]


def test_how_the_api_s_words_are_written():
    link = "https://www.googleapis.com/compute/v1/projects/p/zones/z/acceleratorTypes/"
    for kind in accelerators.KINDS:
        for text in (accelerators.api_name(kind), link + accelerators.api_name(kind)):
            assert accelerators.of_api(text, 2) == accelerators.written(kind, 2) == f"{kind}:2"
