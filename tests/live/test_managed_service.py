"""managed_service with a real systemd: when it starts, restarts, reloads or ignores a daemon.

The daemon is a short program that logs what it reads and when; the module runs in the container
as Ansible would run it, but without Ansible.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ansible
import pytest

from muster_sandbox.containers import base_image, machines
from muster_sandbox.containers.podman import podman, run, ulimits

pytestmark = pytest.mark.proof(
    "58 plays on its own daemons, four minutes; roles use the module in `make test`"
)

PLUGINS = Path(__file__).parents[2] / "ansible/plugins"
COLLECTION = "ansible_collections/muster/slurm/plugins"
LIBRARY = Path(ansible.__file__).parent

CONF, HUP_CONF, LOG = "/etc/probe.conf", "/etc/probe-reload.conf", "/run/probe.log"

DAEMON = f"""\
import os, pathlib, signal, socket, subprocess, sys, time
conf = pathlib.Path("{CONF}").read_text().split()
def note(what):
    with open("{LOG}", "a") as log:
        print(what, *conf, pathlib.Path("{HUP_CONF}").read_text(), file=log, flush=True)
note("start")
signal.signal(signal.SIGHUP, lambda *_: note("reload"))
if conf[0] == "die":
    sys.exit("probe.conf: line 1: unknown option")
if conf[0] == "listen":
    time.sleep(float(conf[2]))
    socket.create_server(("127.0.0.2", int(conf[1])))
    door = socket.create_server(("127.0.0.3", int(conf[1])))
    note("listens")
if conf[0] != "wait":
    subprocess.run(["systemd-notify", "--ready"])
while True:
    signal.pause()
"""

UNIT = f"""\
[Service]
Type={{type}}
NotifyAccess=all
User=nobody
ExecStartPre=+/usr/bin/touch {LOG}
ExecStartPre=+/bin/chmod 666 {LOG}
ExecStart=/usr/bin/python3 /usr/local/bin/probe.py
ExecReload=/bin/kill -HUP $MAINPID
{{more}}
[Install]
WantedBy=multi-user.target
"""


SERVICE = {"name": "probe", "config": [CONF], "reload_config": [HUP_CONF]}

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Host:
    """A container with the probe in it."""

    def __init__(self, name: str) -> None:
        # nsenter, because podman exec takes a fifth of a second and there are hundreds of calls.
        self.pid = podman("container", "inspect", "--format", "{{.State.Pid}}", name)

    def sh(self, command: str, *, stdin: str | None = None) -> str:
        """Run `command` and return what it printed; the test ends here if it fails."""
        inside = ["nsenter", "--target", self.pid, "--mount", "--uts", "--ipc", "--net", "--pid"]
        clean = ["env", "--ignore-environment", f"PATH={PATH}", "PYTHONPATH=/opt/library"]
        return run([*inside, "--", *clean, "sh", "-c", command], stdin=stdin).stdout.strip()

    def write(self, path: str, text: str) -> None:
        self.sh(f"cat >{path}", stdin=text)

    def log(self) -> list[str]:
        return self.sh(f"cat {LOG}").splitlines()

    def reset(self, *, kind: str = "notify", more: str = "") -> None:
        self.sh(
            "systemctl unmask -q probe; systemctl disable -q probe; systemctl stop probe;"
            f"rm -rf /run/muster /var/lib/muster /etc/systemd/system/probe.service.d {LOG};"
            "cat >/etc/systemd/system/probe.service; systemctl daemon-reload;"
            f"printf first >{CONF}; printf one >{HUP_CONF}; systemctl reset-failed probe; true",
            stdin=UNIT.format(type=kind, more=more),
        )

    def module(self, *, check: bool = False, **given: Any) -> dict[str, Any]:
        return self.run("managed_service", {**SERVICE, **given}, check=check)

    def files_and_service(
        self, files: list[dict[str, Any]], *, check: bool = False, **given: Any
    ) -> dict[str, Any]:
        arguments = {"files": files, "service": {**SERVICE, **given}}
        return self.run("managed_files", arguments, check=check)

    def run(self, module: str, arguments: dict[str, Any], *, check: bool) -> dict[str, Any]:
        printed = self.sh(
            f"python3 /opt/library/{COLLECTION}/modules/{module}.py || true",
            stdin=json.dumps({"ANSIBLE_MODULE_ARGS": {**arguments, "_ansible_check_mode": check}}),
        )
        result: dict[str, Any] = json.loads(printed)
        return result


@pytest.fixture(scope="module", params=sorted(base_image.RELEASES))
def container(request: pytest.FixtureRequest) -> Iterator[Host]:
    name = f"muster-probe-{request.param}-{os.getpid()}"
    podman(
        *("run", "--detach", "--name", name, "--hostname", "probe", "--no-hosts"),
        *("--systemd=always", "--privileged", *ulimits()),
        *(
            "--volume",
            f"{LIBRARY}:/opt/library/ansible:ro",
            "--volume",
            f"{PLUGINS}:/opt/library/{COLLECTION}:ro",
        ),
        base_image.ensure(request.param),
    )
    try:
        machines.wait_for_boot(name)
        host = Host(name)
        host.write("/usr/local/bin/probe.py", DAEMON)
        yield host
    finally:
        podman("rm", "--force", "--time", "0", name)


@pytest.fixture
def host(container: Host) -> Host:
    container.reset()
    return container


def test_a_fresh_daemon_is_enabled_and_started_once(host: Host) -> None:
    said = host.module(check=True)
    assert host.sh("systemctl is-active probe || true") == "inactive"
    assert host.sh("ls /run/muster 2>/dev/null || true") == ""
    done = host.module()
    for key in ("changed", "action", "diff"):
        assert said[key] == done[key]
    assert (done["changed"], done["action"]) == (True, "start")
    assert host.sh("systemctl is-enabled probe") == "enabled"
    assert host.log() == ["start first one"]

    again = host.module()
    assert (again["changed"], again["action"], again["diff"]) == (False, "none", [])
    assert host.log() == ["start first one"]


def test_a_daemon_that_runs_with_unknown_configuration_is_restarted(host: Host) -> None:
    host.sh("systemctl start probe")
    host.write(CONF, "second")
    assert host.module()["action"] == "restart"
    assert host.log() == ["start first one", "start second one"]


def test_another_configuration_means_a_restart(host: Host) -> None:
    host.module()
    host.write(CONF, "second")
    assert host.module(check=True)["action"] == "restart"
    assert host.module()["action"] == "restart"
    assert host.module()["action"] == "none"
    assert host.log() == ["start first one", "start second one"]


def test_what_is_reread_on_a_reload_means_a_reload(host: Host) -> None:
    host.module()
    process = host.sh("systemctl show -P MainPID probe")
    host.write(HUP_CONF, "two")
    assert host.module(check=True)["action"] == "reload"
    assert host.module()["action"] == "reload"
    assert host.module()["action"] == "none"
    assert host.log() == ["start first one", "reload first two"]
    assert host.sh("systemctl show -P MainPID probe") == process


def test_a_reload_by_hand_counts(host: Host) -> None:
    host.module()
    host.write(HUP_CONF, "broken")
    host.sh("systemctl reload probe")
    assert host.module()["action"] == "none"
    host.write(HUP_CONF, "one")
    assert host.module()["action"] == "reload"
    assert host.log()[-2:] == ["reload first broken", "reload first one"]


def test_a_reload_command_of_the_caller_is_used(host: Host) -> None:
    host.module()
    host.write(HUP_CONF, "two")
    done = host.module(reload_command=["sh", "-c", "echo told >/run/told"])
    assert done["action"] == "reload"
    assert host.sh("cat /run/told") == "told"
    assert host.module()["action"] == "none"


def test_what_was_repaired_is_told_again_as_somebody_may_have_told_it_broken(host: Host) -> None:
    command = ["sh", "-c", f"cat {HUP_CONF} >>/run/told"]
    host.module(reload_command=command)
    host.write(HUP_CONF, "broken")
    host.sh(f"rm -f /run/told; cat {HUP_CONF} >>/run/told")
    host.write(HUP_CONF, "one")
    repaired = {HUP_CONF: host.sh("printf one | sha256sum").split()[0]}
    for check in (True, False):
        done = host.module(check=check, reload_command=command, pending=repaired)
        assert done["action"] == "reload"
    assert host.sh("cat /run/told") == "brokenone"


def test_what_a_start_does_not_hand_out_is_handed_out_after_it(host: Host) -> None:
    host.sh("rm -f /run/told")
    options = {
        "reload_after_start": True,
        "reload_command": ["sh", "-c", f"cat {HUP_CONF} >>/run/told"],
    }
    assert host.module(**options)["action"] == "start"
    assert host.sh("cat /run/told") == "one"
    # A restart by hand doesn't notify the other units.
    host.write(HUP_CONF, "two")
    host.sh("systemctl restart probe")
    assert host.module(**options)["action"] == "reload"
    assert host.sh("cat /run/told") == "onetwo"
    # A restart with the configuration they know needs no notice, nor does a boot of this host.
    host.write(CONF, "second")
    assert host.module(**options)["action"] == "restart"
    host.sh("rm -rf /run/muster; systemctl restart probe")
    assert host.module(**options)["action"] == "none"
    assert host.sh("cat /run/told") == "onetwo"


def test_the_daemon_s_own_log_is_a_part_of_the_message(host: Host) -> None:
    host.write("/var/log/probe.log", "[2026-01-01T00:00:00] fatal: no database\n")
    host.write(CONF, "die")
    failed = host.module(log_file="/var/log/probe.log")
    assert "its last words: fatal: no database; fix" in failed["msg"]


def test_a_reload_that_fails_is_tried_again(host: Host) -> None:
    host.module()
    host.write(HUP_CONF, "two")
    failed = host.module(reload_command=["sh", "-c", "echo no such partition >&2; exit 1"])
    assert "no such partition" in failed["msg"]
    assert host.module()["action"] == "reload"


def test_check_mode_knows_what_is_not_on_disk_yet(host: Host) -> None:
    host.module()
    pending = {CONF: host.sh("printf second | sha256sum").split()[0], "/etc/other": "0"}
    assert host.module(check=True, pending=pending)["action"] == "restart"
    # In a real run the files are what they are.
    assert host.module(pending=pending)["action"] == "none"


def test_a_file_that_will_be_removed_means_a_restart(host: Host) -> None:
    host.module()
    assert host.module(check=True, pending={CONF: ""})["action"] == "restart"


def test_a_play_killed_before_the_daemon_was_told_is_made_up_for(host: Host) -> None:
    host.module()
    host.write(CONF, "second")
    host.write(HUP_CONF, "two")
    # The next run knows only the disk and the daemon's own record.
    done = host.module(pending={})
    assert (done["changed"], done["action"]) == (True, "restart")
    assert host.log()[-1] == "start second two"
    assert host.module()["action"] == "none"


def test_files_and_their_daemon_take_one_run(host: Host) -> None:
    files = [{"dest": CONF, "content": "second"}, {"dest": HUP_CONF, "content": "one"}]
    host.module()
    said = host.files_and_service(files, check=True)
    assert host.log() == ["start first one"]
    done = host.files_and_service(files)
    for key in ("changed", "action", "paths", "diff"):
        assert said[key] == done[key]
    assert (done["changed"], done["action"], done["paths"]) == (True, "restart", [CONF])
    assert host.log() == ["start first one", "start second one"]
    again = host.files_and_service(files)
    assert (again["changed"], again["action"], again["diff"]) == (False, "none", [])

    # The daemon alone is enough for a change.
    host.sh("systemctl stop probe")
    done = host.files_and_service(files)
    assert (done["changed"], done["action"], done["paths"]) == (True, "start", [])
    # Of a daemon that does not start the message is the daemon's, and the file is new.
    failed = host.files_and_service([{"dest": CONF, "content": "die"}])
    assert (failed["failed"], failed["changed"], failed["paths"]) == (True, True, [CONF])
    assert "probe.conf: line 1: unknown option" in failed["msg"]


def test_a_daemon_that_a_person_restarted_is_left_alone(host: Host) -> None:
    host.module()
    host.write(CONF, "second")
    host.write(HUP_CONF, "two")
    host.sh("systemctl restart probe")
    assert host.module()["changed"] is False
    assert host.log() == ["start first one", "start second two"]


def test_a_daemon_that_a_person_stopped_and_disabled_is_back(host: Host) -> None:
    host.module()
    host.sh("systemctl disable -q --now probe")
    said = host.module(check=True)
    done = host.module()
    assert (said["action"], done["action"]) == ("start", "start")
    assert said["diff"] == done["diff"]
    assert host.sh("systemctl is-enabled probe; systemctl is-active probe") == "enabled\nactive"


def test_a_disabled_daemon_is_enabled_without_a_restart(host: Host) -> None:
    host.module()
    host.sh("systemctl disable -q probe")
    done = host.module()
    assert (done["changed"], done["action"]) == (True, "none")
    assert host.sh("systemctl is-enabled probe") == "enabled"
    assert host.log() == ["start first one"]


@pytest.mark.parametrize("kind", ["simple", "notify"])
def test_a_daemon_that_dies_at_once_is_reported_in_its_own_words(host: Host, kind: str) -> None:
    host.reset(kind=kind)
    host.module()
    host.write(CONF, "die")
    failed = host.module()
    assert failed["failed"] is True
    assert failed["msg"].startswith("probe: ")
    assert "probe.conf: line 1: unknown option" in failed["msg"]
    host.write(CONF, "second")
    assert host.module()["action"] == "start"


@pytest.mark.parametrize("delay", ["0", "100ms", "10s"])
def test_a_daemon_that_systemd_restarts_all_the_time_is_not_up(host: Host, delay: str) -> None:
    command = "/bin/sh -c 'sleep 0.1; echo out of luck; exit 1'"
    more = (
        f"Restart=always\nRestartSec={delay}\nExecStart=\nExecStart={command}\n"
        "[Unit]\nStartLimitIntervalSec=0"
    )
    host.reset(kind="simple", more=more)
    failed = host.module()
    assert failed["msg"].startswith("probe: it ended right after its start")
    assert "out of luck" in failed["msg"]


def test_a_daemon_that_waits_with_the_old_configuration_gets_the_new_one(host: Host) -> None:
    host.write(CONF, "wait")
    assert "not up after 2 s" in host.module(timeout_seconds=2)["msg"]
    assert host.sh("systemctl is-active probe || true") == "activating"
    host.write(CONF, "second")
    assert host.module(timeout_seconds=10)["action"] == "restart"
    assert host.log()[-1] == "start second one"


def test_the_run_ends_when_the_port_listens(host: Host) -> None:
    host.reset(kind="simple")
    host.write(CONF, "listen 7117 1.5")
    assert host.module(port=7117)["action"] == "start"
    # On an address that is not the first one of this host.
    assert host.log()[-1] == "listens listen 7117 1.5 one"


def test_a_port_that_does_not_listen_in_time_is_named(host: Host) -> None:
    failed = host.module(port=7118, timeout_seconds=2)
    assert failed["failed"] is True
    assert "port 7118" in failed["msg"]


def test_a_port_that_somebody_else_has_is_named_with_its_owner(host: Host) -> None:
    host.reset(kind="simple")
    host.write(CONF, "listen 7119 0")
    host.sh("systemd-run -q --unit squatter python3 -m http.server --bind 127.0.0.2 7119")
    host.sh("for _ in $(seq 50); do ss -ltn | grep -q 7119 && break; sleep 0.1; done")
    try:
        failed = host.module(port=7119, timeout_seconds=10)
    finally:
        host.sh("systemctl stop squatter")
    assert failed["failed"] is True
    assert "port 7119 is in use by python3" in failed["msg"]


def test_the_record_is_for_root_alone(host: Host) -> None:
    host.module()
    host.write(HUP_CONF, "two")
    host.module()
    modes = host.sh("stat -c %a /run/muster /run/muster/probe.config /run/muster/probe.reload")
    assert modes.split() == ["700", "600", "600"]


def test_a_changed_unit_is_read_by_systemd_before_the_restart(host: Host) -> None:
    host.module()
    drop_in = "/etc/systemd/system/probe.service.d/50-test.conf"
    host.write(drop_in, "[Service]\nEnvironment=PROBE=new\n")
    assert host.module(config=[CONF, drop_in])["action"] == "restart"
    assert "PROBE=new" in host.sh("systemctl show -P Environment probe")


def test_a_unit_that_is_not_there_is_named(host: Host) -> None:
    assert "probe2.service is not-found" in host.module(name="probe2")["msg"]
    # In check mode on a new host its package is not installed yet.
    assert host.module(name="probe2", check=True)["action"] == "start"


def test_a_masked_unit_is_named(host: Host) -> None:
    host.sh("rm /etc/systemd/system/probe.service; systemctl mask -q probe")
    assert "probe.service is masked" in host.module()["msg"]
