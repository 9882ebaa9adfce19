"""The role's variables for a node: the driver of its set, or none."""

from copy import deepcopy
from typing import Any

import pytest

from muster.definition import validate
from muster.definition.definition import cloud_hosts
from muster.definition.schema.cluster import Cluster
from muster.render.nvidia_driver import of_image, variables

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
    return variables(validate(cluster, GROUPS), node_set)


def test_nodes_without_gpus_get_no_driver():
    assert told("cpu", {})["packages"] == []


@pytest.mark.parametrize("node_set", ["cpu", "old", "new"])
def test_a_definition_that_says_nothing_of_nvidia_leaves_drivers_alone(node_set):
    driver_variables = told(node_set, None)
    assert (
        driver_variables["packages"]
        == driver_variables["kernel_packages"]
        == driver_variables["components"]
        == []
    )


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
    definition = validate(cluster, GROUPS)
    assert variables(definition, "new")["mig"] == {"1g.10gb": 7}
    assert variables(definition, "old")["mig"] == {}


def test_without_a_branch_it_is_the_recommended_one():
    driver_variables = told("new", {})
    assert driver_variables["branch"] == 550
    assert driver_variables["module"] == "nvidia-current"
    assert driver_variables["repository"] == ""


def imaged(nvidia: dict[str, Any] | None, *machine_types: str) -> dict[str, Any]:
    """What the image of a cluster in the cloud takes."""
    sets = {
        f"set{n}": {"machine_type": name, "max_nodes": 2} for n, name in enumerate(machine_types)
    }
    cluster: dict[str, Any] = {
        "name": "cloudy",
        "os": "debian-12",
        "nodes": sets,
        "partitions": {"main": {"nodes": [*sets], "default": True}},
        "cloud": {
            "zone": "europe-west4-a",
            **{vm: {"machine_type": "n1-standard-2"} for vm in ("controller", "login", "image")},
        },
    }
    if nvidia is not None:
        cluster["nvidia"] = nvidia
    groups = cloud_hosts(Cluster.model_validate(cluster)).groups
    return of_image(validate(cluster, groups), "cloud-amd64")


def test_an_image_gets_the_driver_for_the_newest_kernel_of_its_flavour():
    driver_variables = imaged({}, "n1-standard-2", "g2-standard-8", "a2-highgpu-1g")
    assert driver_variables["kernel_packages"] == [
        "linux-image-cloud-amd64",
        "linux-headers-cloud-amd64",
        "nvidia-kernel-dkms=535.*",
    ]
    assert (driver_variables["branch"], driver_variables["module"]) == (535, "nvidia-current")
    assert "nvidia-smi=535.*" in driver_variables["packages"]


def test_an_image_has_the_modules_that_are_wanted():
    driver_variables = imaged({"modules": "open"}, "g2-standard-8")
    assert driver_variables["kernel_packages"][-1] == "nvidia-open-kernel-dkms=535.*"


def test_an_image_for_nvswitches_has_their_fabric_manager():
    nvidia = {"source": "nvidia", "branch": 580}
    assert "nvidia-fabricmanager=580.*" in imaged(nvidia, "a3-highgpu-8g")["packages"]
    assert "nvidia-fabricmanager=580.*" not in imaged(nvidia, "a2-highgpu-4g")["packages"]


def test_an_image_without_gpus_has_no_driver():
    driver_variables = imaged(None, "n1-standard-2")
    assert driver_variables["packages"] == driver_variables["kernel_packages"] == []


def added(system: str, nvidia: dict[str, Any]) -> list[dict[str, Any]]:
    cluster = deepcopy(CLUSTER) | {"os": system, "nvidia": nvidia}
    return variables(validate(cluster, GROUPS), "new")["additions"]


def test_dcgm_comes_from_nvidias_repository_and_the_driver_does_not():
    additions = added("debian-12", {"dcgm": True})
    assert [addition["name"] for addition in additions] == ["dcgm"]
    assert additions[0]["repository"].endswith("/debian12/x86_64/")
    assert "datacenter-gpu-manager-4-cuda12" in additions[0]["packages"]


def test_the_repository_of_the_driver_is_not_added_twice():
    additions = added("debian-12", {"source": "nvidia", "branch": 580, "dcgm": True})
    assert additions[0]["repository"] == ""
    assert "datacenter-gpu-manager-4-cuda13" in additions[0]["packages"]


def test_cdi_is_for_all_systems_and_has_a_repository_of_its_own():
    for system, nvidia in (("debian-13", {}), ("debian-12", {"source": "nvidia", "branch": 580})):
        (toolkit,) = added(system, {**nvidia, "cdi": True})
        assert (toolkit["name"], toolkit["repository"] != "") == ("cdi", True)
    both = added("debian-12", {"dcgm": True, "cdi": True})
    assert [addition["name"] for addition in both] == ["dcgm", "cdi"]


def test_nothing_stands_beside_the_driver_unless_it_is_said():
    assert added("debian-12", {}) == []
    assert told("cpu", {})["additions"] == []
