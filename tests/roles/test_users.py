"""People are who the definition says: they get in, or they don't, and foreign things stay."""

import time

import pytest

OPTIONS = (
    "-o BatchMode=yes -o IdentitiesOnly=yes -o StrictHostKeyChecking=no"
    " -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
)
SSH = f"ssh -i /root/trial {OPTIONS}"
# Each from an address of its own: sshd of Debian 13 makes those wait that failed often.
PLANTED = f"ssh -i /root/planted -b 127.0.1.{{source}} {OPTIONS}"
# What was there before erin was refused: a table, and a job of dan's that was given to her. cron
# runs what is to run at a boot once until the next one; a job whose time (the last eight digits of
# its name) is over starts when atd does.
LEFT_TO_CRON_AND_AT = """
set -eu
install -d -m 1777 /run/trial
cd /var/spool/cron/atjobs
for login in dan erin; do
    echo "@reboot touch /run/trial/cron-$login" |
        install -m 0600 -o $login -g crontab /dev/stdin /var/spool/cron/crontabs/$login
    echo "touch /run/trial/at-$login" | (cd /; runuser -u dan -- at now + 1 day)
    for job in $(ls | grep -v 00000001); do
        sed --in-place "s/uid=[0-9]* gid=[0-9]*/uid=$(id -u $login) gid=$(id -g $login)/" $job
        chown $login $job
        mv $job ${job%????????}00000001
    done
done
rm -f /run/crond.reboot
systemctl restart cron atd
"""
# From one address, while the command that follows runs.
HOLD_CONNECTIONS = """
import socket, subprocess, sys
there = ("127.0.0.1", 22)
held = [socket.create_connection(there, 30, ("127.0.1.20", 0)) for _ in range(150)]
sys.exit(subprocess.run(sys.argv[1:]).returncode)
"""
WITH_AGENT = "ssh-agent sh -c 'ssh-add -q /root/{key}; exec " + SSH + " -A {login}@127.0.0.1 {run}'"


def test_ada_logs_in_with_her_key_and_has_her_groups(host):
    login = host.run(f"{SSH} ada@127.0.0.1 id")
    assert login.rc == 0, login.stderr
    assert "uid=20001(ada) gid=20001(ada)" in login.stdout
    assert "20000(ml-users)" in login.stdout


@pytest.mark.parametrize(("source", "login"), [*enumerate(["ada", "zoe", "root", "ops"], 1)])
def test_a_key_that_is_planted_in_a_home_opens_nothing(host, source, login):
    refused = host.run(f"{PLANTED.format(source=source)} {login}@127.0.0.1 true")
    assert refused.rc == 255
    assert "Permission denied" in refused.stderr


def test_nothing_that_is_planted_in_a_shared_home_starts_for_an_administrator(host):
    login = host.run(f"{SSH} ada@127.0.0.1 pwd")
    assert login.stdout.strip() == "/var/lib/muster/home/ada", login.stderr
    assert host.run(f"{SSH} -tt ada@127.0.0.1 'bash -lic true'").rc == 0
    assert not host.file("/tmp/planted-ada").exists


@pytest.fixture
def plain_sshd(host):
    """Another sshd, at port 2222, which reads keys in shared homes as it does by itself."""
    settings = "Port 2222\nUsePAM yes\nAuthorizedKeysFile /home/%u/.ssh/authorized_keys"
    host.check_output(f"echo '{settings}' >/run/plain-sshd.conf")
    unit = "systemd-run --quiet --unit=plain-sshd --property=Type=notify"
    host.check_output(f"{unit} /usr/sbin/sshd -D -f /run/plain-sshd.conf -o PidFile=none")
    yield
    host.check_output("systemctl stop plain-sshd; rm -f /run/plain-sshd.conf /tmp/planted-zoe")


@pytest.mark.parametrize(("source", "login"), [*enumerate(["ada", "zoe"], 5)])
def test_where_keys_in_homes_count_a_planted_one_opens_a_login(host, plain_sshd, source, login):
    """Without the defence the attack works: the tests above would see it."""
    planted = PLANTED.format(source=source)
    assert host.check_output(f"{planted} -p 2222 {login}@127.0.0.1 id -un") == login


def test_where_a_home_is_shared_what_is_planted_there_starts(host, plain_sshd):
    planted = PLANTED.format(source=7)
    host.run(f"{planted} -p 2222 -tt zoe@127.0.0.1 'bash -lic true'")
    assert host.file("/tmp/planted-zoe").user == "zoe"


def test_an_administrator_has_a_home_that_nobody_else_can_write_to(host):
    for login in ("ada", "fay"):
        home = host.file(f"/var/lib/muster/home/{login}")
        assert (home.user, home.group, oct(home.mode)) == (login, login, "0o700")
    assert host.file("/var/lib/muster/home").user == "root"
    assert host.service("adas-program").is_running
    # The one on other hosts, which this host makes.
    assert host.file("/home/fay").is_directory


def test_the_host_s_own_administrators_keep_the_keys_in_their_homes(host):
    assert host.run(f"{SSH} ops@127.0.0.1 true").rc == 0


def test_administrators_do_not_come_from_nodes(host):
    for login, code in (("fay", 255), ("root", 255), ("ada", 0)):
        assert host.run(f"{SSH} -b 127.0.0.2 {login}@127.0.0.2 true").rc == code, login
    assert host.run(f"{SSH} fay@127.0.0.1 true").rc == 0


def test_administrators_come_from_their_networks_alone(host):
    for login, code in (("fay", 255), ("root", 255), ("ada", 0)):
        assert host.run(f"{SSH} -b 127.0.2.1 {login}@127.0.0.1 true").rc == code, login
    for login in ("fay", "root"):
        assert host.run(f"{SSH} {login}@127.0.0.1 true").rc == 0, login


def test_who_holds_connections_and_says_nothing_keeps_nobody_out(host):
    login = host.run(f"python3 -c '{HOLD_CONNECTIONS}' {SSH} ada@127.0.0.1 true")
    assert login.rc == 0, login.stderr


def test_a_key_that_the_definition_no_longer_names_opens_nothing(host):
    refused = host.run(f"{PLANTED.format(source=5)} fay@127.0.0.1 true")
    assert refused.rc == 255
    assert "Permission denied" in refused.stderr
    assert host.run(f"{SSH} fay@127.0.0.1 true").rc == 0


@pytest.mark.parametrize("flags", ["", "-n", "-n -i"])
def test_sudo_asks_the_agent_of_an_administrator_for_a_key(host, flags):
    become = WITH_AGENT.format(key="trial", login="ada", run=f"sudo {flags} id -u")
    assert host.check_output(become) == "0"


def test_who_took_an_administrator_s_login_is_not_root(host):
    as_ada = "setpriv --reuid=ada --regid=ada --init-groups --reset-env "
    refused = host.run(as_ada + "sudo --non-interactive id -u")
    assert refused.rc != 0
    assert "no key of ada in an ssh agent" in refused.stderr
    # With an agent and a key of their own.
    theirs = host.run(
        "sh -c %s",
        "install -m 600 -o ada -g ada /root/planted /run/planted; "
        + as_ada
        + "ssh-agent sh -c 'ssh-add -q /run/planted && sudo -n id -u'; code=$?; rm /run/planted; "
        "exit $code",
    )
    assert theirs.rc != 0
    assert theirs.stdout.strip() != "0"


def test_who_is_no_administrator_is_not_root(host):
    agent = WITH_AGENT.format(key="trial", login="ops", run="sudo -n id -u")
    refused = host.run(agent)
    assert refused.rc != 0
    assert "password is required" in refused.stderr


def test_a_membership_that_is_not_the_definition_s_survives(host):
    assert "ada" in host.group("docker").members
    assert "carol" in host.group("docker").members


def test_shell_is_set_on_an_account_that_was_there(host):
    assert host.user("ada").shell == "/bin/bash"


def test_bob_is_gone_and_his_files_are_not(host):
    assert not host.user("bob").exists
    assert not host.group("bob").exists
    home = host.file("/home/bob")
    assert home.is_directory
    assert (home.uid, home.gid) == (20002, 20002)


def test_carol_can_not_log_in_but_her_program_goes_on(host):
    login = host.run(f"{SSH} carol@127.0.0.1 true")
    assert login.rc == 255
    assert "Permission denied" in login.stderr
    assert host.service("carols-program").is_running
    # Not by password either: the account is expired.
    assert host.check_output("getent shadow carol").split(":")[7] == "1"
    assert "carol" not in host.group("ml-users").members


def test_dan_has_a_home_of_his_own(host):
    home = host.file("/home/dan")
    assert (home.user, home.group, oct(home.mode)) == ("dan", "dan", "0o700")
    profile = host.file("/home/dan/.profile")
    assert (profile.user, profile.content) == ("dan", host.file("/etc/skel/.profile").content)


def test_dan_has_no_password_and_is_not_locked(host):
    assert host.check_output("getent shadow dan").split(":")[1] == "*"


def test_dan_without_a_key_does_not_get_in(host):
    login = host.run(f"{SSH} dan@127.0.0.1 true")
    assert login.rc == 255
    assert "Permission denied" in login.stderr


def test_erin_has_a_key_and_is_refused(host):
    login = host.run(f"{SSH} erin@127.0.0.1 true")
    assert login.rc == 255
    assert "Permission denied" in login.stderr


def test_cron_and_at_refuse_erin_at_once(host):
    for command, word in (("crontab -", "not allowed"), ("at now", "permission")):
        refused = host.run(f"runuser -u erin -- sh -c 'cd /; echo | {command}'")
        assert refused.rc != 0
        assert word in refused.stderr
    assert host.run("runuser -u dan -- sh -c 'cd /; echo | crontab -'").rc == 0


def test_nothing_runs_for_who_is_no_longer_in_the_definition(host):
    """It holds after the second run too, when the key that Muster had for gus is gone."""
    assert host.user("gus").exists
    refused = host.run("runuser -u gus -- sh -c 'cd /; echo | crontab -'")
    assert refused.rc != 0
    assert "not allowed" in refused.stderr
    names = host.file("/etc/security/muster-no-login").content_string.split()
    # Carol's account goes when her program has ended.
    assert names == ["erin", "carol", "gus"]
    login = host.run(f"{SSH} gus@127.0.0.1 true")
    assert login.rc == 255
    assert "Permission denied" in login.stderr


def test_what_erin_left_to_cron_and_at_does_not_run(host):
    try:
        host.check_output("sh -c %s", LEFT_TO_CRON_AND_AT)
        assert appears(host, "/run/trial/cron-dan")
        assert appears(host, "/run/trial/at-dan")
        # Whatever they start comes in the same second.
        time.sleep(2)
        assert host.file("/run/trial").listdir() == ["at-dan", "cron-dan"]
    finally:
        host.check_output("cd /var/spool/cron/crontabs; rm -rf erin dan /run/trial")
        host.check_output("rm -f /var/spool/cron/atjobs/*00000001")


def test_erin_has_no_programs_that_outlive_her_jobs_by_lingering(host):
    for login, state in (("dan", "active"), ("erin", "failed")):
        try:
            host.run(f"loginctl enable-linger {login}")
            unit = f"user@$(id -u {login})"
            ended = host.check_output(f"systemctl start {unit}; systemctl is-active {unit}; true")
            assert ended == state
        finally:
            host.check_output(f"loginctl disable-linger {login}; systemctl stop {unit}")


def appears(host, path):
    """Whether a file is there within ten seconds."""
    for _ in range(50):
        if host.file(path).exists:
            return True
        time.sleep(0.2)
    return False


def test_keys_can_be_changed_by_root_alone(host):
    assert host.file("/etc/ssh/muster_keys.d").listdir() == ["ada", "erin", "fay"]
    keys = host.file("/etc/ssh/muster_keys.d/ada")
    assert (keys.user, oct(keys.mode)) == ("root", "0o644")


def test_a_group_without_members_exists(host):
    assert host.group("visitors").gid == 20100
