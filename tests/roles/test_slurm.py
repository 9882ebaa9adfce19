"""A host without a SLURM daemon of its own can use the cluster."""

VERSIONS = {"bookworm": "22.05", "trixie": "24.11"}


def release(host):
    return host.check_output("hostname").removesuffix("-ctl")


def is_login(host):
    """Whether the host got the role; the others are the controllers."""
    return host.check_output("hostname") in VERSIONS


def test_the_commands_reach_the_controller(host):
    pinged = host.run("scontrol ping")
    assert pinged.stdout == f"Slurmctld(primary) at {release(host)}-ctl is UP\n", pinged.stderr


def test_a_job_can_be_submitted_from_here(host):
    job = host.run("srun --chdir=/ --immediate=30 hostname")
    assert (job.rc, job.stdout) == (0, f"{release(host)}-ctl\n"), job.stderr


def test_the_configuration_is_fetched_where_sackd_exists(host):
    places = ("/run/slurm/conf/slurm.conf", "/etc/slurm/slurm.conf")
    existing = [place for place in places if host.file(place).exists]
    fetched = is_login(host) and release(host) == "trixie"
    assert existing == [places[0] if fetched else places[1]]
    assert "ClusterName=trial" in host.file(existing[0]).content_string


def test_the_host_has_the_version_of_the_definition(host):
    _, version = host.check_output("sinfo --version").split()
    assert version.startswith(f"{VERSIONS[release(host)]}.")


def test_another_version_is_refused_in_a_sentence(host, converge):
    version = "20.11"
    role = "slurm" if is_login(host) else "slurmctld"
    variables = {f"{role}_version": version}
    said = " ".join(converge("slurm", "--check", f"--tags={role}_install", **variables).split())
    assert f"has SLURM {VERSIONS[release(host)]}." in said
    assert f"the definition says {version}; set slurm_version or os in cluster.yml" in said
