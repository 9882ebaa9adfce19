"""munged runs with the key of the definition, and with nothing else."""

from base64 import b64encode

import pytest

KEY = b"This key is public, for trials only!!!"
TRIAL = "/run/munge-trial"


@pytest.fixture
def second_munged(host):
    """A munged of our own with the key that all hosts should have; its socket."""
    script = f"""set -e
    install -d -o munge -g munge -m 0755 {TRIAL}
    echo {b64encode(KEY).decode()} | base64 -d >{TRIAL}/key
    chown munge: {TRIAL}/key; chmod 0400 {TRIAL}/key
    setpriv --reuid=munge --regid=munge --clear-groups munged --key-file={TRIAL}/key \
        --socket={TRIAL}/socket --pid-file={TRIAL}/pid --log-file={TRIAL}/log \
        --seed-file={TRIAL}/seed"""
    started = host.run("sh -c %s", script)
    assert started.rc == 0, started.stderr
    yield f"{TRIAL}/socket"
    host.run(f"sh -c 'kill $(cat {TRIAL}/pid); sleep 0.5; rm -r {TRIAL}'")


def test_a_credential_of_a_host_with_the_same_key_decodes(host, second_munged):
    decoded = host.run(f"sh -c 'munge -n -S {second_munged} | unmunge'")
    assert decoded.rc == 0, decoded.stdout + decoded.stderr
    assert "STATUS:          Success (0)" in decoded.stdout


def test_an_own_credential_decodes_on_a_host_with_the_same_key(host, second_munged):
    decoded = host.run(f"sh -c 'munge -s hello -u root | unmunge -S {second_munged}'")
    assert decoded.rc == 0, decoded.stdout + decoded.stderr
    assert decoded.stdout.rstrip().endswith("hello")


def test_the_key_is_for_munge_alone(host):
    key = host.file("/etc/munge/munge.key")
    assert (key.user, key.group, oct(key.mode)) == ("munge", "munge", "0o400")
    refused = host.run(
        "setpriv --reuid=nobody --regid=nogroup --clear-groups cat /etc/munge/munge.key"
    )
    assert refused.rc != 0
    assert "Permission denied" in refused.stderr


def test_munged_runs_with_the_threads_of_the_definition(host):
    pid = host.check_output("systemctl show munge --property MainPID --value")
    assert host.check_output(f"tr '\\0' ' ' </proc/{pid}/cmdline").split()[1:] == [
        "--num-threads=3"
    ]


def test_munged_comes_back_after_a_reboot(host):
    assert host.service("munge").is_enabled
