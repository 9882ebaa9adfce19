"""A cluster in the cloud: nodes that exist while jobs run."""

import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from confkit import keys

from muster.autoscaler.reconcile.observed import Timeouts
from muster.catalog.slurm_parameters import parameters
from muster.definition import Definition, validate
from muster.definition.definition import cloud_hosts
from muster.definition.schema.cluster import PACKAGED_SLURM, Cluster
from muster.gcp import builder_vm
from muster.render.slurm import render
from muster.render.slurm.conf_syntax import parse

NODE = Path(__file__).parents[4] / "roles/cloud_node/files/usr/local/lib/muster/node.py"
CLOUD: dict[str, Any] = {
    "name": "slurm10",
    "os": "debian-12",
    "nodes": {
        "debug": {"machine_type": "n1-standard-2", "max_nodes": 10},
        "fast": {"machine_type": "c2-standard-8", "max_nodes": 2, "idle_seconds": 600},
    },
    "partitions": {
        "debug": {"nodes": ["debug"], "default": True},
        "fast": {"nodes": ["fast"]},
    },
    "cloud": {
        "zone": "europe-west4-a",
        "controller": {"machine_type": "n1-standard-2"},
        "login": {"machine_type": "n1-standard-2"},
        "image": {"machine_type": "n1-standard-2"},
    },
}


SYSTEMS = {PACKAGED_SLURM[system]: system for system in builder_vm.BASE}
"""Release of SLURM -> the system whose VMs have it."""


def cloud(version: str = "22.05", **changes: Any) -> Definition:
    data = deepcopy(CLOUD) | {"os": SYSTEMS[version]} | changes
    return validate(data, cloud_hosts(Cluster.model_validate(data)).groups)


def lines(definition: Definition, first: str) -> list[dict[str, str]]:
    return [line for line in parse(render(definition).slurm_conf) if first in line]


def test_nodes_are_named_after_cluster_and_set_and_counted_from_0():
    assert [line["NodeName"] for line in lines(cloud(), "NodeName")] == [
        "slurm10-debug-[0-9]",
        "slurm10-fast-[0-1]",
    ]


def test_a_node_has_what_its_machine_type_has():
    debug, fast = lines(cloud(), "NodeName")
    assert debug["State"] == "CLOUD"
    assert (debug["CPUs"], debug["CoresPerSocket"], debug["ThreadsPerCore"]) == ("2", "1", "2")
    assert (fast["CPUs"], fast["CoresPerSocket"], fast["ThreadsPerCore"]) == ("8", "4", "2")
    # n1-standard-2 is sold with 7680 MiB.
    assert 6800 < int(debug["RealMemory"]) < 7680


def test_nodes_are_kept_as_long_as_their_set_says():
    assert [line["SuspendTime"] for line in lines(cloud(), "PartitionName")] == ["300", "600"]
    assert keys(cloud())["SuspendTime"] == "INFINITE"


@pytest.mark.parametrize("version", SYSTEMS)
def test_every_parameter_exists_in_the_release(version):
    known = parameters("slurm.conf")
    for key in keys(cloud(version)):
        assert known[key.lower()].first <= version <= known[key.lower()].last, key


@pytest.mark.parametrize("version", SYSTEMS)
def test_what_changed_between_the_releases(version):
    written = keys(cloud(version))
    options = written["SlurmctldParameters"].split(",")
    assert ("cloud_reg_addrs" in options) == (version < "23.11")
    assert ("disable_triggers" in options) == (version >= "23.11")
    assert ("power_save_interval=0" in options) == (version >= "24.05")
    assert (written.get("PrivateData") == "cloud") == (version <= "22.05")
    assert (written.get("TreeWidth") == "65533") == (version < "23.11")
    assert (written.get("ReconfigFlags") == "KeepPowerSaveSettings") == (version >= "23.02")


KEPT = "enable_configless,node_reg_mem_percent=95"


@pytest.mark.parametrize(
    ("version", "options", "private"),
    [
        ("22.05", f"{KEPT},idle_on_node_suspend,cloud_reg_addrs,rl_enable", "cloud,jobs"),
        ("23.11", f"{KEPT},disable_triggers,idle_on_node_suspend,rl_enable", "jobs"),
    ],
)
def test_an_override_leaves_what_nodes_in_the_cloud_need(version, options, private):
    written = keys(
        cloud(version, slurm={"SlurmctldParameters": "rl_enable", "PrivateData": "jobs"})
    )
    assert written["SlurmctldParameters"] == options
    assert written["PrivateData"] == private


def test_a_node_more_needs_a_restart_before_2311_only():
    def more(version: str) -> bool:
        grown = deepcopy(CLOUD["nodes"])
        grown["debug"]["max_nodes"] = 11
        before, after = cloud(version), cloud(version, nodes=grown)
        return render(before).restart.slurmctld != render(after).restart.slurmctld

    assert more("22.05")
    assert not more("23.11")


def test_a_metal_cluster_switches_nothing_off(lab):
    written = keys(lab())
    assert not {"ResumeProgram", "SuspendProgram", "SuspendTime"} & set(written)
    assert "State" not in lines(lab(), "NodeName")[0]


def test_gpus_of_machine_types_are_in_both_files():
    gpus = {"machine_type": "a2-highgpu-4g", "max_nodes": 2}
    definition = cloud("24.11", nodes=CLOUD["nodes"] | {"fast": gpus}, nvidia={})
    node = lines(definition, "NodeName")[1]
    assert (node["Gres"], node["State"]) == ("gpu:a100:4", "CLOUD")
    # slurmctld reads it for nodes in the cloud, which must not have AutoDetect (gres.conf(5)).
    assert parse(render(definition).gres_conf) == [
        {
            "NodeName": "slurm10-fast-[0-1]",
            "Name": "gpu",
            "Type": "a100",
            "File": "/dev/nvidia[0-3]",
        }
    ]


def test_a_node_with_gpus_may_boot_for_longer_than_it_waits_for_its_driver():
    gpus = {"machine_type": "a2-highgpu-4g", "max_nodes": 2}
    definition = cloud("24.11", nodes=CLOUD["nodes"] | {"fast": gpus}, nvidia={})
    [patience] = re.findall(r"^GPUS_S = (\d+)", NODE.read_text(), re.MULTILINE)
    assert Timeouts(resume_s=float(keys(definition)["ResumeTimeout"])).boot_s > int(patience) + 120
    assert keys(cloud("24.11"))["ResumeTimeout"] == "300"


def test_gpus_that_are_attached_are_as_good():
    gpus = {"machine_type": "n1-standard-8", "accelerators": {"type": "t4", "count": 2}}
    fast = gpus | {"max_nodes": 2, "spot": True, "fallback": [{"spot": False}]}
    definition = cloud("24.11", nodes=CLOUD["nodes"] | {"fast": fast}, nvidia={})
    node = lines(definition, "NodeName")[1]
    assert (node["Gres"], node["CPUs"]) == ("gpu:t4:2", "8")
    (gres,) = parse(render(definition).gres_conf)
    assert (gres["Type"], gres["File"]) == ("t4", "/dev/nvidia[0-1]")


@pytest.mark.parametrize(
    ("machine_type", "wanted"),
    [
        ("g2-standard-8", "gpu:l4:1"),
        ("a2-ultragpu-1g", "gpu:a100-80gb:1"),
        ("a3-highgpu-8g", "gpu:h100-80gb:8"),
    ],
)
def test_types_of_gpus_are_called_as_people_do(machine_type, wanted):
    gpus = {"machine_type": machine_type, "max_nodes": 2}
    definition = cloud("24.11", nodes=CLOUD["nodes"] | {"fast": gpus}, nvidia={"source": "nvidia"})
    assert lines(definition, "NodeName")[1]["Gres"] == wanted
