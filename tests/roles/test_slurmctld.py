"""slurmctld keeps its queue, and its configuration only changes for one that works."""

import time

import pytest
from waiting import wait_for

ADA = "setpriv --reuid=ada --regid=ada --init-groups --reset-env"


def invocation(host):
    """Return what changes with each start of the unit, and with nothing else.

    The process is no sign: slurmctld from 23.11 on replaces itself when it is reconfigured.
    """
    return host.check_output("systemctl show slurmctld --property=InvocationID")


def name(host):
    return host.check_output("hostname")


def submit(host, *options):
    """Submit a job that sleeps on this host; return its number."""
    return host.check_output(
        f"{ADA} sbatch --parsable --chdir=/tmp --output=/dev/null {' '.join(options)}"
        f" --nodelist={name(host)} --wrap 'sleep 600'"
    )


def state(host, job):
    return host.check_output(f"squeue --noheader --job={job} --format=%T")


@pytest.fixture
def running_job(host):
    job = submit(host)
    try:
        assert wait_for(host, f"squeue --noheader --job={job} --format=%T", "RUNNING") == "RUNNING"
        yield job
    finally:
        host.run(f"scancel --full {job}")
        wait_for(host, "squeue --noheader", "")


def test_a_job_runs(host):
    job = host.run(
        f"{ADA} srun --chdir=/tmp --immediate=30 --nodelist={name(host)}"
        " sh -c 'echo $USER $SLURMD_NODENAME'"
    )
    assert job.rc == 0, job.stderr
    assert job.stdout.split() == ["ada", name(host)]


def test_the_queue_survives_a_kill(host, running_job):
    queued = submit(host)
    # It writes its queue at most five seconds after a change (SAVE_MAX_WAIT in its source).
    time.sleep(6)
    before = invocation(host)
    host.check_output("systemctl kill --signal=KILL --kill-who=main slurmctld")
    up = f"Slurmctld(primary) at {name(host)} is UP"
    assert wait_for(host, "scontrol ping", up) == up
    assert invocation(host) != before
    assert state(host, queued) == "PENDING"
    assert state(host, running_job) == "RUNNING"
    host.check_output(f"scancel {queued}")


def test_slurmctld_does_not_run_as_root(host):
    pid = host.check_output("systemctl show slurmctld --property=MainPID --value")
    assert host.process.get(pid=pid).user == "slurm"


SILENT = """
import socket, time
held = [socket.socket(socket.AF_UNIX) for _ in range(60)]
for one in held:
    one.connect("/run/munge/munge.socket.2")
time.sleep(600)
"""
MUNGED = "/run/muster-munge"
"""Folder of the socket of the munged that users don't reach."""


@pytest.fixture
def busy_munged(host):
    """Have ada hold 60 connections to the munged of all users, which answers nobody meanwhile."""
    host.check_output("systemd-run --unit=silent --uid=ada python3 -c %s", SILENT)
    asked = "timeout 1 munge --no-input >/dev/null; echo $?"
    try:
        assert wait_for(host, asked, "124") == "124"
        yield
    finally:
        host.run("systemctl stop silent")
        assert wait_for(host, asked, "0") == "0"


def in_place_of_munge(host):
    """Return the folder that slurmctld sees as /run/munge."""
    pid = host.check_output("systemctl show slurmctld --property=MainPID --value")
    return host.check_output(f"stat --format=%d:%i /proc/{pid}/root/run/munge")


def test_a_user_who_stops_munged_does_not_stop_slurmctld(host, busy_munged):
    asked = host.run(f"timeout 1 munge --no-input --socket={MUNGED}/munge.socket.2")
    assert asked.rc == 0, asked.stderr
    # As root, by the socket that slurmctld has.
    pid = host.check_output("systemctl show slurmctld --property=MainPID --value")
    ping = host.run(f"timeout 3 nsenter --target={pid} --mount scontrol ping")
    assert ping.stdout == f"Slurmctld(primary) at {name(host)} is UP\n"


def test_a_user_does_not_reach_the_munged_of_slurmctld(host):
    refused = host.run(f"{ADA} munge --no-input --socket={MUNGED}/munge.socket.2")
    assert refused.rc != 0
    assert "Permission denied" in refused.stderr


def test_a_new_munged_leaves_slurmctld_its_own(host):
    """Its folder is mounted over one that the unit of the users' munged makes and removes."""
    own = host.check_output(f"stat --format=%d:%i {MUNGED}")
    started = "systemctl show --property=InvocationID --value muster-munge"
    for commands in ("restart munge", "stop munge; systemctl start munge"):
        before = host.check_output(started)
        host.check_output(f"systemctl {commands}")
        assert in_place_of_munge(host) == own
        # The key may be another one now.
        up = f"[ $({started}) = {before} ] || systemctl is-active muster-munge"
        assert wait_for(host, up, "active") == "active"


def test_the_queue_is_closed_to_others(host):
    refused = host.run(f"{ADA} ls /var/lib/slurm/slurmctld")
    assert "Permission denied" in refused.stderr


def test_a_rotated_log_is_left_and_a_new_one_begun(host):
    host.check_output("logrotate --force /etc/logrotate.d/slurmctld")
    pid = host.check_output("systemctl show slurmctld --property=MainPID --value")
    log = "/var/log/slurm/slurmctld.log"
    assert wait_for(host, f"readlink /proc/{pid}/fd/* | grep {log}", log) == log


def test_the_running_configuration_is_one_that_the_trial_accepts(host):
    tried = host.run("muster-try-slurm-conf /etc/slurm")
    assert (tried.rc, tried.stderr) == (0, "")


IN_ITS_PLACE = r"""#!/bin/sh
# In place of the slurmctld that is tried: an error that says as whom, in which network and from
# which name of a cluster it starts.
networks=$(tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ' | paste -sd ,)
echo "slurmctld: fatal: $(id -un) $networks $(cat "$(dirname "$4")/state/clustername")"
exit 1
"""


@pytest.fixture
def tried(host):
    """What starts, when a configuration is tried."""
    folder = host.check_output("mktemp -d")
    host.check_output(f"printf %%s %s >{folder}/slurmctld", IN_ITS_PLACE)
    host.check_output(f"chmod -R 0755 {folder}")
    yield f"PATH={folder}:$PATH muster-try-slurm-conf /etc/slurm"
    host.check_output(f"rm -r {folder}")


def test_nobody_reaches_the_slurmctld_that_is_tried(host, tried):
    """It is not confined: root of a node, who has the munge key, would run programs by it."""
    said = host.run(tried).stderr
    # From 23.11 on a number follows the cluster's name.
    assert said.startswith("fatal: slurm lo trial"), said
    # Hosts have more networks.
    assert "eth0" in host.check_output("cat /proc/net/dev")


def test_a_link_to_a_file_of_root_s_in_the_queue_gives_nothing_away(host, tried):
    name, secret = "/var/lib/slurm/slurmctld/clustername", "/etc/ssh/muster-secret"
    host.check_output(
        f"echo of-root >{secret}; chmod 0600 {secret}; mv {name} {name}.mine; ln -s {secret} {name}"
    )
    try:
        said = host.run(tried)
    finally:
        host.check_output(f"mv {name}.mine {name}; rm {secret}")
    assert said.rc != 0
    assert "Permission denied" in said.stderr
    assert "of-root" not in said.stderr


def refused_by_the_trial(host, change):
    """Return why the trial refuses the host's files after a change, on a copy."""
    tried = host.run(
        "d=$(mktemp -d); cd $d; cp /etc/slurm/slurm.conf /etc/slurm/gres.conf"
        f" /etc/slurm/cgroup.conf /etc/slurm/job_submit.lua .; {change}; muster-try-slurm-conf $d;"
        " code=$?; rm -r $d;"
        " pgrep -fl '[s]lurmctld -D -c'; exit $code"
    )
    assert (tried.rc, tried.stdout) == (1, "")
    return tried.stderr


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("echo PartitionName=next Nodes=nobody >>slurm.conf", "Invalid node names in partition"),
        ("echo Speed=full >>cgroup.conf", "Parsing error at unrecognized key: Speed"),
    ],
)
def test_the_trial_says_why_it_refuses(host, change, reason):
    assert reason in refused_by_the_trial(host, change)


@pytest.mark.proof("starts slurmctld four times more")
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("echo Speed=full >>slurm.conf", "Parsing error at unrecognized key: Speed"),
        ("sed -i s/^ClusterName=.*/ClusterName=other/ slurm.conf", "CLUSTER NAME MISMATCH"),
        (
            "echo GresTypes=gpu >>slurm.conf; echo Name=gpu Speed=full >>gres.conf",
            "Parsing error at unrecognized key: Speed",
        ),
        ("echo not lua >job_submit.lua", "/etc/slurm/job_submit.lua:1:"),
    ],
)
def test_the_trial_says_why_it_refuses_other_files(host, change, reason):
    assert reason in refused_by_the_trial(host, change)


def refusal(host):
    """Return what the script says of a job that it refuses."""
    said = host.run(f"{ADA} sbatch --chdir=/tmp --comment=no --wrap true")
    assert said.rc != 0, said.stdout
    return said.stderr


def test_the_script_judges_a_job(host):
    assert "refused by the script" in refusal(host)


@pytest.mark.proof("two runs of the role, half a minute")
def test_a_changed_script_judges_the_next_job(host, converge):
    before = invocation(host)
    assert "refused by the script" in refusal(host)
    said = converge("cluster", "--tags=slurmctld_configure", refusal="refused once more")
    try:
        assert "failed=0" in said, said
        assert "refused once more" in refusal(host)
        assert invocation(host) == before
    finally:
        converge("cluster", "--tags=slurmctld_configure")


@pytest.mark.proof("two runs of the role; the lab's partition is changed in `make test`")
def test_a_changed_partition_is_told_to_the_daemon_that_runs(host, converge, running_job):
    before = invocation(host)
    said = converge("cluster", "--tags=slurmctld_configure", max_time="2:00:00")
    try:
        assert "failed=0" in said, said
        assert host.check_output("sinfo --noheader --format=%l") == "2:00:00"
        assert invocation(host) == before
        assert state(host, running_job) == "RUNNING"
    finally:
        converge("cluster", "--tags=slurmctld_configure")


def test_a_refused_configuration_changes_nothing(host, converge):
    before = invocation(host), host.file("/etc/slurm/slurm.conf").sha256sum
    wrong = "PartitionName=next Nodes=nobody"
    said = converge("cluster", "--tags=slurmctld_configure", more=wrong)
    assert "stay as they were" in said
    assert "Invalid node names in partition next" in said
    assert (invocation(host), host.file("/etc/slurm/slurm.conf").sha256sum) == before
    assert "is UP" in host.check_output("scontrol ping")


def reservations(host):
    """Return what slurmctld has: a mapping of words for each, by name."""
    shown = host.check_output("scontrol --oneliner show reservation")
    found = [dict(word.split("=", 1) for word in line.split()) for line in shown.splitlines()]
    return {one["ReservationName"]: one for one in found}


def test_a_reservation_is_as_wanted(host):
    course = reservations(host)["course"]
    assert course["StartTime"] == "2036-01-07T14:00:00"
    assert course["EndTime"] == "2036-01-07T16:00:00"
    assert (course["PartitionName"], course["Users"]) == ("main", "ada")
    assert "MAGNETIC" in course["Flags"].split(",")


@pytest.mark.proof("two runs of the role, half a minute")
def test_a_reservation_is_changed_and_those_of_others_stay(host, converge):
    course = reservations(host)["course"]
    by_hand = "reservation=theirs starttime=2036-02-01T00:00 duration=60 users=alan nodes=ALL"
    host.check_output(f"scontrol create {by_hand}")
    try:
        said = converge("cluster", "--tags=slurmctld_configure", reserved_minutes=90)
        assert "failed=0" in said, said
        assert "for absent people alone, and kept: theirs;" in " ".join(said.split())
        changed = reservations(host)
        assert changed["course"] == course | {
            "EndTime": "2036-01-07T15:30:00",
            "Duration": "01:30:00",
        }
        assert changed["theirs"]["Users"] == "alan"
    finally:
        host.check_output("scontrol delete reservation=theirs")
        said = converge("cluster", "--tags=slurmctld_configure")
    assert "failed=0" in said, said
    assert reservations(host) == {"course": course}


VERSIONS = {"bookworm-ctl": "22.05", "trixie-ctl": "24.11"}
PACKAGES = "slurmctld slurm-client slurm-wlm-basic-plugins"


def version(host, package):
    return host.check_output(f"dpkg-query --show --showformat='${{Version}}' {package}")


def held(host):
    return set(host.check_output("apt-mark showhold").split())


def test_a_package_from_a_file_takes_the_archive_s_place_and_is_held(host):
    from_file = name(host) == "trixie-ctl"
    more = "+0muster1" if from_file else ""
    assert version(host, "slurmctld") == version(host, "slurm-client") + more
    assert held(host) == (set(PACKAGES.split()) if from_file else set())


@pytest.mark.proof("installs packages twice, nearly a minute")
def test_another_package_is_run_at_once_and_the_archive_s_can_come_back(host, converge):
    before, archive_s = invocation(host), version(host, "slurm-client")
    try:
        said = converge("cluster", "--tags=slurmctld", build="muster2")
        assert "failed=0" in said, said
        assert version(host, "slurmctld") == f"{archive_s}+0muster2"
        assert held(host) == set(PACKAGES.split())
        assert invocation(host) != before
        daemon = host.check_output("systemctl show slurmctld --property=MainPID --value")
        assert "deleted" not in host.check_output(f"readlink /proc/{daemon}/exe")
    finally:
        # As the role's README says.
        host.check_output(
            "apt-get install --yes --allow-downgrades --allow-change-held-packages"
            f" slurmctld={archive_s}"
        )
        host.check_output(f"apt-mark unhold {PACKAGES}")
        said = converge("cluster", "--tags=slurmctld")
        assert "failed=0" in said, said
    test_a_package_from_a_file_takes_the_archive_s_place_and_is_held(host)
    assert "is UP" in host.check_output("scontrol ping")


def test_another_version_is_refused_in_a_sentence(host, converge):
    told = converge("cluster", "--check", "--tags=slurmctld_install", slurmctld_version="20.11")
    said = " ".join(told.split())
    assert f"has SLURM {VERSIONS[name(host)]}." in said
    assert "the definition says 20.11; set slurm_version or os in cluster.yml" in said


@pytest.mark.proof("a run of the role, for a rare mistake")
def test_a_package_for_another_version_is_refused(host, converge):
    before = invocation(host), version(host, "slurmctld")
    said = " ".join(converge("cluster", "--tags=slurmctld", build="muster3").split())
    needed = "slurm-client=99.11.0-1 and slurm-wlm-basic-plugins=99.11.0-1"
    assert f"deb needs {needed}; bring" in said
    assert "build it from them (make slurmctld-package)" in said
    assert (invocation(host), version(host, "slurmctld")) == before
