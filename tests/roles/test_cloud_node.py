"""A node's boot brings key, munged and slurmd in order, and the people of the shared folder."""

import json
from base64 import b64encode

import pytest
from waiting import wait_for

KEY = b"This key is public, for trials only!!!"
PEOPLE = "/apps/.muster/extrausers"
METADATA = {
    "instance": {
        "name": "lab-debug-0",
        "attributes": {"muster-cluster": "lab", "muster-hosts": '{"lab-controller": "192.0.2.7"}'},
        "networkInterfaces": [{"ip": "192.0.2.9"}],
    },
    "project": {"projectId": "demo"},
}
SERVER = """
import http.server, sys
answers = {
    "/computeMetadata/v1/?recursive=true": METADATA,
    "/computeMetadata/v1/instance/service-accounts/default/token": TOKEN,
    "/v1/projects/demo/secrets/lab-munge-key/versions/latest:access": SECRET,
}
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path in answers else 404)
        self.end_headers()
        self.wfile.write(answers.get(self.path, "").encode())
http.server.HTTPServer(("169.254.169.254", 80), Handler).serve_forever()
"""
ENDPOINT = "Environment=GOOGLE_SECRET_MANAGER_CUSTOM_ENDPOINT=http://169.254.169.254/v1/"


def put(host, path, text):
    """Write a file on the host."""
    host.check_output(f"mkdir -p $(dirname {path})")
    host.check_output(f"echo {b64encode(text.encode()).decode()} | base64 -d >{path}")


@pytest.fixture
def linked(host):
    """The folder of people as a node has it."""
    host.check_output("mv /var/lib/extrausers /var/lib/extrausers.before")
    host.check_output(f"ln -s {PEOPLE} /var/lib/extrausers")
    yield
    host.check_output("rm /var/lib/extrausers")
    host.check_output("mv /var/lib/extrausers.before /var/lib/extrausers")


@pytest.fixture
def booted(host):
    """A host that finds the metadata of a node, and has booted."""
    secret = json.dumps({"payload": {"data": b64encode(b64encode(KEY)).decode()}})
    program = SERVER.replace("METADATA", repr(json.dumps(METADATA)))
    program = program.replace("TOKEN", repr('{"access_token": "t"}')).replace(
        "SECRET", repr(secret)
    )
    put(host, "/root/metadata.py", program)
    put(host, "/run/systemd/system/muster-key.service.d/trial.conf", f"[Service]\n{ENDPOINT}\n")
    host.check_output("ip address add 169.254.169.254/32 dev lo")
    host.check_output("cp /etc/hosts /root/hosts; systemctl daemon-reload")
    host.check_output("systemd-run --unit=metadata python3 /root/metadata.py")
    host.check_output("systemctl start apt-daily.timer")
    host.check_output("systemctl start --no-block muster-node.target")
    yield
    # A boot under way asks for its target anew once it has the key: stopped before that, it would
    # go on after the stop and be met, half done, by the next test.
    key = wait_for(host, "systemctl is-active muster-key", "active")
    units = "muster-node.target muster-key.service muster-mounts.service slurmd munge metadata"
    host.check_output(f"systemctl stop {units}; systemctl reset-failed")
    host.check_output("ip address del 169.254.169.254/32 dev lo")
    # A test may have ended before the boot had come to any of these.
    host.check_output("cat /root/hosts >/etc/hosts; rm -rf /run/muster-node /root/metadata.py")
    host.check_output("rm -rf /etc/munge/munge.key /var/lib/extrausers; mkdir /var/lib/extrausers")
    host.check_output("rm -r /run/systemd/system/muster-key.service.d; systemctl daemon-reload")
    assert key == "active"


@pytest.fixture
def stumbling(host):
    """A first unit that fails once for a reason that nobody foresaw."""
    once = "sh -c 'test -e /run/stumbled || { touch /run/stumbled; exit 1; }'"
    drop_in = "/run/systemd/system/muster-key.service.d/stumble.conf"
    put(host, drop_in, f"[Service]\nExecStartPre={once}\n")
    yield
    host.check_output("rm /run/stumbled")


def properties(host, unit, *names):
    """What systemd says of a unit."""
    options = " ".join(f"--property={name}" for name in names)
    said = host.check_output(f"systemctl show {unit} {options}")
    return dict(line.split("=", 1) for line in said.splitlines())


def test_systemd_understands_the_units(host):
    units = "muster-node.target muster-key.service muster-mounts.service"
    verified = host.run(f"systemd-analyze verify {units}")
    complaints = [line for line in verified.stderr.splitlines() if "muster" in line]
    assert (verified.rc, complaints) == (0, [])


def test_on_a_machine_that_is_no_node_nothing_starts(host):
    # The units are those of an image: they count from its next boot on.
    host.check_output("rm -f /etc/munge/munge.key; systemctl daemon-reload")
    for unit in ("munge", "slurmd"):
        host.check_output(f"systemctl start {unit}")
        found = properties(host, unit, "ActiveState", "ConditionResult")
        assert found == {"ActiveState": "inactive", "ConditionResult": "no"}


def test_a_node_gets_its_key_and_starts_munged_and_slurmd(host, booted):
    assert wait_for(host, "systemctl is-active munge", "active") == "active"
    key = host.file("/etc/munge/munge.key")
    assert (key.user, key.group, oct(key.mode)) == ("munge", "munge", "0o400")
    assert key.content == KEY
    assert host.run("munge -n | unmunge").rc == 0
    # It looks for a controller for as long as it takes, and there is none.
    options = "--conf-server lab-controller:6817 -N lab-debug-0"
    called = f"pgrep --full --oldest '^/usr/sbin/slurmd .*{options}$' | wc --lines"
    assert wait_for(host, called, "1") == "1"
    assert "192.0.2.7" in host.check_output("getent hosts lab-controller")


def test_slurmd_comes_after_key_mounts_and_munged(host):
    found = properties(host, "slurmd", "After", "EnvironmentFiles")
    needed = {"muster-key.service", "muster-mounts.service", "munge.service"}
    assert needed <= set(found["After"].split())
    assert "muster-key.service" in properties(host, "munge", "After")["After"].split()


def test_apt_leaves_a_node_alone(host, booted):
    assert wait_for(host, "systemctl is-active apt-daily.timer", "inactive") == "inactive"


def test_people_of_the_shared_folder_are_known(host, linked):
    assert host.check_output("id -un 20001") == "ada"
    groups = host.check_output("id -Gn ada").split()
    assert groups == ["ada", "ml-users"]
    assert host.check_output("getent passwd ada").endswith(":/home/ada:/bin/bash")


def test_who_is_taken_out_is_unknown_at_once(host, converge, linked):
    assert host.run("id bob").rc == 0
    less = {"passwd": ["ada:x:20001:20001::/home/ada:/bin/bash"], "group": ["ada:x:20001:"]}
    try:
        assert "failed=0" in converge("cloud_node", "--tags=cloud_node_configure", **less)
        assert host.run("id bob").rc != 0
        assert host.check_output("id -Gn ada") == "ada"
    finally:
        assert "failed=0" in converge("cloud_node", "--tags=cloud_node_configure")


def test_the_host_s_own_users_come_first(host):
    lines = host.file("/etc/nsswitch.conf").content_string.splitlines()
    found = [line.split() for line in lines if line.startswith(("passwd:", "group:"))]
    assert [line[1:3] for line in found] == [["files", "extrausers"]] * 2


def test_a_boot_that_fails_is_tried_again(host, stumbling, booted):
    assert wait_for(host, "systemctl is-active munge", "active") == "active"
    called = "pgrep --full --oldest '^/usr/sbin/slurmd ' | wc --lines"
    assert wait_for(host, called, "1") == "1"
    found = properties(host, "muster-key", "NRestarts", "ActiveState")
    assert found == {"NRestarts": "1", "ActiveState": "active"}
