"""A VM keeps its token from its users, and starts what its role needs."""

import pytest
from waiting import until, wait_for

URL = "http://169.254.169.254/computeMetadata/v1/instance/attributes/muster-role"
ASK = f"python3 -c 'import urllib.request as u; print(u.urlopen(\"{URL}\", timeout=5).read())'"
ROLE = "/srv/metadata/computeMetadata/v1/instance/attributes/muster-role"


def ask(host, user):
    return host.run(f"setpriv --reuid={user} --clear-groups {ASK}")


@pytest.mark.parametrize("user", ["root", "slurm"])
def test_those_who_need_it_reach_the_metadata_server(host, user):
    asked = ask(host, user)
    assert asked.rc == 0, asked.stderr
    assert "builder" in asked.stdout


@pytest.mark.parametrize("user", ["ada", "nobody"])
def test_users_do_not_reach_the_metadata_server(host, user):
    asked = ask(host, user)
    assert asked.rc != 0
    assert "Connection refused" in asked.stderr


def test_guard_holds_before_anything_that_a_user_could_run(host):
    before = host.check_output("systemctl show muster-guard --property Before --value").split()
    assert "sysinit.target" in before
    assert host.check_output("systemctl show sysinit.target --property Wants --value").count(
        "muster-guard.service"
    )
    assert host.service("muster-guard").is_running


def test_vm_without_the_guard_takes_no_part(host):
    needed = host.check_output("systemctl show muster-boot --property Requires,After")
    assert needed.count("muster-guard.service") == 2
    assert host.service("muster-boot").is_enabled


@pytest.fixture
def failed_guard(host):
    """A guard whose rules nft refuses."""
    rules = "/etc/muster/guard.nft"
    host.check_output(f"sh -c 'cp {rules} /root/guard.nft; echo nonsense >{rules}'")
    assert host.run("systemctl restart muster-guard").rc != 0
    yield
    host.check_output(f"sh -c 'cat /root/guard.nft >{rules}; rm /root/guard.nft'")
    # Tests start it more often than systemd thinks right.
    host.check_output("systemctl reset-failed muster-guard")
    host.check_output("systemctl restart muster-guard")


@pytest.fixture
def keeper_that_hangs(host):
    """Nothing loads the rules again, though each unit is active."""
    host.check_output("systemctl kill --signal=STOP muster-guard-keeper")
    yield
    host.check_output("systemctl kill --signal=CONT muster-guard-keeper")
    assert wait_for(host, "muster-guard check", "users are refused") == "users are refused"


def test_the_check_tries_what_a_user_would(host, keeper_that_hangs):
    assert host.run("muster-guard check").rc == 0
    host.check_output("nft flush ruleset")
    assert ask(host, "ada").rc == 0
    assert host.check_output("systemctl is-active muster-guard muster-guard-keeper | uniq") == (
        "active"
    )
    checked = host.run("muster-guard check")
    assert checked.rc == 1
    assert "users reach the metadata server (169.254.169.254 port 80)" in checked.stdout


LOSSES = [
    # As `systemctl restart nftables` does it.
    "nft flush ruleset",
    "nft delete table inet muster_guard",
    "nft insert rule inet muster_guard output meta skuid ada accept",
]


@pytest.mark.parametrize("loss", LOSSES)
def test_rules_that_are_lost_are_loaded_again(host, loss):
    log = "journalctl -u muster-guard-keeper -o cat | grep --count 'loaded /etc/muster/guard.nft'"
    before = int(host.run(log).stdout)
    host.check_output(loss)
    until(lambda: int(host.run(log).stdout) > before, "the keeper says that it loaded them", 5)
    assert "Connection refused" in ask(host, "ada").stderr
    assert ask(host, "slurm").rc == 0
    assert host.run("muster-guard check").rc == 0


def test_other_rules_are_left_alone(host):
    rules = "nft list tables"
    host.check_output("nft add table inet other")
    try:
        host.check_output("nft delete table inet muster_guard")
        both = "table inet other\ntable inet muster_guard"
        assert wait_for(host, rules, both, 5) == both
    finally:
        host.check_output("nft delete table inet other")


def test_a_keeper_that_dies_finds_the_rules_gone(host):
    host.check_output("systemctl kill --signal=KILL muster-guard-keeper; nft flush ruleset")
    assert wait_for(host, "muster-guard check", "users are refused", 5) == "users are refused"


@pytest.mark.parametrize("unit", ["door", "muster-configure"])
def test_no_login_works_while_the_guard_does_not_hold(host, failed_guard, unit):
    started = host.run(f"systemctl start {unit}")
    assert started.rc != 0
    assert "Assertion failed" in started.stderr
    assert not host.service(unit).is_running


def test_a_guard_that_is_reloaded_ends_nothing_that_runs(host):
    host.check_output("systemctl start door")
    pid = host.check_output("systemctl show door --property MainPID --value")
    try:
        host.check_output("systemctl reset-failed muster-guard")
        host.check_output("systemctl restart muster-guard")
        assert host.check_output("systemctl show door --property MainPID --value") == pid
        assert pid != "0"
    finally:
        host.check_output("systemctl stop door")


UNGUARDED = """
set -eu
systemctl stop muster-guard-keeper muster-guard
nft delete table inet muster_guard
cd /etc/systemd/system
rm -r muster-guard* */muster-guard.service */20-muster-guard.conf
rm /etc/muster/guard.nft /usr/local/sbin/muster-guard /usr/local/sbin/muster-keep-rules
systemctl daemon-reload
systemctl start door
systemd-run --quiet --unit=adas-job --uid=ada sleep infinity
"""
"""As a VM was before there was a guard, with a login service and a program of somebody."""


@pytest.mark.proof("a run of the role on a VM as an older Muster left it")
def test_a_run_guards_a_vm_without_a_reboot_and_ends_no_program(host, converge):
    running = "cat /proc/sys/kernel/random/boot_id; systemctl show -P MainPID door adas-job"
    try:
        host.check_output("sh -c %s", UNGUARDED)
        before = host.check_output(running)
        assert ask(host, "ada").rc == 0
        assert "failed=0" in converge("cloud_vm")
        assert "Connection refused" in ask(host, "ada").stderr
        assert host.run("muster-guard check").rc == 0
        assert host.check_output(running) == before
    finally:
        host.run("systemctl stop door adas-job")


@pytest.mark.parametrize(
    ("role", "unit"),
    [
        ("controller", "muster-configure.service"),
        ("login", "muster-configure.service"),
        ("node", "muster-node.target"),
        ("builder", None),
    ],
)
def test_role_of_the_vm_says_what_is_started(host, role, unit):
    host.check_output(f"printf {role} >{ROLE}")
    units = ["muster-configure.service", "muster-node.target"]
    try:
        host.check_output("systemctl restart muster-boot")
        if unit:
            # It is started without waiting for it.
            host.check_output(f"timeout 20 sh -c 'until systemctl is-active {unit}; do :; done'")
        shown = {name: host.run(f"systemctl is-active {name}").stdout.strip() for name in units}
        others = {name: state for name, state in shown.items() if name != unit}
        assert set(others.values()) == {"inactive"}
    finally:
        host.check_output(f"systemctl stop muster-boot {' '.join(units)}")
        host.check_output(f"printf builder >{ROLE}")


def test_host_keys_are_made_where_the_image_has_none(host):
    """The test machines' own sshd makes them too, so the unit is started by itself."""
    key = "/etc/ssh/ssh_host_ed25519_key"
    assert "muster-host-keys.service" in host.check_output("systemctl show ssh --property Wants")
    assert "ssh.service" in host.check_output("systemctl show muster-host-keys --property Before")
    before = host.check_output(f"cat {key}.pub")
    host.check_output("systemctl start muster-host-keys")
    assert host.check_output(f"cat {key}.pub") == before
    host.check_output("sh -c 'mkdir /root/keys; mv /etc/ssh/ssh_host_* /root/keys'")
    try:
        host.check_output("systemctl start muster-host-keys")
        assert host.check_output(f"cat {key}.pub") != before
        assert host.check_output(f"stat --format=%a {key}") == "600"
    finally:
        host.check_output("sh -c 'mv /root/keys/* /etc/ssh; rmdir /root/keys'")


def test_google_s_agent_leaves_people_and_host_keys_alone(host):
    text = host.file("/etc/default/instance_configs.cfg").content_string
    assert "\naccounts_daemon = false\n" in text
    assert "\nset_host_keys = false\n" in text


def test_notice_is_shown_at_login(host):
    notice = "*** Muster is setting up this machine"
    host.check_output("mkdir -p /run/motd.d")
    host.check_output("sh -c %s", f"echo '{notice}' >/run/motd.d/muster")
    host.check_output("ssh-keygen -q -t ed25519 -N '' -C trial -f /root/trial")
    try:
        host.check_output("sh -c %s", "cat /root/trial.pub >>/root/.ssh/authorized_keys")
        options = "-tt -i /root/trial -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
        shown = host.check_output("sh -c %s", f"echo exit | ssh {options} root@127.0.0.1")
        assert notice in shown
    finally:
        host.check_output("sed -i '/trial$/d' /root/.ssh/authorized_keys")
        host.check_output("rm -f /root/trial /root/trial.pub /run/motd.d/muster")
