"""Which quotas VMs count for."""

from muster.cloud import quotas


def test_series_have_a_quota_of_their_own_but_for_those_that_share_one():
    assert quotas.cpu_metric("n1-standard-2", {}) == "CPUS"
    assert quotas.cpu_metric("c2-standard-4", {}) == "C2_CPUS"


def test_spot_vms_have_theirs_where_the_project_was_given_one():
    assert quotas.cpu_metric("c2-standard-4", {"PREEMPTIBLE_CPUS"}, spot=True) == "PREEMPTIBLE_CPUS"
    assert quotas.cpu_metric("c2-standard-4", {}, spot=True) == "C2_CPUS"
    assert not quotas.counts("PREEMPTIBLE_CPUS", 0)
    assert quotas.counts("C2_CPUS", 0)
