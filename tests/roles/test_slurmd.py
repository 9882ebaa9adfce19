"""slurmd runs jobs, keeps them over its own restart, and has its configuration from one place."""

import pytest
from waiting import wait_for

ADA = "setpriv --reuid=ada --regid=ada --init-groups --reset-env"
MOUNT = "/run/systemd/system/srv-trial.mount"


def is_configless(host):
    """Whether the host is no controller."""
    return not host.check_output("hostname").endswith("-ctl")


def node_state(host, wanted):
    """Wait until the controller says that this node is `wanted`; return what it says."""
    node = host.check_output("hostname")
    return wait_for(host, f"sinfo --noheader --nodes={node} --format=%T", wanted)


@pytest.fixture
def running_job(host):
    """A job on this node; its number."""
    node = host.check_output("hostname")
    assert node_state(host, "idle") == "idle"
    job = host.check_output(
        f"{ADA} sbatch --parsable --chdir=/tmp --output=/dev/null --nodelist={node}"
        " --wrap 'sleep 600'"
    )
    try:
        assert wait_for(host, f"squeue --noheader --job={job} --format=%T", "RUNNING") == "RUNNING"
        assert wait_for(host, "pgrep -cx sleep", "1") == "1"
        yield job
    finally:
        host.run(f"scancel --full {job}")
        wait_for(host, f"squeue --noheader --job={job}", "")


@pytest.fixture
def missing_mount(host):
    """A mount that slurmd_mounts names, and that fails."""
    unit = "[Mount]\\nWhat=nowhere\\nWhere=/srv/trial\\nType=nosuchfs\\n"
    host.check_output(f"printf '{unit}' >{MOUNT} && systemctl daemon-reload")
    yield
    host.check_output(f"rm {MOUNT} && systemctl daemon-reload && systemctl start slurmd")


def test_slurmd_has_opened_the_library_of_mpi(host):
    # Only at its start, and without it `srun --mpi=pmix` ends after a minute with a timeout.
    assert "libpmix.so" in host.check_output("cat /proc/$(pidof -s slurmd)/maps")


def test_a_job_runs_here(host):
    node = host.check_output("hostname")
    job = host.run(
        f"{ADA} srun --chdir=/tmp --immediate=30 --nodelist={node}"
        " sh -c 'echo $USER $SLURMD_NODENAME'"
    )
    assert job.rc == 0, job.stderr
    assert job.stdout.split() == ["ada", node]


def test_a_batch_script_can_call_srun(host):
    node = host.check_output("hostname")
    output = f"/tmp/{node}.out"
    done = host.run(
        f"timeout 60 {ADA} sbatch --wait --chdir=/tmp --output={output} --nodelist={node}"
        " --wrap 'srun hostname'"
    )
    said = host.run(f"cat {output}").stdout
    host.run(f"rm {output}")
    assert (done.rc, said) == (0, f"{node}\n"), done.stderr + said


def test_the_configuration_comes_from_one_place(host):
    places = ("/run/slurm/conf/slurm.conf", "/etc/slurm/slurm.conf")
    existing = [place for place in places if host.file(place).exists]
    assert existing == [places[0] if is_configless(host) else places[1]]
    assert "ClusterName=trial" in host.file(existing[0]).content_string


def test_a_running_job_survives_a_restart_of_slurmd(host, running_job):
    before = host.check_output("pgrep -x sleep")
    host.check_output("systemctl restart slurmd")
    assert node_state(host, "allocated") == "allocated"
    assert host.check_output("pgrep -x sleep") == before
    assert host.check_output(f"squeue --noheader --job={running_job} --format=%T") == "RUNNING"


@pytest.mark.proof("kills a daemon and waits for systemd")
def test_a_killed_slurmd_comes_back(host, running_job):
    host.check_output("systemctl kill --signal=KILL --kill-who=main slurmd")
    properties = "systemctl show slurmd --property=SubState --value"
    assert wait_for(host, properties, "auto-restart", seconds=5) == "auto-restart"
    assert wait_for(host, properties, "running") == "running"
    assert host.check_output(f"squeue --noheader --job={running_job} --format=%T") == "RUNNING"


def test_slurmd_does_not_start_without_a_mount_that_jobs_need(host, missing_mount):
    refused = host.run("systemctl restart slurmd")
    assert refused.rc != 0
    assert host.service("slurmd").is_running is False


def test_a_rotated_log_is_left_and_a_new_one_begun(host):
    host.check_output("logrotate --force /etc/logrotate.d/slurmd")
    # It may just have been started again.
    pid = "$(systemctl show slurmd --property=MainPID --value)"
    log = "/var/log/slurm/slurmd.log"
    # slurmd heeds the signal when it next hears from somebody, if another of its threads got it.
    opened = f"scontrol show slurmd >/dev/null; readlink /proc/{pid}/fd/* | grep {log}"
    assert wait_for(host, opened, log) == log


def test_a_node_has_no_daemon_that_it_does_not_need(host, roles):
    enabled = host.check_output(
        "systemctl list-unit-files --state=enabled --type=service --plain --no-legend"
    )
    daemons = {"slurmctld", "slurmdbd", "slurmrestd", "sackd"}
    names = {line.split()[0].removesuffix(".service") for line in enabled.splitlines()}
    assert names & daemons == roles & daemons
