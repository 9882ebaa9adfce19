"""Folders of a real CephFS, mounted by ceph-fuse before those who need them, and only as allowed.

The kernel's client, which containers can't have, is in tests/vm.
"""

import re
import time

import pytest

UNITS = {"/srv/home-1": r"srv-home\x2d1.mount", "/apps": "apps.mount", "/data": "data.mount"}
EXPORTS = {"/srv/home-1": "/home", "/apps": "/apps", "/data": "/data"}
WAITING = "/run/systemd/system/waiting.service"
# A key of Ceph, and nobody's.
OTHER_KEY = "AQBTz2JnAAAAABAAk4vDFzMzdBmK0Pwr0f6zgQ=="
# By RFC 5737 nobody's address.
NOWHERE = "192.0.2.77"


def kind_of(host, path):
    """Return the type of what is mounted at `path`, empty if nothing is."""
    table = host.file("/proc/self/mountinfo").content_string
    kinds = [line.split(" - ")[1].split()[0] for line in table.splitlines() if f" {path} " in line]
    return kinds[-1] if kinds else ""


def mounts(*more):
    """Return the scenario's mounts and `more`."""
    options = "rw,noatime,nosuid,nodev"
    own = [
        {
            "export": EXPORTS[path],
            "path": path,
            "options": options + (",noexec" * (path == "/data")),
        }
        for path in UNITS
    ]
    return own + [{"export": export, "path": path, "options": options} for export, path in more]


def changed(said, host):
    """Whether a run that ended well changed the host."""
    assert re.search(rf"^{host.check_output('hostname')} +: .* failed=0 ", said, re.MULTILINE), said
    return "changed=0 " not in said


def address(host):
    return host.check_output("hostname --all-ip-addresses").strip()


@pytest.fixture
def waiting(host):
    """A unit that needs a folder, as slurmd does."""
    unit = "[Unit]\\nRequiresMountsFor=/apps\\n[Service]\\nExecStart=/bin/sleep 600\\n"
    host.check_output(f"printf '{unit}' >{WAITING} && systemctl daemon-reload")
    yield
    host.check_output(f"systemctl stop waiting; rm {WAITING}; systemctl daemon-reload")


@pytest.fixture
def user(host):
    """Somebody who is in a folder."""
    host.check_output("systemd-run --quiet --unit=user --working-directory=/apps sleep 600")
    yield
    host.run("systemctl stop user")


@pytest.mark.parametrize("path", UNITS)
def test_folders_are_mounted_now_and_at_each_boot(host, path):
    unit = UNITS[path]
    assert kind_of(host, path) == "fuse.ceph-fuse"
    assert host.run(f"systemctl is-enabled '{unit}'").stdout.strip() == "enabled"
    text = host.file(f"/etc/systemd/system/{unit}").content_string
    assert f"Where={path}\nType=fuse.ceph\n" in text
    assert f"ceph.client_mountpoint={EXPORTS[path]},_netdev" in text


def test_root_alone_reads_the_key_and_it_is_the_client_s_own(host):
    keyring = host.file("/etc/ceph/muster.keyring")
    assert (keyring.user, keyring.group, keyring.mode) == ("root", "root", 0o600)
    own = host.check_output("ceph auth get-key client.muster-compute")
    assert keyring.content_string == f"[client.muster-compute]\n\tkey = {own}\n"
    assert host.check_output("ceph auth get-key client.admin") not in keyring.content_string
    assert not host.file("/etc/ceph/muster.secret").exists


def test_what_is_written_is_in_the_file_system(host):
    host.check_output("date >/srv/home-1/now && sync --file-system /srv/home-1")
    assert host.file("/srv/home-1/now").size > 0
    assert kind_of(host, "/srv/home-1") == "fuse.ceph-fuse"
    host.check_output(r"systemctl restart 'srv-home\x2d1.mount'")
    assert host.file("/srv/home-1/now").size > 0


def test_a_quota_stops_who_writes_on(host):
    full = host.run("dd if=/dev/zero of=/data/full bs=4M count=300 conv=fsync")
    try:
        assert full.rc != 0
        assert "Disk quota exceeded" in full.stderr
        assert host.check_output("df --output=size --block-size=1M /data").split()[-1] == "1024"
    finally:
        host.check_output("rm /data/full")


def test_a_folder_that_the_client_may_only_read_takes_nothing(host):
    assert host.run("ls /apps").rc == 0
    refused = host.run("touch /apps/file")
    assert refused.rc != 0
    assert re.search("Permission denied|Operation not permitted", refused.stderr)


def test_options_of_the_definition_hold(host):
    host.check_output("cp /bin/true /data/program")
    try:
        assert "Permission denied" in host.run("/data/program").stderr
    finally:
        host.check_output("rm /data/program")


def test_a_folder_that_the_client_may_not_use_is_refused_in_a_sentence(host, converge):
    try:
        said = " ".join(
            converge("ceph_client", ceph_client_mounts=mounts(("/others", "/srv/x"))).split()
        )
        assert "can't be mounted at /srv/x: mount failed with" in said
        assert "client.muster-compute, and may it use this folder?" in said
        assert kind_of(host, "/srv/x") == ""
    finally:
        converge("ceph_client")
    assert host.check_output("systemctl list-units --failed --no-legend") == ""


def test_a_wrong_key_is_said_and_soon(host, converge):
    begin = time.monotonic()
    try:
        said = " ".join(
            converge(
                "ceph_client",
                ceph_client_key=OTHER_KEY,
                ceph_client_key_host="",
                ceph_client_mounts=mounts(("/home", "/srv/x")),
            ).split()
        )
        assert "can't be mounted at /srv/x: handle_auth_bad_method" in said
        assert "is the key that of client.muster-compute" in said
        assert OTHER_KEY not in said
        assert time.monotonic() - begin < 120
    finally:
        converge("ceph_client")
    assert OTHER_KEY not in host.file("/etc/ceph/muster.keyring").content_string


def test_a_client_that_ceph_does_not_know_is_named(converge):
    said = " ".join(converge("ceph_client", ceph_client_user="muster-nobody").split())
    assert "gives no key of client.muster-nobody" in said
    said = " ".join(converge("ceph_client", ceph_client_key_host="").split())
    assert "write what `ceph auth get-key client.muster-compute` prints" in said


def test_one_monitor_away_of_several_does_not_matter(host, converge):
    try:
        monitors = [NOWHERE, address(host)]
        said = converge("ceph_client", ceph_client_monitors=monitors)
        assert changed(said, host)
        host.check_output("timeout 60 systemctl restart apps.mount")
        assert kind_of(host, "/apps") == "fuse.ceph-fuse"
    finally:
        converge("ceph_client")


def test_monitors_that_are_all_away_are_named(host, converge):
    begin = time.monotonic()
    try:
        said = " ".join(
            converge(
                "ceph_client",
                ceph_client_monitors=["127.0.0.9", NOWHERE],
                ceph_client_mounts=mounts(("/home", "/srv/x")),
            ).split()
        )
        assert "127.0.0.9, 192.0.2.77 do not answer on port 3300 after 10 s" in said
        assert time.monotonic() - begin < 120
        assert kind_of(host, "/srv/x") == ""
    finally:
        converge("ceph_client")


def test_who_needs_a_folder_waits_for_it(host, waiting):
    host.check_output("systemctl stop apps.mount")
    host.check_output("systemctl start waiting")
    assert kind_of(host, "/apps") == "fuse.ceph-fuse"
    after = host.check_output("systemctl show waiting --property=After --value").split()
    assert "apps.mount" in after


def test_a_folder_may_be_mounted_by_who_enters_it(host, converge):
    try:
        assert changed(converge("ceph_client", ceph_client_automount=True), host)
        host.check_output("systemctl stop apps.mount")
        assert kind_of(host, "/apps") == "autofs"
        host.check_output("ls /apps")
        assert kind_of(host, "/apps") == "fuse.ceph-fuse"
        assert not changed(converge("ceph_client", ceph_client_automount=True), host)
    finally:
        converge("ceph_client")
    assert " autofs " not in host.check_output("grep /apps /proc/self/mountinfo")


def test_mounts_are_made_after_the_network_and_undone_before_it_goes(host):
    after = host.check_output("systemctl show data.mount --property=After --value").split()
    assert {"network.target", "remote-fs-pre.target"} <= set(after)


def test_a_folder_in_use_keeps_its_mount_until_it_is_free(host, converge, user):
    other = [
        mount | ({"options": "ro,noatime,nosuid,nodev"} if mount["path"] == "/apps" else {})
        for mount in mounts()
    ]
    try:
        said = " ".join(converge("ceph_client", ceph_client_mounts=other).split())
        assert "/apps: somebody uses it, so it stays mounted as it is" in said
        assert not changed(converge("ceph_client", ceph_client_mounts=other), host)
        host.check_output("systemctl stop user")
        assert changed(converge("ceph_client", ceph_client_mounts=other), host)
        assert "Read-only file system" in host.run("touch /apps/file").stderr
    finally:
        converge("ceph_client")


def test_a_mount_that_is_taken_out_is_unmounted(host, converge):
    try:
        assert changed(converge("ceph_client", ceph_client_mounts=mounts()[:2]), host)
        assert kind_of(host, "/data") == ""
        assert not host.file("/etc/systemd/system/data.mount").exists
    finally:
        converge("ceph_client")
    assert kind_of(host, "/data") == "fuse.ceph-fuse"
