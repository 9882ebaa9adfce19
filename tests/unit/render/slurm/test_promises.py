"""What slurm.conf promises on each node, added up: never more memory, CPUs or GPUs than it has."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.catalog.hostlists import expand
from muster.definition import Definition, load
from muster.definition.job_shares import cpus_per_gpu
from muster.definition.schema.node_sets import Gpus, Machines
from muster.render.slurm import render
from muster.render.slurm.conf_syntax import parse

ROOT = Path(__file__).parents[4]


def lines(definition: Definition, key: str) -> list[dict[str, str]]:
    return [line for line in parse(render(definition).slurm_conf) if key in line]


def gres(node: dict[str, str], name: str) -> int:
    """How many of a GRES a node line has, of all types."""
    entries = [entry.split(":") for entry in node.get("Gres", "").split(",")]
    return sum(int(entry[-1]) for entry in entries if entry[0] == name)


def overcommitted(definition: Definition) -> list[str]:
    """Each promise of a partition that one of its nodes can't keep to all its CPUs or GPUs."""
    nodes = {
        name: line for line in lines(definition, "NodeName") for name in expand(line["NodeName"])
    }
    broken = []
    for partition in lines(definition, "PartitionName"):
        for name in expand(partition["Nodes"]):
            node = nodes[name]
            cpus, gpus = int(node["CPUs"]), gres(node, "gpu")
            memory = int(node["RealMemory"]) - int(node.get("MemSpecLimit", 0))
            promised = {
                "memory of all CPUs": (int(partition["DefMemPerCPU"]) * cpus, memory),
                "memory of all GPUs": (int(partition.get("DefMemPerGPU", 0)) * gpus, memory),
                "CPUs of all GPUs": (int(partition.get("DefCpuPerGPU", 0)) * gpus, cpus),
            }
            broken += [
                f"{partition['PartitionName']}: {name}: {what}: {sum_} of {there}"
                for what, (sum_, there) in promised.items()
                if sum_ > there
            ]
    return broken


@pytest.mark.parametrize("inventory", ["lab", "demo", "cloud"])
def test_no_node_of_our_inventories_is_promised_twice(inventory):
    assert overcommitted(load(ROOT / "inventories" / inventory)) == []


def test_what_is_promised_twice_is_noticed(lab):
    # 4 GPUs of 40 CPUs each on a node of 48: the definition may say so, and then SLURM lets fewer
    # of these jobs run at once.
    assert overcommitted(lab({"partitions": {"ml-gpu": {"cpus_per_gpu": 40}}})) == [
        f"ml-gpu: lab-gpu-0{number}: CPUs of all GPUs: 160 of 48" for number in (1, 2)
    ]


@given(
    st.lists(
        st.tuples(st.integers(1, 256), st.integers(1, 16)).map(
            lambda counts: Machines(
                sockets=1,
                cores_per_socket=counts[0],
                memory_mib=4096,
                gpus=Gpus(count=counts[1]),
            )
        ),
        min_size=1,
        max_size=4,
    )
)
def test_every_node_has_the_cpus_of_all_its_gpus(sets):
    each = cpus_per_gpu(sets) or 0
    assert all(each * node.gpus.count <= node.cpus for node in sets)


@pytest.mark.parametrize("consumable", ["cpu", "core"])
def test_memory_is_counted_and_nothing_is_shared_unless_the_definition_says_so(lab, consumable):
    definition = lab({"scheduling": {"consumable": consumable}})
    (parameter,) = lines(definition, "SelectTypeParameters")
    # Without `Memory` jobs get memory that others have already.
    assert parameter["SelectTypeParameters"].endswith("_Memory")
    # OverSubscribe: SLURM's default is NO, by which `sbatch --oversubscribe` shares nothing.
    assert all("OverSubscribe" not in line for line in lines(definition, "PartitionName"))
    assert all("shard" not in line.get("Gres", "") for line in lines(definition, "NodeName"))
    assert lines(definition, "GresTypes") == [{"GresTypes": "gpu"}]


def test_shards_are_there_where_the_definition_has_them(lab):
    definition = lab({"nodes": {"gpu": {"gpus": {"shards": 2}}}})
    with_gpus = [line for line in lines(definition, "NodeName") if "Gres" in line]
    assert [gres(line, "shard") for line in with_gpus] == [8]
    # Not the nodes of one without GPUs.
    assert len(with_gpus) == 1
