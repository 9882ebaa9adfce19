"""Scheduler profiles: how eagerly SLURM asks for nodes and starts jobs."""

from copy import deepcopy
from typing import Any

import pytest
from confkit import keys

from muster.definition import Definition, validate
from muster.definition.definition import cloud_hosts
from muster.definition.schema.cluster import PACKAGED_SLURM, Cluster
from muster.gcp import builder_vm

CLOUD: dict[str, Any] = {
    "name": "slurm10",
    "os": "debian-12",
    "nodes": {"debug": {"machine_type": "n1-standard-2", "max_nodes": 10}},
    "partitions": {"debug": {"nodes": ["debug"], "default": True, "max_time": "7-00:00:00"}},
    "cloud": {
        "zone": "europe-west4-a",
        "controller": {"machine_type": "n1-standard-2"},
        "login": {"machine_type": "n1-standard-2"},
        "image": {"machine_type": "n1-standard-2"},
    },
}


SYSTEMS = {PACKAGED_SLURM[system]: system for system in builder_vm.BASE}
"""Release of SLURM -> the system whose VMs have it."""


def cloud(version: str = "22.05", profile: str | None = None) -> Definition:
    data = deepcopy(CLOUD) | {"os": SYSTEMS[version]}
    if profile:
        data["scheduling"] = {"profile": profile}
    return validate(data, cloud_hosts(Cluster.model_validate(data)).groups)


def options(definition: Definition) -> list[str]:
    return keys(definition).get("SchedulerParameters", "").split(",")


def test_in_the_cloud_jobs_ask_for_nodes_at_once_and_start_when_these_are_up():
    assert keys(cloud()) == keys(cloud(profile="elastic"))
    assert "batch_sched_delay=0" in options(cloud())
    assert keys(cloud())["PrologSlurmctld"] == "/usr/local/sbin/muster-wait-for-nodes"


def test_a_pass_of_the_scheduler_ends_long_before_clients_give_up():
    limit = dict(o.split("=") for o in options(cloud()) if "=" in o)["max_sched_time"]
    assert int(limit) * 4 < int(keys(cloud())["MessageTimeout"])


def test_many_short_jobs_are_scheduled_together_and_have_no_program_each():
    got = cloud(profile="throughput")
    assert "sched_min_interval=2000000" in options(got)
    assert "batch_sched_delay=0" not in options(got)
    assert "PrologSlurmctld" not in keys(got)


@pytest.mark.parametrize("version", SYSTEMS)
def test_batch_jobs_are_deferred_where_the_release_can_leave_srun_out_of_it(version):
    assert ("defer_batch" in options(cloud(version, "throughput"))) == (version >= "23.02")
    assert "defer" not in options(cloud(version, "throughput"))


@pytest.mark.parametrize("profile", [None, "elastic", "throughput"])
def test_backfill_reaches_people_behind_the_jobs_of_one(profile):
    values = dict(o.split("=") for o in options(cloud(profile=profile)) if "=" in o)
    assert int(values["bf_max_job_user"]) * 10 <= int(values["bf_max_job_test"])
    assert "bf_continue" in options(cloud(profile=profile))


def test_ten_people_can_queue_all_that_they_may(lab):
    most = lab().cluster.scheduling.max_submit_jobs
    assert int(keys(lab())["MaxJobCount"]) >= 10 * most


def test_the_queue_grows_with_people_and_what_they_may_submit(lab):
    everybody = [f"student{number}" for number in range(30)]
    people = {name: {"uid": 30000 + number} for number, name in enumerate(everybody)}

    def places(kinds: dict[str, Any] | None = None, **account: Any) -> int:
        change = {
            "users": {"people": people},
            "accounts": {"class": {"users": everybody, **account}},
            "qos": kinds or {},
        }
        return int(keys(lab(change))["MaxJobCount"])

    assert places() == 70000
    assert places(max_submit_jobs=10) == 20000
    assert places(associations={"student0": {"max_submit_jobs": 12001}}) == 80000
    assert places(max_submit_jobs=9000) == 100000
    # Jobs of a QoS with a bound of its own are not counted for that of the account.
    of_each = {"bulk": {"max_submit_jobs_per_user": 500}}
    assert places(of_each, qos=["normal", "bulk"]) == 80000
    assert places(of_each, qos=["bulk"]) == 20000
    # One bound of all together, or of an account, is one.
    of_account = {"bulk": {"max_submit_jobs_per_account": 30000}}
    assert places(of_account, qos=["bulk"]) == 40000


def test_backfill_looks_30_days_ahead_for_jobs_without_a_limit(lab):
    got = options(lab({"partitions": {"ml-gpu": {"max_time": "UNLIMITED"}}}))
    assert {"bf_window=43200", "bf_resolution=1800"} <= set(got)


def test_of_many_short_jobs_backfill_looks_at_more():
    values = dict(o.split("=") for o in options(cloud(profile="throughput")) if "=" in o)
    # Passes are 30 s apart: hundreds a minute.
    assert int(values["bf_max_job_user"]) * 2 >= 400


@pytest.mark.parametrize("profile", ["elastic", "throughput"])
def test_no_option_stands_twice(profile):
    names = [option.split("=")[0] for option in options(cloud(profile=profile))]
    assert len(names) == len(set(names))


def test_machines_of_ones_own_have_a_profile_only_if_the_definition_says_so(lab):
    assert options(lab()) == [
        *("nohold_on_prolog_fail", "bf_continue", "bf_max_job_test=1000", "bf_max_job_user=50"),
        *("bf_yield_interval=500000", "bf_window=7200", "bf_resolution=300"),
    ]
    assert "batch_sched_delay=0" in options(lab({"scheduling": {"profile": "elastic"}}))
    # Their nodes are always up: there is nothing to wait for.
    assert "PrologSlurmctld" not in keys(lab({"scheduling": {"profile": "elastic"}}))
