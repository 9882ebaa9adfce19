"""QoS and shares in slurm.conf: what SLURM needs so that they count, and what a GPU costs."""

import pytest
from hypothesis import given
from test_memory import node_sets, partition

from muster.definition.job_shares import cpus_per_gpu
from muster.render.slurm import render
from muster.render.slurm.conf_syntax import parse
from muster.render.slurm.node_lines import billing_weights

QOS = {"normal": {"priority": 10, "preempt": ["low"]}, "low": {}, "gpus": {}}
ACCOUNTS = {"LAB-test": {"qos": ["normal", "low"]}}


def conf(definition):
    return {
        key: value for line in parse(render(definition).slurm_conf) for key, value in line.items()
    }


def weights(text):
    return {
        name: float(value.rstrip("G"))
        for name, _, value in (entry.partition("=") for entry in text.split(","))
    }


def test_priorities_of_qos_count_and_they_preempt(lab):
    got = conf(lab({"qos": QOS, "accounts": ACCOUNTS, "partitions": {"ml-gpu": {"qos": "gpus"}}}))
    assert got["PreemptType"] == "preempt/qos"
    assert got["PreemptMode"] == "REQUEUE"
    assert got["PriorityWeightQOS"] == "50000"
    # Scripts hear of it.
    assert "preempt_send_user_signal" in got["SlurmctldParameters"].split(",")


def test_without_them_nothing_is_set(lab):
    assert "preempt" not in conf(lab())["SlurmctldParameters"]
    assert not {"PreemptType", "PreemptMode", "PriorityWeightQOS"} & conf(lab()).keys()


def test_half_life_and_arrays_are_what_the_definition_says_below_slurm(lab):
    assert (conf(lab())["PriorityDecayHalfLife"], conf(lab())["MaxArraySize"]) == ("7-0", "1001")
    got = conf(lab({"slurm": {"PriorityDecayHalfLife": "14-0", "MaxArraySize": 101}}))
    assert (got["PriorityDecayHalfLife"], got["MaxArraySize"]) == ("14-0", "101")


def test_a_partition_has_its_qos_and_lists(lab):
    definition = lab(
        {
            "qos": QOS,
            "accounts": ACCOUNTS,
            "partitions": {
                "ml-cpu": {"allow_qos": ["normal", "low"]},
                "ml-gpu": {"qos": "gpus", "deny_qos": ["low"]},
            },
        }
    )
    assert partition(definition, "ml-cpu")["AllowQos"] == "normal,low"
    assert partition(definition, "ml-gpu")["QOS"] == "gpus"
    assert partition(definition, "ml-gpu")["DenyQos"] == "low"


@given(node_sets())
def test_all_of_a_node_costs_the_same_by_cpus_by_memory_and_by_gpus(node):
    free_gib = (node.memory_mib - node.reserved_memory_mib) / 1024
    costs = weights(billing_weights([node]))
    assert costs["CPU"] == 1
    assert costs["Mem"] * free_gib == pytest.approx(node.cpus, rel=0.001)
    assert ("GRES/gpu" in costs) == (node.gpus is not None)
    if node.gpus:
        assert costs["GRES/gpu"] * node.gpus.count == pytest.approx(node.cpus, rel=0.001)
    assert ("GRES/shard" in costs) == bool(node.gpus and node.gpus.shards)
    if "GRES/shard" in costs:
        assert costs["GRES/shard"] * node.gpus.shards == pytest.approx(costs["GRES/gpu"], rel=0.001)


def test_mig_instances_share_what_a_node_costs(lab):
    gpus = {"type": "h100", "mig": {"3g.40gb": 1, "1g.10gb": 4}}
    definition = lab({"nodes": {"gpu": {"gpus": gpus}}, "nvidia": {}})
    # 4 GPUs of 5 instances each, and 48 CPUs.
    assert weights(partition(definition, "ml-gpu")["TRESBillingWeights"])["GRES/gpu"] == 2.4


def test_weights_need_accounting_and_can_be_left_out(lab):
    without = lab({"scheduling": {"billing_weights": False}})
    assert "TRESBillingWeights" not in partition(without, "ml-gpu")
    assert "PriorityFlags" not in conf(without)
    flags = {"scheduling": {"billing_weights": False}, "slurm": {"PriorityFlags": "NO_FAIR_TREE"}}
    assert conf(lab(flags))["PriorityFlags"] == "NO_FAIR_TREE"
    nobody = lab({"accounts": None}, {"database": None})
    assert "TRESBillingWeights" not in partition(nobody, "ml-gpu")


@given(node_sets())
def test_each_gpu_can_have_its_cpus_at_once(node):
    cpus = cpus_per_gpu([node])
    if cpus is not None:
        assert 1 <= cpus * node.gpus.count <= node.cpus
    else:
        assert node.gpus is None or node.gpus.count > node.cpus


@pytest.mark.parametrize(
    ("key", "value", "parameter", "written"),
    [
        ("cpus_per_gpu", 6, "DefCpuPerGPU", "6"),
        ("cpus_per_gpu", 0, "DefCpuPerGPU", None),
        ("max_memory_per_cpu_mib", 3000, "MaxMemPerCPU", "3000"),
        ("max_memory_per_cpu_mib", 0, "MaxMemPerCPU", None),
        ("max_memory_per_cpu_mib", 2000, "DefMemPerCPU", "2000"),
        ("max_memory_per_cpu_mib", 0, "DefMemPerCPU", "2560"),
        # What a job has unasked may not be above the most.
        ("memory_per_cpu_mib", 6000, "MaxMemPerCPU", "6000"),
    ],
)
def test_the_definition_overrides_the_derived_share(lab, key, value, parameter, written):
    definition = lab({"partitions": {"ml-gpu": {key: value}}})
    assert partition(definition, "ml-gpu").get(parameter) == written


def test_all_cpus_may_have_all_memory_also_by_one_thread_of_each_core(lab):
    line = partition(lab({"nodes": {"cpu": {"memory_mib": 122881}}}), "ml-cpu")
    assert int(line["MaxMemPerCPU"]) * 24 >= 122881
