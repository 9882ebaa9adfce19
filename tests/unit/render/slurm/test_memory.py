"""Memory that a job has unasked: never the whole node."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.definition.job_shares import memory_per_cpu_mib, memory_per_gpu_mib
from muster.definition.schema.node_sets import Gpus, Machines
from muster.render.slurm import render
from muster.render.slurm.conf_syntax import parse


def partition(definition, name):
    lines = parse(render(definition).slurm_conf)
    return next(line for line in lines if line.get("PartitionName") == name)


@st.composite
def node_sets(draw):
    cpus = draw(st.integers(1, 256))
    memory = draw(st.integers(512, 2**21))
    gpus = draw(st.integers(0, 8))
    return Machines(
        sockets=1,
        cores_per_socket=cpus,
        memory_mib=memory,
        reserved_memory_mib=draw(st.integers(0, memory // 2)),
        gpus=Gpus(count=gpus) if gpus else None,
    )


@given(st.lists(node_sets(), min_size=1, max_size=4))
def test_every_node_can_give_the_default_to_all_its_cpus_or_gpus(sets):
    per_cpu, per_gpu = memory_per_cpu_mib(sets), memory_per_gpu_mib(sets)
    for node in sets:
        free = node.memory_mib - node.reserved_memory_mib
        assert per_cpu == 1 or per_cpu * node.cpus <= free
        if per_gpu is not None:
            assert per_gpu * node.gpus.count <= free
    assert (per_gpu is None) == any(node.gpus is None for node in sets)
    # And the poorest node has less than one more MiB for each.
    assert min((n.memory_mib - n.reserved_memory_mib) // n.cpus for n in sets) <= per_cpu


def test_the_poorest_node_set_of_a_partition_decides(lab):
    definition = lab(
        {
            "nodes": {"small": {"sockets": 1, "cores_per_socket": 8, "memory_mib": 8192}},
            "partitions": {"mixed": {"nodes": ["cpu", "small"]}},
        },
        {"small": ["small-1"]},
    )
    assert partition(definition, "mixed")["DefMemPerCPU"] == "1024"
    assert partition(definition, "ml-cpu")["DefMemPerCPU"] == "2560"


def test_reserved_memory_is_nobodys(lab):
    definition = lab({"nodes": {"gpu": {"reserved_memory_mib": 4096}}})
    assert partition(definition, "ml-gpu")["DefMemPerCPU"] == str((122880 - 4096) // 48)
    assert partition(definition, "ml-gpu")["DefMemPerGPU"] == str((122880 - 4096) // 4)
    nodes = [line for line in parse(render(definition).slurm_conf) if "NodeName" in line]
    assert [line.get("MemSpecLimit") for line in nodes] == [None, "4096"]


@pytest.mark.parametrize(
    ("key", "parameter"),
    [("memory_per_cpu_mib", "DefMemPerCPU"), ("memory_per_gpu_mib", "DefMemPerGPU")],
)
def test_the_definition_overrides_the_derived_share(lab, key, parameter):
    definition = lab({"partitions": {"ml-gpu": {key: 1234}}})
    assert partition(definition, "ml-gpu")[parameter] == "1234"


def test_a_partition_where_some_nodes_have_no_gpu_has_no_memory_per_gpu(lab):
    definition = lab({"partitions": {"all": {"nodes": ["cpu", "gpu"]}}})
    assert "DefMemPerGPU" not in partition(definition, "all")
