"""slurmdbd runs as slurm, writes to the database, and hides its password."""

PASSWORD = "of the trial, #1"  # noqa: S105 (molecule/cluster/group_vars)
CONF = (
    "ClusterName=trial\\nSlurmctldHost=localhost\\nAuthType=auth/munge\\n"
    "AccountingStorageType=accounting_storage/slurmdbd\\nAccountingStorageHost=localhost\\n"
)


def sacctmgr(host, arguments):
    """Run sacctmgr against this host's slurmdbd."""
    return host.run(
        f"printf '{CONF}' >/tmp/trial.conf; SLURM_CONF=/tmp/trial.conf timeout 30 "
        f"sacctmgr {arguments}"
    )


def test_what_is_recorded_arrives_in_the_database(host):
    assert (
        host.socket("tcp://0.0.0.0:6819").is_listening or host.socket("tcp://:::6819").is_listening
    ), host.run("journalctl -u slurmdbd -n 5 -o cat").stdout
    sacctmgr(host, "-i add cluster trial")
    sacctmgr(host, "-i add account muster-trial cluster=trial")
    rows = host.run(
        "mariadb -BN -e \"SELECT name FROM slurm_acct_db.acct_table WHERE name = 'muster-trial'\""
    )
    assert rows.stdout == "muster-trial\n"
    assert "muster-trial" in sacctmgr(host, "-nP show account format=account").stdout
    sacctmgr(host, "-i delete account muster-trial")


def test_the_daemon_runs_as_slurm_and_comes_back_after_a_boot(host):
    service = host.service("slurmdbd")
    assert service.is_running
    assert service.is_enabled
    assert host.run("ps -o user= -C slurmdbd").stdout.split() == ["slurm"]
    assert host.file("/run/slurmdbd/slurmdbd.pid").user == "slurm"


def test_nobody_else_reads_the_password(host):
    conf = host.file("/etc/slurm/slurmdbd.conf")
    assert (conf.user, conf.group, conf.mode) == ("slurm", "slurm", 0o600)
    done = host.run("runuser -u nobody -- cat /etc/slurm/slurmdbd.conf")
    assert done.rc != 0
    assert host.run(f"journalctl --no-pager | grep -cF -- '{PASSWORD}'").stdout == "0\n"


def test_slurm_finds_the_database_well_set(host):
    log = host.file("/var/log/slurm/slurmdbd.log").content_string
    assert "unrecognized" not in log
    assert "not recommended values" not in log


def test_a_rotated_log_is_left_alone(host):
    # The package's own rule for the same log would be an error ("duplicate log entry").
    done = host.run("apt-get install --simulate logrotate >/dev/null; ls /etc/logrotate.d")
    rules = [
        name
        for name in done.stdout.split()
        if "slurmdbd.log" in host.file(f"/etc/logrotate.d/{name}").content_string
    ]
    assert rules == ["slurmdbd"]
    rule = host.file("/etc/logrotate.d/slurmdbd").content_string
    # Does what the rule does after moving the file.
    command = next(line.strip() for line in rule.splitlines() if "systemctl kill" in line)
    done = host.run(
        "cd /var/log/slurm && mv slurmdbd.log slurmdbd.log.trial && "
        f"{command} && sleep 1 && ls -l /proc/$(pidof slurmdbd)/fd; rm -f slurmdbd.log.trial"
    )
    assert done.rc == 0, done.stderr
    assert "/var/log/slurm/slurmdbd.log\n" in done.stdout
    assert "slurmdbd.log.trial" not in done.stdout
