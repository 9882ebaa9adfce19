"""slurmdbd runs as slurm, writes to the database, and hides its password."""

from pathlib import Path

import pytest
import yaml
from waiting import wait_for

PASSWORD = "of the trial, #1"  # noqa: S105 (molecule/cluster/group_vars)
CONF = (
    "ClusterName=trial\\nSlurmctldHost=localhost\\nAuthType=auth/munge\\n"
    "AccountingStorageType=accounting_storage/slurmdbd\\nAccountingStorageHost=localhost\\n"
)

ROOT = Path(__file__).resolve().parents[2]
THEIR_PORT = 3307
THEIR_PASSWORD = "of their server"  # noqa: S105 - for trials
THEIRS = "/srv/theirs"
"""Folder of a database server that Muster did not install."""


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


def test_a_slurmdbd_that_is_told_to_end_comes_back(host):
    """Who has the munge key and can connect to it can shut it down."""
    unit = "systemctl show -P InvocationID slurmdbd"
    before = host.check_output(unit)
    assert sacctmgr(host, "shutdown").rc == 0
    assert wait_for(host, f"[ $({unit}) = {before} ] || systemctl is-active slurmdbd", "active")
    assert wait_for(host, "ss -Hltn sport = :6819 | grep -c 6819", "1") == "1"


def test_it_may_not_take_the_memory_of_others(host):
    """It takes what a stranger's message announces, 1 GiB for each connection."""
    shown = host.check_output("systemctl show --property=MemoryMax,MemorySwapMax slurmdbd")
    memory = int(host.check_output("awk '/^MemTotal:/ {print $2}' /proc/meminfo")) * 1024
    limits = dict(line.split("=") for line in shown.splitlines())
    assert int(limits["MemoryMax"]) / memory == pytest.approx(0.4, abs=0.01)
    assert limits["MemorySwapMax"] == "0"


@pytest.fixture
def their_server(host):
    """A second server of MariaDB on this host, with a database and a user for slurmdbd."""
    ask = f"mariadb --socket={THEIRS}/socket -BNe"
    host.check_output(f"install -d -o mysql -g mysql {THEIRS}")
    host.check_output(f"mariadb-install-db --no-defaults --user=mysql --datadir={THEIRS}/data")
    host.check_output(
        f"systemd-run --unit=theirs --uid=mysql /usr/sbin/mariadbd --no-defaults "
        f"--datadir={THEIRS}/data --socket={THEIRS}/socket --port={THEIR_PORT} "
        f"--pid-file={THEIRS}/pid --innodb-lock-wait-timeout=900"
    )
    assert wait_for(host, f"{ask} 'SELECT 1'", "1") == "1"
    host.check_output(f'{ask} "CREATE DATABASE acct_trial"')
    user = f"CREATE USER lab@localhost IDENTIFIED BY '{THEIR_PASSWORD}'"
    host.check_output(f'{ask} "{user}; GRANT ALL ON acct_trial.* TO lab@localhost"')
    yield ask
    host.check_output(f"systemctl stop theirs; rm -r {THEIRS}")


@pytest.mark.proof("makes a second database server")
def test_a_server_that_muster_did_not_install_gets_the_records(host, their_server, converge):
    variables = yaml.safe_load((ROOT / "molecule/cluster/group_vars/all.yml").read_text())
    conf = (
        variables["slurmdbd_conf"]
        .replace("StorageHost=localhost", f"StorageHost=127.0.0.1\nStoragePort={THEIR_PORT}")
        .replace("StorageUser=slurm", "StorageUser=lab")
        .replace("StorageLoc=slurm_acct_db", "StorageLoc=acct_trial")
    )
    try:
        ran = converge(
            "cluster",
            "--tags=slurmdbd",
            slurmdbd_conf=conf,
            slurmdbd_storage_password=THEIR_PASSWORD,
        )
        assert "failed=0" in ran, ran
        sacctmgr(host, "-i add cluster trial")
        sacctmgr(host, "-i add account of-theirs cluster=trial")
        query = "SELECT name FROM acct_trial.acct_table WHERE name = 'of-theirs'"
        assert host.check_output(f'{their_server} "{query}"') == "of-theirs"
    finally:
        assert "failed=0" in converge("cluster", "--tags=slurmdbd")


def test_the_daemon_runs_as_slurm_and_comes_back_after_a_boot(host):
    service = host.service("slurmdbd")
    assert service.is_running
    assert service.is_enabled
    assert host.run("ps -o user= -C slurmdbd").stdout.split() == ["slurm"]
    assert host.file("/run/slurmdbd/slurmdbd.pid").user == "slurm"


def test_users_do_not_reach_its_munged(host):
    """They can keep the one that they reach from answering."""
    pid = host.check_output("systemctl show slurmdbd --property=MainPID --value")
    seen = host.check_output(f"stat --format=%d:%i /proc/{pid}/root/run/munge /run/muster-munge")
    assert len({*seen.split()}) == 1
    folder = host.file("/run/muster-munge")
    assert (folder.user, folder.group, folder.mode) == ("munge", "slurm", 0o750)


LOSSES = [
    # As `systemctl restart nftables` does it.
    "nft flush ruleset",
    "nft delete table inet muster_slurmdbd",
    "nft insert rule inet muster_slurmdbd input accept",
]


@pytest.mark.parametrize("loss", LOSSES)
def test_rules_that_are_lost_are_loaded_again(host, loss):
    rules = "nft list table inet muster_slurmdbd"
    started = "systemctl show slurmdbd --property InvocationID"
    before, daemon = host.check_output(rules), host.check_output(started)
    assert "tcp dport 6819" in before
    host.check_output(loss)
    assert wait_for(host, rules, before, 5) == before
    assert host.check_output(started) == daemon


def test_a_keeper_that_dies_finds_the_rules_gone(host):
    rules = "nft list table inet muster_slurmdbd"
    before = host.check_output(rules)
    host.check_output("systemctl kill --signal=KILL muster-slurmdbd-keeper; nft flush ruleset")
    assert wait_for(host, rules, before, 5) == before


def test_the_keeper_of_the_rules_comes_and_goes_with_the_daemon(host):
    keeper = host.service("muster-slurmdbd-keeper")
    assert keeper.is_enabled
    host.check_output("systemctl stop slurmdbd")
    try:
        assert not keeper.is_running
    finally:
        host.check_output("systemctl start slurmdbd")
    state = "systemctl is-active muster-slurmdbd-keeper"
    assert wait_for(host, state, "active", 5) == "active"


def test_nobody_else_reads_the_password(host):
    conf = host.file("/etc/slurm/slurmdbd.conf")
    assert (conf.user, conf.group, conf.mode) == ("slurm", "slurm", 0o600)
    done = host.run("runuser -u nobody -- cat /etc/slurm/slurmdbd.conf")
    assert done.rc != 0
    assert host.run(f"journalctl --no-pager | grep -cF -- '{PASSWORD}'").stdout == "0\n"


def test_slurm_finds_the_database_well_set(host):
    # Other tests start it with a database that nobody tuned, and do not wait for what it says.
    of_this_start = "tac /var/log/slurm/slurmdbd.log | sed '/Terminate signal/q'"
    version = f"{of_this_start} | grep --count 'slurmdbd version'"
    assert wait_for(host, version, "1") == "1"
    said = host.check_output(of_this_start)
    assert "unrecognized" not in said
    assert "not recommended values" not in said


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
