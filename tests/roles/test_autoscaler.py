"""slurmctld's calls reach the daemon, which works in its sandbox and is restarted after a kill.

SLURM is real; in the daemon's place is molecule/autoscaler/daemon.py, which releases all nodes.
"""

import json
import re
import shlex
import time

import pytest
from waiting import wait_for

SLURM = "setpriv --reuid=slurm --regid=slurm --clear-groups --reset-env"
SPOOL = "/var/spool/muster-autoscaler"
UNIT = "muster-autoscaler"


@pytest.fixture
def journal(host):
    """What the daemon has logged since, once a line matches `pattern`."""
    since = host.check_output("date +%s.%N")

    def read(pattern: str, seconds: float = 60) -> str:
        deadline = time.monotonic() + seconds
        while True:
            lines = host.check_output(
                f"journalctl --unit={UNIT} --since=@{since} --output=cat --no-pager"
            )
            if re.search(pattern, lines):
                return lines
            assert time.monotonic() < deadline, f"not within {seconds} s: {pattern}; got: {lines}"
            time.sleep(0.3)

    return read


def shown(host, name: str) -> str:
    return host.check_output(f"systemctl show {UNIT} --property={name} --value")


def test_a_job_requests_its_nodes_and_they_are_released_with_a_reason(host, journal):
    """From sbatch to the node's reason, through everything but the cloud."""
    # A job that finds its nodes powering down is looked at again a minute later.
    off = "sinfo --noheader --nodes=lab-debug-[0-1] --format=%t"
    assert wait_for(host, off, "idle~") == "idle~"
    job = host.check_output(
        "cd /tmp && sbatch --parsable --nodes=2 --nodelist=lab-debug-[0-1] --wrap true"
    )
    try:
        names = r"\('lab-debug-0', 'lab-debug-1'\)"
        journal(rf"{names} requested for {{{job}: {names}}}")
        lines = journal(f"suspend of {names}")
        assert "'lab-debug-0': 'powering up', 'lab-debug-1': 'powering up'" in lines
        assert "'lab-debug-9': 'powered down'" in lines
        node = host.check_output("scontrol --oneliner show node lab-debug-1")
        assert "Reason=muster: no cloud here [slurm@" in node
        assert "CONFIGURING" not in host.check_output(f"squeue --noheader --format=%T --job={job}")
    finally:
        host.check_output(f"scancel {job}")
    assert host.check_output(f"find {SPOOL} -type f") == ""


def test_requests_while_the_daemon_does_not_run_are_not_lost(host, journal):
    host.check_output(f"systemctl stop {UNIT}")
    try:
        call = f"{SLURM} env -i PATH=/bin:/usr/bin /usr/local/sbin/muster-resume lab-debug-[4-5]"
        host.check_output(call)
        [name] = host.check_output(f"ls --ignore=wake {SPOOL}").splitlines()
        assert re.fullmatch(r"\d{19}-\d+\.resume", name)
    finally:
        host.check_output(f"systemctl start {UNIT}")
    journal(r"\('lab-debug-4', 'lab-debug-5'\) requested for {}")


@pytest.mark.parametrize("program", ["suspend", "resume-failed"])
def test_the_other_programs_reach_it(host, journal, program):
    host.check_output(f"{SLURM} env -i PATH=/bin /usr/local/sbin/muster-{program} lab-debug-7")
    journal(rf"{program} of \('lab-debug-7',\)")


def test_a_program_that_fails_writes_to_the_journal(host):
    """slurmctld drops what its programs print."""
    # As on a full disk.
    call = "ulimit -f 0; exec /usr/local/sbin/muster-resume lab-debug-7 2>/dev/null"
    done = host.run(f"{SLURM} env -i PATH=/bin sh -c {shlex.quote(call)}")
    assert done.rc == 1
    host.check_output("journalctl --sync")
    lines = host.check_output("journalctl --identifier=muster-resume --output=cat --no-pager")
    assert lines.splitlines()[-1].startswith("lab-debug-7 can't be written to the spool: ")


def test_no_job_waits_for_nodes_while_the_daemon_does_not_run(host):
    job = "env -i SLURM_JOB_ID=1 SLURM_JOB_NODELIST=lab-debug-0"
    done = host.run(f"{SLURM} timeout 10 {job} /usr/local/sbin/muster-wait-for-nodes")
    assert (done.rc, done.stdout, done.stderr) == (0, "", "")


def test_the_settings_are_what_the_daemon_reads(host):
    settings = json.loads(host.check_output(f"{SLURM} cat /etc/muster/autoscaler.json"))
    assert settings == {
        "cluster": "lab",
        "compute_endpoint": "http://192.0.2.1/compute/v1/",
        "resume_timeout_s": 60,
    }


def test_only_slurm_can_read_the_spool(host):
    folder = host.file(SPOOL)
    assert (folder.user, folder.group, oct(folder.mode)) == ("slurm", "slurm", "0o700")


def test_the_daemon_is_restarted_when_it_is_killed_and_at_boot(host):
    before = shown(host, "MainPID")
    assert before != "0"
    host.check_output(f"kill -KILL {before}")
    deadline = time.monotonic() + 60
    while shown(host, "ActiveState") != "active" or shown(host, "MainPID") == before:
        assert time.monotonic() < deadline, "it was not restarted"
        time.sleep(0.3)
    assert host.service(UNIT).is_enabled


@pytest.mark.proof("three runs of the role, nearly a minute")
def test_changed_code_or_settings_restart_the_daemon(host, converge):
    def run(**variables) -> tuple[str, str]:
        output = converge("autoscaler", "--tags=autoscaler", **variables)
        assert "failed=0" in output, output
        return shown(host, "MainPID"), output

    before = shown(host, "MainPID")
    try:
        other = run(__autoscaler_code=[__file__])[0]
        assert other != before
    finally:
        again = run()[0]
    assert again not in (other, before)
    assert run()[0] == again


def test_systemd_would_restart_a_stuck_daemon(host):
    assert shown(host, "WatchdogUSec") == "1min"
    before = int(shown(host, "WatchdogTimestampMonotonic"))
    deadline = time.monotonic() + 30
    while int(shown(host, "WatchdogTimestampMonotonic")) == before:
        assert time.monotonic() < deadline, "it does not notify systemd"
        time.sleep(0.3)


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("touch /etc/muster/x", "Read-only file system"),
        ("touch /opt/muster/current/x", "Read-only file system"),
        ("touch /var/lib/slurm/slurmctld/x", "Read-only file system"),
        ("ls /home", "Permission denied"),
        (
            "/opt/muster/venv/bin/python -c 'import socket; socket.socket(socket.AF_PACKET)'",
            "Address family not supported",
        ),
    ],
)
def test_what_the_sandbox_forbids(host, command, error):
    """Run another command in the sandbox of the unit."""
    unit = host.check_output(f"systemctl cat {UNIT}")
    settings = re.findall(
        r"^((?:User|UMask|Protect\w+|Private\w+|ReadWritePaths|NoNewPrivileges|"
        r"CapabilityBoundingSet|Restrict\w+|LockPersonality|Memory\w+|SystemCall\w+)=.*)$",
        unit,
        re.MULTILINE,
    )
    assert len(settings) > 20
    options = " ".join(f"--property={shlex.quote(setting)}" for setting in settings)
    done = host.run(
        f"systemd-run --quiet --wait --pipe {options} /bin/sh -c {shlex.quote(command)}"
    )
    assert done.rc != 0
    assert re.search(error, done.stderr), done.stderr


def test_systemds_security_analysis_is_good(host):
    """0.0 is a unit that may do nothing, 10.0 one that may do everything."""
    output = host.check_output(f"systemd-analyze security --no-pager {UNIT}")
    [level] = re.findall(r"Overall exposure level for \S+: ([\d.]+)", output)
    assert float(level) <= 1.5, output


def test_all_users_can_read_the_status_file_and_it_outlives_the_daemon(host):
    status = "/run/muster-autoscaler/status.json"
    nobody = "setpriv --reuid=nobody --regid=nogroup --clear-groups"
    assert json.loads(host.check_output(f"{nobody} cat {status}"))["cluster"] == "lab"
    host.check_output(f"systemctl stop {UNIT}")
    try:
        assert host.file(status).exists
    finally:
        host.check_output(f"systemctl start {UNIT}")


def test_the_event_log_is_rotated_and_goes_on_in_a_new_file(host, journal):
    log = "/var/log/muster/autoscaler-events.jsonl"
    assert host.file(log).mode == 0o600
    assert host.file("/var/log/muster").mode == 0o750
    host.check_output("logrotate --force /etc/logrotate.d/muster-autoscaler")
    assert not host.file(log).exists
    host.check_output(f"{SLURM} /usr/local/sbin/muster-suspend lab-debug-7")
    journal("suspend of .*lab-debug-7")
    deadline = time.monotonic() + 10
    while not host.file(log).exists:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert json.loads(host.file(log).content_string)["event"] == "suspend"
    assert host.file(f"{log}.1").exists


def test_the_command_muster_is_installed(host):
    command = host.file("/usr/local/bin/muster")
    assert (command.mode, command.user) == (0o755, "root")
    assert "exec /opt/muster/venv/bin/python -I -c " in command.content_string
