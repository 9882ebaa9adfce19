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
SPOT = METADATA | {"instance": METADATA["instance"] | {"scheduling": {"preemptible": "TRUE"}}}
FOLDER = {"source": "trial", "path": "/mnt/trial", "type": "tmpfs", "options": ""}
MOUNTING = METADATA["instance"]["attributes"] | {"muster-mounts": json.dumps([FOLDER])}
PLAIN = METADATA | {"instance": METADATA["instance"] | {"attributes": MOUNTING}}
CACHING = METADATA | {
    "instance": METADATA["instance"] | {"attributes": MOUNTING | {"muster-local-ssds": "1"}}
}
SERVER = """
import http.server, os, time, urllib.parse
answers = {
    "/computeMetadata/v1/?recursive=true": METADATA,
    "/computeMetadata/v1/instance/service-accounts/default/token": TOKEN,
    "/v1/projects/demo/secrets/lab-munge-key/versions/latest:access": SECRET,
}
def preempted(query):
    asked = dict(urllib.parse.parse_qsl(query))
    end = time.monotonic() + float(asked["timeout_sec"])
    while True:
        found = "TRUE" if os.path.exists("/root/preempted") else "FALSE"
        if found != asked["last_etag"] or time.monotonic() > end:
            return found
        time.sleep(0.1)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        path, _, query = self.path.partition("?")
        text = answers.get(self.path, "")
        if path == "/computeMetadata/v1/instance/preempted":
            text = preempted(query)
        self.send_response(200 if text else 404)
        self.send_header("ETag", text)
        self.end_headers()
        self.wfile.write(text.encode())
http.server.ThreadingHTTPServer(("169.254.169.254", 80), Handler).serve_forever()
"""
SCOPE = "lab-debug-0_slurmstepd"
"""Where slurmd has the processes of jobs."""
COMMANDS = {
    "scontrol": """#!/bin/sh
echo "scontrol $*" >>/root/slurm/called
if [ "$1" = requeue ]; then
    systemctl is-active slurmd munge SCOPE.scope >>/root/slurm/called
    pkill --full '^slurmstepd: .41.batch'
fi
exit 0
""",
    "squeue": """#!/bin/sh
grep --quiet requeue /root/slurm/called || echo "41 N/A 1 1"
""",
}
"""SLURM with one job, and what it was told."""
LEAVES = (
    "scontrol update nodename=lab-debug-0 state=power_down_asap "
    "reason=muster: Google takes this spot VM back"
)
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
def booted(host, request):
    """A host that finds the metadata of a node, and has booted."""
    metadata = getattr(request, "param", METADATA)
    secret = json.dumps({"payload": {"data": b64encode(b64encode(KEY)).decode()}})
    program = SERVER.replace("METADATA", repr(json.dumps(metadata)))
    program = program.replace("TOKEN", repr('{"access_token": "t"}')).replace(
        "SECRET", repr(secret)
    )
    put(host, "/root/metadata.py", program)
    put(host, "/run/systemd/system/muster-key.service.d/trial.conf", f"[Service]\n{ENDPOINT}\n")
    # Google's images have cron.
    for unit in ("cron", "atd"):
        put(host, f"/run/systemd/system/{unit}.service", "[Service]\nExecStart=sleep infinity\n")
    host.check_output("ip address add 169.254.169.254/32 dev lo")
    host.check_output("cp /etc/hosts /root/hosts; systemctl daemon-reload")
    host.check_output("systemd-run --unit=metadata python3 /root/metadata.py")
    host.check_output("systemctl start apt-daily.timer")
    host.check_output("systemctl start cron atd")
    host.check_output("systemctl start --no-block muster-node.target")
    yield
    # A boot in progress starts its target again once it has the key: stopped before that, it would
    # continue after the stop and disturb the next test.
    key = wait_for(host, "systemctl is-active muster-key", "active")
    units = "muster-node.target muster-key.service muster-mounts.service muster-spot.service"
    host.check_output(f"systemctl stop {units} slurmd munge metadata cron atd")
    host.check_output("systemctl reset-failed")
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


@pytest.fixture
def slurm(host):
    """Commands and a slurmd that need no controller."""
    for name, text in COMMANDS.items():
        put(host, f"/root/slurm/{name}", text.replace("SCOPE", SCOPE))
    host.check_output("chmod 0755 /root/slurm/*")
    units = "/run/systemd/system"
    path = "[Service]\nEnvironment=PATH=/root/slurm:/usr/bin:/bin\n"
    put(host, f"{units}/muster-spot.service.d/90-trial.conf", path)
    slurmd = "[Service]\nType=exec\nExecStart=\nExecStart=/usr/bin/sleep infinity\n"
    put(host, f"{units}/slurmd.service.d/90-trial.conf", slurmd)
    yield
    host.check_output("rm -rf /root/slurm /root/preempted")
    host.check_output(f"rm -r {units}/muster-spot.service.d {units}/slurmd.service.d")
    host.check_output("systemctl daemon-reload")


@pytest.fixture
def cache(host):
    """Units of a cache that write down when they start, without disk and kernel; and its mounts."""
    wrote = "ExecStartPre=/bin/sh -c 'echo {} >>/root/order'"
    disk = wrote.format("disk $LOCAL_SSDS $MUSTER_CACHE_DISK")
    trials = {
        "muster-cache-disk": f"ExecStartPre=\n{disk}\nExecStart=\nExecStart=/root/cache-disk",
        "cachefilesd": f"ExecStartPre=\n{wrote.format('daemon')}\n"
        "ExecStart=\nExecStart=/usr/bin/sleep infinity",
        "muster-mounts": wrote.format("mounts"),
    }
    for unit, lines in trials.items():
        put(host, f"/run/systemd/system/{unit}.service.d/90-trial.conf", f"[Service]\n{lines}\n")
    put(host, "/root/cache-disk", "#!/bin/sh\n! test -e /root/no-cache\n")
    host.check_output("chmod 0755 /root/cache-disk")
    yield
    host.check_output("systemctl stop cachefilesd muster-cache-disk; systemctl reset-failed")
    host.check_output("rm -rf /root/order /root/cache-disk /root/no-cache; umount /mnt/trial")
    drop_ins = " ".join(f"/run/systemd/system/{unit}.service.d" for unit in trials)
    host.check_output(f"rm -r {drop_ins}; systemctl daemon-reload")


@pytest.fixture
def failing_cache(host):
    """A disk of the cache that can't be mounted."""
    host.check_output("touch /root/no-cache")


def order(host):
    """What was started, once the folders are mounted."""
    assert wait_for(host, "systemctl is-active muster-mounts", "active") == "active"
    assert host.mount_point("/mnt/trial").exists
    return host.check_output("cat /root/order").splitlines()


def properties(host, unit, *names):
    """What systemd says of a unit."""
    options = " ".join(f"--property={name}" for name in names)
    said = host.check_output(f"systemctl show {unit} {options}")
    return dict(line.split("=", 1) for line in said.splitlines())


def test_systemd_understands_the_units(host):
    units = "muster-node.target muster-key.service muster-mounts.service muster-spot.service"
    verified = host.run(f"systemd-analyze verify {units}")
    complaints = [line for line in verified.stderr.splitlines() if "muster" in line]
    assert (verified.rc, complaints) == (0, [])


def test_on_a_machine_that_is_no_node_nothing_starts(host):
    # The units are those of an image: they count from its next boot on.
    host.check_output("rm -f /etc/munge/munge.key; systemctl daemon-reload")
    for unit in ("munge", "slurmd"):
        host.check_output(f"systemctl start {unit}")
        state = properties(host, unit, "ActiveState", "ConditionResult")
        assert state == {"ActiveState": "inactive", "ConditionResult": "no"}


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
    values = properties(host, "slurmd", "After", "EnvironmentFiles")
    needed = {"muster-key.service", "muster-mounts.service", "munge.service"}
    assert needed <= set(values["After"].split())
    assert "muster-key.service" in properties(host, "munge", "After")["After"].split()


@pytest.mark.parametrize("booted", [CACHING], indirect=True)
def test_the_cache_is_there_before_the_first_folder_is_mounted(host, cache, booted):
    assert order(host) == ["disk 1 --device /run/muster-node/local-ssds", "daemon", "mounts"]
    assert host.check_output("systemctl is-active cachefilesd") == "active"


@pytest.mark.proof("boots the node once more, for a fault")
@pytest.mark.parametrize("booted", [CACHING], indirect=True)
def test_without_its_cache_a_node_works(host, cache, failing_cache, booted):
    # It may have been tried once more since, by the end of muster-mounts.
    assert order(host)[:2] == ["disk 1 --device /run/muster-node/local-ssds", "mounts"]
    assert wait_for(host, "systemctl is-failed muster-cache-disk", "failed") == "failed"
    assert properties(host, "cachefilesd", "ActiveState") == {"ActiveState": "inactive"}


@pytest.mark.parametrize("booted", [PLAIN], indirect=True)
def test_a_node_that_caches_nothing_has_no_cache(host, cache, booted):
    assert order(host) == ["mounts"]
    for unit in ("muster-cache-disk", "cachefilesd"):
        state = properties(host, unit, "ActiveState", "ConditionResult")
        assert state == {"ActiveState": "inactive", "ConditionResult": "no"}


def test_a_node_without_local_ssds_says_so(host):
    folder = "/usr/local/lib/muster"
    done = host.run(f"cd {folder} && sed 's/^WAIT_S = .*/WAIT_S = 0/' local_ssds.py | python3 - 2")
    assert (done.rc, done.stdout) == (1, "")
    assert done.stderr.startswith("0 of 2 local SSDs are there (/dev/disk/by-id/google-local-nvme")


def test_nothing_of_mdadm_runs_by_itself(host):
    listed = host.check_output("systemctl list-unit-files --no-legend 'md*'").splitlines()
    states = {line.split()[0]: line.split()[1] for line in listed}
    assert "masked" in states.values()
    assert [unit for unit, state in states.items() if state == "enabled"] == []


def test_apt_leaves_a_node_alone(host, booted):
    assert wait_for(host, "systemctl is-active apt-daily.timer", "inactive") == "inactive"


@pytest.mark.parametrize("unit", ["cron", "atd"])
def test_nothing_of_people_s_runs_on_a_node_outside_of_jobs(host, booted, unit):
    assert wait_for(host, f"systemctl is-active {unit}", "inactive") == "inactive"


def test_a_node_starts_no_user_manager(host, booted):
    ready = "/run/muster-node/slurmd"
    assert wait_for(host, f"ls {ready}", ready) == ready
    host.check_output("systemctl start user@65534")
    assert properties(host, "user@65534", "ConditionResult")["ConditionResult"] == "no"


def test_people_of_the_shared_folder_are_known(host, linked):
    assert host.check_output("id -un 20001") == "ada"
    groups = host.check_output("id -Gn ada").split()
    assert groups == ["ada", "ml-users"]
    assert host.check_output("getent passwd ada").endswith(":/home/ada:/bin/bash")


@pytest.mark.proof("two runs of the role, half a minute")
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
    sources = [line.split() for line in lines if line.startswith(("passwd:", "group:"))]
    assert [line[1:3] for line in sources] == [["files", "extrausers"]] * 2


@pytest.mark.proof("boots the node once more, for a fault")
def test_a_boot_that_fails_is_tried_again(host, stumbling, booted):
    assert wait_for(host, "systemctl is-active munge", "active") == "active"
    called = "pgrep --full --oldest '^/usr/sbin/slurmd ' | wc --lines"
    assert wait_for(host, called, "1") == "1"
    state = properties(host, "muster-key", "NRestarts", "ActiveState")
    assert state == {"NRestarts": "1", "ActiveState": "active"}


def test_a_vm_on_demand_waits_for_no_notice(host, slurm, booted):
    assert wait_for(host, "systemctl is-active munge", "active") == "active"
    host.check_output("systemctl start muster-spot")
    state = properties(host, "muster-spot", "ActiveState", "ConditionResult")
    assert state == {"ActiveState": "inactive", "ConditionResult": "no"}


@pytest.mark.parametrize("booted", [SPOT], indirect=True)
def test_a_spot_vm_leaves_slurm_when_google_takes_it(host, slurm, booted):
    assert wait_for(host, "systemctl is-active muster-spot", "active") == "active"
    host.check_output("touch /root/preempted")
    assert wait_for(host, "systemctl is-active muster-spot", "inactive", 5) == "inactive"
    assert properties(host, "muster-spot", "Result") == {"Result": "success"}
    called = host.check_output("grep scontrol /root/slurm/called").splitlines()
    assert called == [LEAVES, "scontrol requeue 41"]
    # Not before systemd is told to: the notice alone stops nothing.
    assert host.check_output("systemctl is-active slurmd") == "active"


@pytest.fixture
def shutdown(host):
    """A target that stops what poweroff.target stops, like it in one transaction."""
    target = "/run/systemd/system/trial-shutdown.target"
    units = f"muster-spot.service slurmd.service munge.service {SCOPE}.scope"
    put(host, target, f"[Unit]\nConflicts={units}\nDefaultDependencies=no\n")
    host.check_output("systemctl daemon-reload")
    yield "trial-shutdown.target"
    host.check_output(f"systemctl stop trial-shutdown.target; rm {target}; systemctl daemon-reload")


@pytest.mark.parametrize("booted", [SPOT], indirect=True)
def test_at_a_shutdown_jobs_slurmd_and_munged_are_there_until_the_node_has_left(
    host, slurm, booted, shutdown
):
    for unit in ("muster-spot", "munge", "slurmd"):
        assert wait_for(host, f"systemctl is-active {unit}", "active") == "active"
    job = "exec -a 'slurmstepd: [41.batch]' sleep infinity"
    host.check_output(
        f'systemd-run --unit=trial-job systemd-run --scope --unit={SCOPE} bash -c "{job}"'
    )
    assert wait_for(host, f"systemctl is-active {SCOPE}.scope", "active") == "active"
    assert "muster-spot.service" in properties(host, f"{SCOPE}.scope", "Before")["Before"].split()
    # It does not see that it is preempted before it is told to end: systemd lets it go on then.
    host.check_output(
        "systemctl kill --signal=STOP muster-spot && touch /root/preempted && "
        f"systemctl start --no-block {shutdown}"
    )
    # It ends last.
    assert wait_for(host, "systemctl is-active munge", "inactive") == "inactive"
    called = host.check_output("cat /root/slurm/called").splitlines()
    assert called == [LEAVES, "scontrol requeue 41", "active", "active", "active"]


@pytest.mark.proof("boots the node once more")
@pytest.mark.parametrize("booted", [SPOT], indirect=True)
def test_any_other_shutdown_of_a_spot_vm_is_left_alone(host, slurm, booted):
    assert wait_for(host, "systemctl is-active muster-spot", "active") == "active"
    host.check_output("systemctl stop muster-spot")
    assert properties(host, "muster-spot", "Result") == {"Result": "success"}
    assert not host.file("/root/slurm/called").exists
