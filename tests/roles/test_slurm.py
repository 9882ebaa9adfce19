"""A host without a SLURM daemon of its own can use the cluster."""

import pytest
from waiting import wait_for

VERSIONS = {"bookworm": "22.05", "trixie": "24.11"}


def release(host):
    return host.check_output("hostname").removesuffix("-login")


def test_the_commands_reach_the_controller(host):
    pinged = host.run("scontrol ping")
    assert pinged.stdout == f"Slurmctld(primary) at {release(host)}-ctl is UP\n", pinged.stderr


def test_a_job_can_be_submitted_from_here(host):
    node = f"{release(host)}-ctl"
    job = host.run(f"srun --chdir=/ --immediate=30 --nodelist={node} hostname")
    assert (job.rc, job.stdout) == (0, f"{node}\n"), job.stderr


def test_the_configuration_is_fetched_where_sackd_exists(host):
    places = ("/run/slurm/conf/slurm.conf", "/etc/slurm/slurm.conf")
    existing = [place for place in places if host.file(place).exists]
    assert existing == [places[0] if release(host) == "trixie" else places[1]]
    assert "ClusterName=trial" in host.file(existing[0]).content_string


def test_only_the_controller_sends_files_to_sackd(host):
    """Root of each node has the munge key, and so could send plugins for the commands here."""
    own = f"timeout 5 bash -c '</dev/tcp/{release(host)}-login/6818'"
    assert "Connection refused" in host.run(own).stderr
    if release(host) == "trixie":
        assert host.check_output("ss -Hltn 'sport = :6818'")
        file = "/run/slurm/conf/slurm.conf"
        host.check_output(f"touch --date=2001-01-01 {file}; scontrol reconfigure")
        assert wait_for(host, f"find {file} -newermt 2002-01-01", file) == file


@pytest.mark.parametrize("loss", ["nft flush ruleset", "nft delete table inet muster_sackd"])
def test_rules_that_are_lost_are_loaded_again(host, loss):
    if release(host) != "trixie":
        # Without sackd there is nothing to keep.
        assert host.run("systemctl cat muster-sackd-keeper").rc != 0
        return
    rules = "nft list table inet muster_sackd"
    before = host.check_output(rules)
    assert "tcp dport 6818" in before
    host.check_output(loss)
    assert wait_for(host, rules, before, 5) == before
    assert host.service("muster-sackd-keeper").is_enabled


def test_the_host_has_the_version_of_the_definition(host):
    _, version = host.check_output("sinfo --version").split()
    assert version.startswith(f"{VERSIONS[release(host)]}.")


@pytest.mark.proof("a run of the role; slurmctld's role says the same in `make test`")
def test_another_version_is_refused_in_a_sentence(host, converge):
    version = "20.11"
    said = " ".join(
        converge("cluster", "--check", "--tags=slurm_install", slurm_version=version).split()
    )
    assert f"has SLURM {VERSIONS[release(host)]}." in said
    assert f"the definition says {version}; set slurm_version or os in cluster.yml" in said
