"""The test job of each partition asks for what its QoS and its own want, and for no more."""

from typing import Any

import pytest

from muster.definition import validate
from muster.render.verify_jobs import verify_jobs

GPU = {"sockets": 1, "cores_per_socket": 8, "memory_mib": 32768}
NODES = {
    "cpu": {"sockets": 1, "cores_per_socket": 4, "memory_mib": 8192},
    "gpu": {**GPU, "gpus": {"count": 4, "type": "a100"}},
}
GROUPS = {
    "controller": ["access"],
    "database": ["access"],
    "compute": ["cpu-01", *(f"gpu-{number:02}" for number in range(1, 9))],
    "cpu": ["cpu-01"],
    "gpu": [f"gpu-{number:02}" for number in range(1, 9)],
}
SMALL = ["--mem=16M", "--cpus-per-task=1"]


def jobs(partition: dict[str, Any], **qos: dict[str, Any]) -> dict[str, Any]:
    """The jobs of all partitions, if that of the GPU nodes and the QoS are so."""
    definition = {
        "name": "lab",
        "os": "debian-12",
        "nodes": NODES,
        "partitions": {
            "small": {"nodes": ["cpu"], "default": True},
            "large": {"nodes": ["gpu"], **partition},
            "all": {"nodes": ["cpu", "gpu"]},
        },
        "qos": qos,
        "accounts": {"all": {"qos": sorted({"normal", *qos} - {"own"})}},
    }
    return verify_jobs(validate(definition, GROUPS))


def job(partition: dict[str, Any], **qos: dict[str, Any]) -> dict[str, Any]:
    """The job of the partition of GPU nodes."""
    return dict(jobs(partition, **qos)["large"])


def test_without_limits_it_is_one_small_job_of_all_nodes() -> None:
    assert job({}) == {"options": SMALL, "least": 1, "most": None, "shared": False}


@pytest.mark.parametrize(
    ("wanted", "options", "least"),
    [
        ({"gpu": 1}, [*SMALL, "--gpus-per-node=1"], 1),
        # More than a node has: of several nodes.
        ({"gpu": 6}, [*SMALL, "--gpus-per-node=4"], 2),
        ({"gpu_types": {"a100": 2}}, [*SMALL, "--gpus-per-node=a100:2"], 1),
        ({"cpu": 4}, ["--mem=16M", "--cpus-per-task=4"], 1),
        ({"memory_mib": 1024}, ["--mem=1024M", "--cpus-per-task=1"], 1),
        ({"node": 3}, SMALL, 3),
    ],
)
def test_it_asks_for_what_the_qos_of_the_partition_wants_at_least(
    wanted: dict[str, Any], options: list[str], least: int
) -> None:
    asked = job({"qos": "own"}, own={"min_tres_per_job": wanted})
    assert asked == {"options": options, "least": least, "most": None, "shared": False}
    # That of its own, which jobs have that name none, counts as well.
    assert job({}, normal={"min_tres_per_job": wanted}) == asked


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        ({"max_tres_per_job": {"node": 2}}, 2),
        ({"max_tres_per_user": {"gpu": 5}}, 2),
        ({"max_tres_per_account": {"cpu": 9}}, 9),
        ({"grp_tres": {"memory_mib": 20000}}, 1250),
        ({"max_tres_per_job": {"gpu_types": {"a100": 7}, "node": 5}}, 5),
        ({"max_tres_per_job": {"node": 0}}, 0),
        ({"max_tres_per_job": {"billing": 3}}, None),
    ],
)
def test_it_is_on_as_many_nodes_as_limits_allow(limits: dict[str, Any], most: int | None) -> None:
    own = {"min_tres_per_job": {"gpu": 2}}
    assert job({"qos": "own"}, own=own, normal=limits)["most"] == most
    assert job({"qos": "own"}, own=own | limits)["most"] == most


@pytest.mark.parametrize(
    ("partition", "most"),
    [
        ({"allow_qos": ["long"]}, 0),
        ({"allow_qos": ["long", "normal"]}, None),
        ({"deny_qos": ["normal"]}, 0),
        ({"deny_qos": ["long"]}, None),
    ],
)
def test_a_partition_that_does_not_take_the_qos_of_root_has_none(
    partition: dict[str, Any], most: int | None
) -> None:
    assert job(partition, long={})["most"] == most


def test_the_qos_of_the_partition_goes_first() -> None:
    own = {"min_tres_per_job": {"gpu": 2}, "max_tres_per_user": {"gpu": 8}}
    normal = {"min_tres_per_job": {"gpu": 3, "cpu": 2}, "max_tres_per_user": {"gpu": 4}}
    asked = job({"qos": "own"}, own=own, normal=normal)
    assert asked["options"] == ["--mem=16M", "--cpus-per-task=2", "--gpus-per-node=2"]
    assert asked["most"] == 4


@pytest.mark.parametrize("limit", [{"grp_tres": {"gpu": 4}}, {"grp_jobs": 4}])
def test_it_may_wait_where_all_jobs_share_a_limit(limit: dict[str, Any]) -> None:
    assert job({"qos": "own"}, own=limit)["shared"]
    assert job({}, normal=limit)["shared"]


def test_what_some_nodes_of_a_partition_do_not_have_no_job_asks_for() -> None:
    wanted = jobs({}, normal={"min_tres_per_job": {"gpu": 1}})
    assert {name: one["most"] for name, one in wanted.items()} == {
        "small": 0,
        "large": None,
        "all": 0,
    }
