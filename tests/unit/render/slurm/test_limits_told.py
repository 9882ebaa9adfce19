"""What sbatch says of limits, by a real Lua: fields as job_submit_lua.c of slurmctld has them.

Fields of whole numbers that nobody set have NO_VAL there, texts are nil (tags slurm-22-05-8-1 and
slurm-24-11-5-1).
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_job_submit import SUCCESS, TYPED, Slurmctld

from muster.render.slurm import render

NO_VAL, INFINITE = 2**32 - 2, 2**32 - 1
CASES = json.loads((Path(__file__).parent / "cases" / "limit-requests.json").read_text())
UNSET = {
    "user_name": "ada",
    "default_account": "lab-test",
    "default_qos": "normal",
    **dict.fromkeys(["time_limit", "min_nodes", "min_cpus", "num_tasks"], NO_VAL),
}


class Limited(Slurmctld):
    """The same with the partitions that ada may use."""

    def ask(self, fields: dict[str, Any]) -> int:
        asked = {**UNSET, **fields}
        partitions = {
            "ml-cpu": self._job({"name": "ml-cpu", "flag_default": 1}),
            "ml-gpu": self._job({"name": "ml-gpu", "flag_default": 0, "qos": "gpu-nodes"}),
            "two-days": self._job({"name": "two-days", "flag_default": 0, "default_time": 2880}),
            "hour": self._job({"name": "hour", "flag_default": 0, "max_time": 60}),
        }
        job = self._job({key: value for key, value in asked.items() if value is not None})
        submit = self.lua.globals()["slurm_job_submit"]
        code: int = submit(job, self.lua.table_from(partitions), 20001)
        return code


@pytest.fixture
def slurmctld(lab) -> Callable[..., Limited]:
    return lambda change=None: Limited(render(lab(change or CASES["cluster"])).job_submit_lua)


@pytest.mark.parametrize("case", CASES["requests"], ids=lambda case: case["name"])
def test_a_job_is_told_of_the_limit_that_it_is_beyond(slurmctld, case) -> None:
    controller = slurmctld()
    # SLURM refuses, or lets it wait: who changed a limit by hand is not contradicted.
    assert controller.ask(case["job"]) == SUCCESS
    assert controller.logged == []
    assert len(controller.told) == (case["says"] is not None)
    if case["says"]:
        assert controller.told[0].startswith(case["says"])
    if "waits" in case:
        assert controller.told[0].endswith("it waits for ever") == case["waits"]


def test_partitions_of_other_groups_are_neither_told_of_nor_proposed(lab) -> None:
    """slurmctld hands the script those that the user may use (_user_can_use_part)."""
    change = {"partitions": {"staff-cpu": {"nodes": ["cpu"]}, "staff-gpu": {"nodes": ["gpu"]}}}
    controller = Limited(render(lab(change)).job_submit_lua)
    controller.ask({"tres_per_job": "gres/gpu:1"})
    assert controller.told == [
        "partition ml-cpu has no GPUs, and this job asks for 1: ask for --partition=ml-gpu"
    ]
    controller.ask({"tres_per_job": "gres/gpu:1", "partition": "staff-cpu"})
    controller.ask({"mem_per_tres": "gres/gpu:900000", "partition": "staff-gpu"})
    assert len(controller.told) == 1


def test_who_may_use_no_gpus_is_proposed_none(lab) -> None:
    controller = Limited(
        render(lab({"partitions": {"ml-gpu": None, "staff": {"nodes": ["gpu"]}}})).job_submit_lua
    )
    controller.ask({"tres_per_job": "gres/gpu:1"})
    assert controller.told == [
        "partition ml-cpu has no GPUs, and this job asks for 1: ask for none"
    ]


def test_an_unknown_type_is_told_and_no_limit_beside(slurmctld) -> None:
    controller = slurmctld()
    assert controller.ask({"tres_per_job": "gres/gpu:nosuch:99"}) != SUCCESS
    assert len(controller.told) == 1


def test_a_cluster_with_limits_and_no_gpus_has_the_script(lab) -> None:
    change = {
        "nodes": {"gpu": {"gpus": None}},
        "qos": {"normal": {"max_wall": "1-00:00:00"}},
    }
    files = render(lab(change))
    assert "\nJobSubmitPlugins=lua\n" in files.slurm_conf
    controller = Limited(files.job_submit_lua)
    assert controller.ask({"time_limit": 1441}) == SUCCESS
    assert controller.told[0].startswith("QoS normal allows a job at most 1-00:00:00 (MaxWall)")
    controller.ask({"tres_per_job": "gres/gpu:a:1"})
    assert controller.told[-1].endswith("there are no GPUs here, ask for none")


def test_limits_of_accounts_alone_are_told(lab) -> None:
    change: dict[str, Any] = {**TYPED, "accounts": {"LAB-test": {"grp_tres": {"gpu": 1}}}}
    controller = Limited(render(lab(change)).job_submit_lua)
    controller.ask({"tres_per_job": "gres/gpu:2", "partition": "ml-gpu"})
    assert controller.told[0].startswith(
        "account LAB-test allows all of its jobs together at most 1"
    )
    # Without a QoS that has DenyOnLimit SLURM refuses nothing.
    assert controller.told[0].endswith("; as it is, it waits for ever")


def test_a_list_of_several_qos_goes_before_the_only_one_of_the_account_above(lab) -> None:
    """Without a default QoS of its own a job has SLURM's `normal` (assoc_mgr.c)."""
    change = {
        "qos": {"normal": {"max_wall": "1-00:00:00"}, "brief": {"max_wall": "00:10:00"}},
        "accounts": {
            "lab": {"qos": ["brief"]},
            "LAB-test": {"parent": "lab", "qos": ["normal", "brief"]},
        },
    }
    controller = Limited(render(lab(change)).job_submit_lua)
    controller.ask({"time_limit": 60, "default_qos": None})
    assert controller.told == []
    # One that a user has alone goes before all of them.
    change["accounts"]["LAB-test"]["associations"] = {"ada": {"qos": ["brief"]}}
    controller = Limited(render(lab(change)).job_submit_lua)
    controller.ask({"time_limit": 60, "default_qos": None})
    assert controller.told[0].startswith("QoS brief allows a job at most 00:10:00")


def test_where_no_node_has_gpus_the_job_is_told_to_ask_for_none(lab) -> None:
    change = {
        "nodes": {"gpu": {"gpus": None}},
        "accounts": {"LAB-test": {"grp_jobs": 1}},
    }
    controller = Limited(render(lab(change)).job_submit_lua)
    controller.ask({"tres_per_job": "gres/gpu:2"})
    assert controller.told == [
        "partition ml-cpu has no GPUs, and this job asks for 2: ask for none"
    ]


def test_an_error_of_the_script_is_logged_and_refuses_nobody(slurmctld) -> None:
    controller = slurmctld()
    assert controller.ask({"min_nodes": "many"}) == SUCCESS
    assert controller.told == []
    assert len(controller.logged) == 1


@pytest.mark.parametrize(
    ("field", "bound"),
    [
        ("account", 1024),
        ("array_inx", 4096),
        ("mem_per_tres", 1024),
        ("partition", 1024),
        ("qos", 1024),
    ],
)
def test_of_a_text_that_is_longer_than_slurm_takes_nothing_is_told(slurmctld, field, bound) -> None:
    controller = slurmctld()
    asked = {"time_limit": 2880, "qos": "plain", "tres_per_job": "gres/gpu:1"}
    text = "ml-cpu," if field == "partition" else ","
    controller.ask({**asked, field: text.ljust(bound, ",")})
    assert controller.told == [
        "partition ml-cpu has no GPUs, and this job asks for 1: ask for --partition=ml-gpu"
    ]
    controller.ask({**asked, field: text.ljust(bound + 1, ",")})
    assert len(controller.told) == 1
    assert controller.logged == []


@pytest.mark.parametrize("digits", [4000, 10_000])
def test_an_array_of_very_many_digits_takes_no_time(slurmctld, digits) -> None:
    """slurmctld answers nobody while the script runs."""
    controller = slurmctld()
    began = time.process_time()
    for _ in range(10):
        controller.ask({"array_inx": f"1-{'1' * digits}x"})
    assert time.process_time() - began < 0.2
    assert controller.logged == []
