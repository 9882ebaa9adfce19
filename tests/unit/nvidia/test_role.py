"""What the role is told of a node: the driver of its set, or none."""

from copy import deepcopy
from typing import Any

import pytest

from muster.nvidia.role import variables
from muster.wiring import definition_of

GROUPS = {
    "controller": ["access"],
    "database": ["access"],
    "login": ["access"],
    "compute": ["cpu-01", "old-01", "new-01"],
    "cpu": ["cpu-01"],
    "old": ["old-01"],
    "new": ["new-01"],
    "storage": [],
}
SHAPE = {"sockets": 1, "cores_per_socket": 2, "memory_mib": 2048}
CLUSTER: dict[str, Any] = {
    "name": "lab",
    "os": "debian-13",
    "nodes": {
        "cpu": SHAPE,
        "old": {**SHAPE, "gpus": {"count": 2, "type": "v100"}},
        "new": {**SHAPE, "gpus": {"count": 4, "type": "h100"}},
    },
    "partitions": {"main": {"nodes": ["cpu", "old", "new"], "default": True}},
}


def told(node_set: str, nvidia: dict[str, Any] | None) -> dict[str, Any]:
    cluster = deepcopy(CLUSTER)
    if nvidia is not None:
        cluster["nvidia"] = nvidia
    return variables(definition_of(cluster, GROUPS), node_set)


def test_nodes_without_gpus_get_no_driver():
    assert told("cpu", {})["packages"] == []


@pytest.mark.parametrize("node_set", ["cpu", "old", "new"])
def test_a_definition_that_says_nothing_of_nvidia_leaves_drivers_alone(node_set):
    found = told(node_set, None)
    assert found["packages"] == found["kernel_packages"] == found["components"] == []


def test_each_set_gets_the_modules_that_its_gpus_can_use():
    nvidia = {"source": "nvidia", "branch": 580}
    old, new = told("old", nvidia), told("new", nvidia)
    assert old["kernel_packages"][-1] == "nvidia-kernel-dkms=580.*"
    assert new["kernel_packages"][-1] == "nvidia-kernel-open-dkms=580.*"
    assert old["packages"] == new["packages"]
    assert (old["gpus"], new["gpus"]) == (2, 4)


def test_gpus_are_cut_on_the_nodes_whose_set_says_so():
    cluster = deepcopy(CLUSTER)
    cluster["nvidia"] = {"source": "nvidia", "branch": 580}
    cluster["nodes"]["new"]["gpus"]["mig"] = {"1g.10gb": 7}
    definition = definition_of(cluster, GROUPS)
    assert variables(definition, "new")["mig"] == {"1g.10gb": 7}
    assert variables(definition, "old")["mig"] == {}


def test_without_a_branch_it_is_the_recommended_one():
    found = told("new", {})
    assert found["branch"] == 550
    assert found["module"] == "nvidia-current"
    assert found["repository"] == ""
