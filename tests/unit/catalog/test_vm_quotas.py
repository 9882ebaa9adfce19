"""Which quotas VMs count for."""

import pytest

from muster.catalog import accelerators, quotas


def test_series_have_a_quota_of_their_own_but_for_those_that_share_one():
    assert quotas.cpu_metric("n1-standard-2", {}) == "CPUS"
    assert quotas.cpu_metric("c2-standard-4", {}) == "C2_CPUS"


def test_spot_vms_have_theirs_where_the_project_was_given_one():
    assert quotas.cpu_metric("c2-standard-4", {"PREEMPTIBLE_CPUS"}, spot=True) == "PREEMPTIBLE_CPUS"
    assert quotas.cpu_metric("c2-standard-4", {}, spot=True) == "C2_CPUS"
    assert not quotas.counts("PREEMPTIBLE_CPUS", 0)
    assert quotas.counts("C2_CPUS", 0)


def test_a_vm_counts_for_several():
    assert quotas.amounts("c2-standard-4", {}) == {
        "INSTANCES": 1,
        "CPUS_ALL_REGIONS": 4,
        "C2_CPUS": 4,
    }


def test_gpus_have_quotas_those_of_spot_vms_their_own():
    gpu_quotas = {"GPUS_ALL_REGIONS": 2, "NVIDIA_A100_GPUS": 2}
    assert gpu_quotas.items() <= quotas.amounts("a2-highgpu-2g", {}).items()
    known = {"PREEMPTIBLE_NVIDIA_A100_GPUS"}
    spot = quotas.amounts("a2-highgpu-2g", known, spot=True)
    assert spot["PREEMPTIBLE_NVIDIA_A100_GPUS"] == 2
    assert "NVIDIA_A100_GPUS" not in spot
    assert not quotas.counts("PREEMPTIBLE_NVIDIA_A100_GPUS", 0)
    assert quotas.counts("NVIDIA_A100_GPUS", 0)


@pytest.mark.parametrize("kind", accelerators.KINDS)
def test_gpus_that_are_attached_have_quotas_too(kind):
    metric = f"NVIDIA_{kind.upper()}_GPUS"
    wanted = {"CPUS": 8, "CPUS_ALL_REGIONS": 8, "GPUS_ALL_REGIONS": 2, metric: 2, "INSTANCES": 1}
    assert quotas.amounts("n1-standard-8", {}, gpus=f"{kind}:2") == wanted
    spot_metric = f"PREEMPTIBLE_{metric}"
    spot = quotas.amounts("n1-standard-8", {spot_metric}, spot=True, gpus=f"{kind}:2")
    assert spot[spot_metric] == 2
    assert metric not in spot


def test_gpus_without_a_regional_metric_count_in_all_regions_together():
    assert quotas.amounts("a3-highgpu-8g", {})["GPUS_ALL_REGIONS"] == 8
    assert not [metric for metric in quotas.amounts("a3-highgpu-8g", {}) if "NVIDIA" in metric]


def test_local_ssds_have_a_quota_those_of_spot_vms_their_own():
    assert quotas.local_ssd_metric({}) == "LOCAL_SSD_TOTAL_GB"
    spot_metric = "PREEMPTIBLE_LOCAL_SSD_GB"
    assert quotas.local_ssd_metric({}, spot=True) == "LOCAL_SSD_TOTAL_GB"
    assert quotas.local_ssd_metric({spot_metric}) == "LOCAL_SSD_TOTAL_GB"
    assert quotas.local_ssd_metric({spot_metric}, spot=True) == spot_metric
