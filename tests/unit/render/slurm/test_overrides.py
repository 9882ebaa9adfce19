"""What a definition may replace of SLURM's parameters, and what stays Muster's."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muster.catalog.slurm_parameters import OWNED, OWNED_IN_CLOUD, RELEASES
from muster.definition import Definition, DefinitionError, validate
from muster.definition.checks import slurm_values
from muster.definition.definition import cloud_hosts
from muster.definition.schema.cluster import PACKAGED_SLURM, Cluster
from muster.gcp import builder_vm
from muster.render.slurm import render
from muster.render.slurm.conf_syntax import parse
from muster.render.slurm.slurm_conf import KEPT_ENTRIES, parameters

VMS: dict[str, Any] = {
    "name": "slurm10",
    "os": "debian-12",
    "nodes": {"fast": {"machine_type": "c2-standard-8", "max_nodes": 2}},
    "partitions": {"fast": {"nodes": ["fast"], "default": True}},
    "cloud": {
        "zone": "europe-west4-a",
        "controller": {"machine_type": "n1-standard-2"},
        "login": {"machine_type": "n1-standard-2"},
        "image": {"machine_type": "n1-standard-2"},
    },
}

FREE = {
    "AccountingStorageTRES": "its entries for GPUs are kept",
    "EnforcePartLimits": "a site's rule for jobs that can never run",
    "GroupUpdateTime": "a pause",
    "HealthCheckInterval": "a pause, at least a second",
    "HealthCheckNodeState": "a site's rule",
    "JobAcctGatherFrequency": "a pause",
    "JobAcctGatherType": "how usage is measured",
    "KillOnBadExit": "a site's rule for steps of which a task fails",
    "MaxArraySize": "a limit",
    "MaxJobCount": "a limit",
    "MessageTimeout": "a limit",
    "PriorityDecayHalfLife": "a site's rule",
    "PriorityType": "a site's rule, as the weights",
    "PriorityWeightAge": "a site's rule",
    "PriorityWeightFairshare": "a site's rule",
    "PropagateResourceLimitsExcept": "a site's rule",
    "RebootProgram": "another way to boot",
    "ResumeRate": "a limit",
    "ResumeTimeout": "a limit: docs/autoscaler.md",
    "ReturnToService": "a site's rule",
    "SchedulerType": "sched/builtin is another order of jobs",
    "SrunPortRange": "ports that a firewall of the site opens",
    "SuspendRate": "a limit",
    "SuspendTimeout": "a limit",
    "TreeWidth": "refused where VMs need Muster's",
    "UnkillableStepTimeout": "a limit",
}
"""Parameters that a definition may replace although Muster sets them, and why that is sound."""


SYSTEMS = {PACKAGED_SLURM[system]: system for system in builder_vm.BASE}
"""Release of SLURM -> the system whose VMs have it."""


def cloud(version: str, **changes: Any) -> Definition:
    data = deepcopy(VMS) | {"os": SYSTEMS[version]} | changes
    return validate(data, cloud_hosts(Cluster.model_validate(data)).groups)


def free(definition: Definition) -> set[str]:
    owned = {**OWNED["slurm.conf"], **(OWNED_IN_CLOUD if definition.cluster.cloud else {})}
    # Refused where Muster sets it: with scratch.
    owned["taskprolog"] = "storage.scratch"
    return {
        name
        for name in parameters(definition)
        if name.lower() not in owned and name not in KEPT_ENTRIES
    }


@pytest.mark.parametrize("version", RELEASES)
def test_what_muster_sets_is_owned_merged_or_replaced_on_purpose(lab, version):
    storage = {"scratch": "/scratch", "private_tmp": version > "21.08"}
    nvidia = {"modules": "open"}
    definitions = [
        lab({"storage": storage, "nvidia": nvidia}, version=version),
        *([cloud(version)] if version in SYSTEMS else []),
    ]
    assert {name for definition in definitions for name in free(definition)} <= set(FREE)


def test_the_weights_that_the_check_adds_are_those_that_are_set(lab):
    set_here = {key.lower(): value for key, value in parameters(lab()).items()}
    assert {key: set_here[key] for key in slurm_values.MUSTER_WEIGHTS} == (
        slurm_values.MUSTER_WEIGHTS
    )
    with_qos = parameters(lab({"qos": {"normal": {"priority": 1}}}))
    assert with_qos["PriorityWeightQOS"] == slurm_values.MUSTER_QOS_WEIGHT


@pytest.mark.parametrize(
    ("key", "value", "written"),
    [
        ("SuspendExcStates", "DRAIN", "DOWN,MAINTENANCE,RESERVED,DRAIN"),
        ("ReconfigFlags", "KeepPartInfo", "KeepPowerSaveSettings,KeepPartInfo"),
    ],
)
def test_an_override_leaves_what_vms_need(key, value, written):
    conf = render(cloud("24.11", slurm={key: value})).slurm_conf
    assert {key: written} in parse(conf)


def scheduler_options(definition: Definition) -> list[str]:
    (line,) = (
        line for line in parse(render(definition).slurm_conf) if "SchedulerParameters" in line
    )
    return line["SchedulerParameters"].split(",")


def test_options_of_the_scheduler_are_added_to_those_of_muster(lab):
    before = scheduler_options(lab())
    assert "bf_continue" in before
    assert scheduler_options(lab({"slurm": {"SchedulerParameters": "defer"}})) == [*before, "defer"]


def test_an_option_of_the_scheduler_replaces_the_one_of_its_name(lab):
    before = scheduler_options(lab())
    after = scheduler_options(lab({"slurm": {"schedulerparameters": "bf_Window=60,bf_interval=9"}}))
    assert set(before) - set(after) == {"bf_window=7200"}
    assert set(after) - set(before) == {"bf_Window=60", "bf_interval=9"}


def test_an_option_of_the_scheduler_is_taken_out_by_a_hyphen(lab):
    given = "-bf_continue,-bf_max_job_user,-nohold_on_prolog_fail"
    before, after = (
        scheduler_options(lab()),
        scheduler_options(lab({"slurm": {"SchedulerParameters": given}})),
    )
    # The last one is what nodes with a broken prolog need.
    assert set(before) - set(after) == {"bf_continue", "bf_max_job_user=50"}
    assert set(after) <= set(before)


def test_vms_keep_the_interval_of_power_saving_unless_it_is_given():
    def options(value: str) -> list[str]:
        definition = cloud("24.11", slurm={"SlurmctldParameters": value})
        conf = parse(render(definition).slurm_conf)
        (line,) = (line for line in conf if "SlurmctldParameters" in line)
        return line["SlurmctldParameters"].split(",")

    assert "power_save_interval=0" in options("rl_enable")
    given = options("rl_enable,power_save_interval=5")
    assert [option for option in given if "interval" in option] == ["power_save_interval=5"]


@given(st.text(st.one_of(st.sampled_from(" \t\n\"'#\\\\={}[],;x1"), st.characters()), max_size=12))
@settings(deadline=None, max_examples=300, suppress_health_check=list(HealthCheck))
def test_a_text_that_is_accepted_is_read_as_it_is_given(lab, value):
    try:
        definition = lab({"slurm": {"InteractiveStepOptions": value}})
    except DefinitionError:
        return
    (read,) = (
        line["InteractiveStepOptions"]
        for line in parse(render(definition).slurm_conf)
        if "InteractiveStepOptions" in line
    )
    assert read == value
