"""A whole Ceph cluster in one machine: three OSDs, a file system, its folders and clients."""

import json
import time

import pytest

FSID = "6f9a3c1e-0000-4000-8000-000000000001"  # molecule/ceph_cluster/converge.yml
DEVICES = ["/dev/disk/by-id/muster-osd", "/srv/ceph/b.img", "/srv/ceph/c.img"]

MOUNT = """
import cephfs, sys
files = cephfs.LibCephFS(conffile="/etc/ceph/ceph.conf", auth_id=sys.argv[1])
files.conf_set("keyring", "/run/trial.keyring")
files.conf_set("client_mount_timeout", "30")
files.init()
files.mount(mount_root=sys.argv[2].encode(), filesystem_name=b"cephfs")
"""


def ceph(host, command):
    return json.loads(host.check_output(f"timeout 60 ceph {command} --format json"))


def users(host):
    return {entry["entity"]: entry["caps"] for entry in ceph(host, "auth ls")["auth_dump"]}


def wait_for_health(host, seconds=90):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        said = host.run("timeout 60 ceph health detail").stdout
        if said.startswith("HEALTH_OK"):
            return said
        time.sleep(1)
    return said


@pytest.fixture
def as_client(host):
    """Run Python on a folder that a client has mounted in its process."""

    def run(name, folder, code):
        script = f"import sys; sys.argv = ['', '{name}', '{folder}']\n{MOUNT}{code}"
        host.check_output(f"ceph auth get client.{name} -o /run/trial.keyring")
        return host.run("python3 -c %s", script)

    yield run
    host.check_output("rm -f /run/trial.keyring")


def test_clients_have_exactly_the_least_rights(host):
    rights = users(host)
    assert rights["client.muster-compute"] == {
        "mds": "allow rw fsname=cephfs path=/home, allow r fsname=cephfs path=/data/projects",
        "mon": "allow r fsname=cephfs",
        "osd": "allow rw tag cephfs data=cephfs",
    }
    assert rights["client.muster-login"] == {
        "mds": "allow r fsname=cephfs path=/data/projects",
        "mon": "allow r fsname=cephfs",
        "osd": "allow r tag cephfs data=cephfs",
    }


def test_the_cluster_is_healthy(host):
    assert host.check_output("timeout 60 ceph health detail") == "HEALTH_OK"


def test_each_device_is_an_osd_that_is_up(host):
    up = [osd["osd"] for osd in ceph(host, "osd dump")["osds"] if osd["up"] and osd["in"]]
    links = [host.file(f"/var/lib/ceph/osd/ceph-{number}/block").linked_to for number in up]
    assert sorted(links) == sorted(host.check_output(f"realpath {path}") for path in DEVICES)
    for path in DEVICES:
        assert host.check_output(f"stat --dereference --format=%U {path}") == "ceph"


def test_a_file_takes_no_more_room_than_what_is_in_it(host):
    blocks, size = host.check_output("stat --format='%b %s' /srv/ceph/b.img").split()
    assert int(size) == 4 * 2**30
    assert int(blocks) * 512 < 2**30


def test_copies_are_placed_as_the_definition_says(host):
    rules = {rule["rule_id"]: rule for rule in ceph(host, "osd crush rule dump")}
    pools = ceph(host, "osd pool ls detail")
    assert {"cephfs.cephfs.meta", "cephfs.cephfs.data"} < {pool["pool_name"] for pool in pools}
    for pool in pools:
        assert (pool["size"], pool["min_size"]) == (2, 1), pool["pool_name"]
        steps = rules[pool["crush_rule"]]["steps"]
        assert {step.get("type") for step in steps} == {None, "osd"}, pool["pool_name"]
        assert pool["pg_autoscale_mode"] == "on"


def test_what_is_insecure_is_off(host):
    settings = {
        (entry["section"], entry["name"]): entry["value"] for entry in ceph(host, "config dump")
    }
    assert settings["mon", "auth_allow_insecure_global_id_reclaim"] == "false"
    (monitor,) = ceph(host, "mon dump")["mons"]
    addresses = {address["type"]: address["addr"] for address in monitor["public_addrs"]["addrvec"]}
    assert set(addresses) == {"v1", "v2"}
    assert host.socket(f"tcp://{addresses['v2']}").is_listening
    # Without a key there is no access.
    assert host.run("timeout 60 ceph --name client.nobody --keyring /dev/null status").rc != 0


def test_folders_have_their_modes_and_quotas(host, as_client):
    look = (
        "for path in sys.argv[2:]: print(oct(files.stat(path).st_mode & 0o7777), "
        "int(files.getxattr(path, 'ceph.quota.max_bytes')))"
    )
    script = look.replace("sys.argv[2:]", "['/data/projects']")
    assert as_client("admin", "/", script).stdout.split() == ["0o2775", str(2 * 2**30)]
    script = "print(oct(files.stat('/home').st_mode & 0o7777))"
    assert as_client("admin", "/", script).stdout.split() == ["0o755"]


def test_a_client_reaches_its_folders_and_nothing_else(as_client):
    write = "files.mkdir('/trial', 0o755); files.rmdir('/trial'); print('written')"
    done = as_client("muster-compute", "/home", write)
    assert (done.rc, done.stdout) == (0, "written\n"), done.stderr
    for folder in ("/", "/data/projects"):
        done = as_client("muster-compute", folder, write)
        assert done.rc != 0, folder
        assert "PermissionError" in done.stderr or "Permission denied" in done.stderr, done.stderr


def test_a_client_can_t_set_its_quota(as_client):
    done = as_client(
        "muster-compute", "/home", "files.setxattr('/', 'ceph.quota.max_bytes', b'1', 0)"
    )
    assert done.rc != 0
    assert "PermissionError" in done.stderr or "Permission denied" in done.stderr


def test_a_killed_osd_comes_back(host):
    assert host.check_output("systemctl show --property MainPID --value ceph-osd@1") != "0"
    host.check_output("systemctl kill --signal KILL ceph-osd@1")
    deadline = time.monotonic() + 30
    while not host.service("ceph-osd@1").is_running and time.monotonic() < deadline:
        time.sleep(0.5)
    assert host.service("ceph-osd@1").is_running
    assert wait_for_health(host) == "HEALTH_OK\n"


def test_everything_comes_back_after_a_boot(host):
    name = host.check_output("hostname")
    units = [f"ceph-mon@{name}", f"ceph-mgr@{name}", f"ceph-mds@{name}"]
    for unit in [*units, *(f"ceph-osd@{number}" for number in range(3))]:
        assert host.service(unit).is_enabled, unit
    assert host.service("ceph.target").is_enabled
    for kind in ("mon", "mgr", "mds", "osd"):
        assert host.file(f"/etc/systemd/system/ceph.target.wants/ceph-{kind}.target").exists, kind


def test_a_device_is_the_daemon_s_again_after_a_boot(host):
    device = host.check_output(f"realpath {DEVICES[0]}")
    (number,) = (
        number
        for number in range(3)
        if host.file(f"/var/lib/ceph/osd/ceph-{number}/block").linked_to == device
    )
    host.check_output(f"systemctl stop ceph-osd@{number}")
    host.check_output(f"chown root:root {device}")
    host.check_output(f"systemctl start ceph-osd@{number}")
    assert host.file(device).user == "ceph"
    assert wait_for_health(host) == "HEALTH_OK\n"


def test_keys_are_for_root_and_the_daemons(host):
    name = host.check_output("hostname")
    for path, owner in (
        ("/etc/ceph/ceph.client.admin.keyring", "root"),
        ("/var/lib/ceph/bootstrap-osd/ceph.keyring", "root"),
        (f"/var/lib/ceph/mon/ceph-{name}/keyring", "ceph"),
        (f"/var/lib/ceph/mgr/ceph-{name}/keyring", "ceph"),
        (f"/var/lib/ceph/mds/ceph-{name}/keyring", "ceph"),
        ("/var/lib/ceph/osd/ceph-0/keyring", "ceph"),
    ):
        file = host.file(path)
        assert (file.user, file.mode) == (owner, 0o600), path
    assert host.check_output("ls /var/lib/ceph/tmp") == ""


def test_no_key_is_in_a_log(host):
    for entity in ("client.admin", "mon.", "osd.0", "client.muster-compute"):
        key = host.check_output(
            f"ceph auth get-key {entity} || sed -n 's/.*key = //p' /var/lib/ceph/mon/*/keyring"
        )
        assert len(key) == 40, entity
        logs = host.run(
            f"grep -rlF -- '{key}' /var/log /root/.ansible; "
            f"journalctl --no-pager | grep -cF -- '{key}'"
        )
        assert logs.stdout == "0\n", entity


def test_another_cluster_s_host_is_refused_and_left_alone(host, converge):
    before = host.check_output("sha256sum /etc/ceph/ceph.conf")
    other = FSID.replace("1e-", "2e-", 1)
    said = converge("ceph_cluster", ceph_cluster_fsid=other)
    assert f"is of the cluster {FSID}, and this is cluster {other}" in " ".join(said.split())
    assert "changed=0" in said
    assert host.check_output("sha256sum /etc/ceph/ceph.conf") == before


def test_a_device_with_anything_on_it_is_refused_and_left_alone(host, converge):
    device = host.check_output(
        "truncate --size=64M /root/precious; losetup --find --show /root/precious"
    )
    try:
        host.check_output(f"mkfs.ext4 -q -L precious {device}")
        before = host.check_output(f"sha256sum {device}")
        said = converge("ceph_cluster", ceph_cluster_devices=[*DEVICES, device])
        words = " ".join(said.split())
        assert f"{device} holds ext4 (blkid --probe), so no OSD is made of it" in words
        assert f"wipefs --all {device}" in words
        assert "changed=0" in said
        assert host.check_output(f"sha256sum {device}") == before
    finally:
        host.check_output(f"losetup --detach {device}")


def test_an_osd_whose_folder_is_lost_is_found_again(host, converge):
    before = host.check_output("cat /var/lib/ceph/osd/ceph-2/fsid")
    host.check_output("systemctl stop ceph-osd@2")
    host.check_output("rm -r /var/lib/ceph/osd/ceph-2")
    said = converge("ceph_cluster")
    assert "failed=0" in said, said
    assert host.check_output("cat /var/lib/ceph/osd/ceph-2/fsid") == before
    assert len(ceph(host, "osd ls")) == 3
    assert host.service("ceph-osd@2").is_running


def test_the_end_wants_the_uuid_typed_in_and_leaves_nothing(host, purge, converge):
    known = {
        "ceph_cluster_fsid": FSID,
        "ceph_cluster_devices": DEVICES,
        "ceph_cluster_monitors": [{"name": "first"}],
        "cephadm_image": "",
        "cephadm_hosts": [],
    }
    for typed in ({}, {"fsid": FSID.replace("1e-", "2e-", 1)}):
        said = purge(**known, **typed)
        assert "nothing was touched: this ends the cluster with all that is in it" in said
        assert "changed=0" in said
    assert wait_for_health(host) == "HEALTH_OK\n"

    said = purge(**known, fsid=FSID)
    assert "failed=0" in said, said
    assert host.check_output("systemctl list-units --plain --no-legend 'ceph-*@*'") == ""
    assert host.run(f"blkid --probe {DEVICES[0]}").rc == 2
    assert host.run("ls /srv/ceph/*.img /etc/ceph/ceph.conf /var/lib/ceph/*/ceph-*").stdout == ""

    # What is blank again can be taken again.
    said = converge("ceph_cluster")
    assert "failed=0" in said, said
    assert wait_for_health(host) == "HEALTH_OK\n"
