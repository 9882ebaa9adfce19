"""One cluster of both machines, by a stand-in for cephadm and its containers that knows no more.

What is real: packages, users, sudo, ssh with the manager's key, files, the disk and its label.
"""

import json

import pytest

# molecule/cephadm/converge.yml
FSID = "6f9a3c1e-0000-4000-8000-000000000003"
IMAGE = "localhost/ceph:v18.2.7"
FIRST, OTHER = "bookworm", "trixie"
BOTH = [FIRST, OTHER]
DEVICES = {name: f"/dev/disk/by-id/muster-{name}" for name in BOTH}

AUTHORIZED = "/var/lib/cephadm/.ssh/authorized_keys"
MANAGER_KEY = "/var/lib/stand-in/id_ed25519"
OPTIONS = "-o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"


def is_first(host):
    return host.check_output("hostname") == FIRST


def cluster(host):
    """The cluster's state, which the first machine has."""
    return json.loads(host.file("/var/lib/stand-in/cluster.json").content_string)


@pytest.fixture
def first(host):
    if not is_first(host):
        pytest.skip("of the first machine")
    return host


def address(host, name):
    return host.check_output(f"getent ahostsv4 {name}").split()[0]


def hosts(host, *more):
    """Both machines as the role takes them, with more disks of this one."""
    here = host.check_output("hostname")
    return [
        {
            "name": name,
            "address": address(host, name),
            "devices": [device, *(more if name == here else [])],
        }
        for name, device in DEVICES.items()
    ]


def test_the_manager_s_key_is_accepted_from_its_host_alone(host):
    file = host.file(AUTHORIZED)
    assert (file.user, file.group, file.mode) == ("cephadm", "cephadm", 0o600)
    (line,) = [entry for entry in file.content_string.splitlines() if entry[:1] not in ("#", "")]
    assert line.startswith(f'restrict,from="{address(host, FIRST)}" ssh-ed25519 AAAA')


def test_the_manager_becomes_root_on_each_host(first):
    for name in BOTH:
        command = f"ssh -i {MANAGER_KEY} {OPTIONS} cephadm@{name} sudo -n id -un"
        assert first.check_output(command) == "root", name


def test_nobody_else_does_with_that_key(first):
    copy = f"/run/key-{FIRST}"
    key = first.file(MANAGER_KEY).content_string
    reach = f"ssh -i {MANAGER_KEY} {OPTIONS} cephadm@{OTHER} sudo -n"
    first.check_output(f"{reach} install -m 600 /dev/null {copy}")
    first.check_output(f"printf %s '{key}' | {reach} tee {copy} >/dev/null")
    stolen = f"{reach} ssh -i {copy} {OPTIONS} cephadm@{FIRST} id"
    try:
        done = first.run(stolen)
        assert done.rc == 255
        assert "Permission denied (publickey" in done.stderr
    finally:
        first.check_output(f"{reach} rm {copy}")


def test_the_manager_s_user_has_no_password_and_no_other_way_in(host):
    assert host.check_output("getent shadow cephadm").split(":")[1] == "*"
    assert host.file("/etc/sudoers.d/50-cephadm").mode == 0o440
    rules = host.check_output("sudo -l -U cephadm").splitlines()
    assert [line.strip() for line in rules if "NOPASSWD" in line] == ["(root) NOPASSWD: ALL"]


def test_cephadm_is_the_one_of_the_image(host):
    program = host.file("/usr/local/sbin/cephadm")
    assert (program.user, program.mode) == ("root", 0o755)
    assert program.sha256sum == host.file("/usr/local/lib/stand-in/programs.py").sha256sum
    assert not host.file("/var/lib/stand-in/container").exists


def test_daemons_are_placed_by_one_specification(first):
    state = cluster(first)
    placed = {
        service["service_name"]: (service["placement"], service.get("unmanaged", False))
        for service in state["services"]
    }
    assert placed == {
        "mon": ({"hosts": [FIRST]}, False),
        "mgr": ({"hosts": [FIRST]}, False),
        "mds.cephfs": ({"hosts": BOTH}, False),
        "osd.bookworm": ({"hosts": [FIRST]}, False),
        "osd.trixie": ({"hosts": [OTHER]}, False),
    }
    assert {host["hostname"]: host["labels"] for host in state["hosts"]} == {
        FIRST: ["_admin"],
        OTHER: [],
    }


def test_osds_are_made_of_each_host_s_disks_and_of_no_filter(first):
    services = cluster(first)["services"]
    disks = [
        service["spec"]["data_devices"] for service in services if service["service_type"] == "osd"
    ]
    assert disks == [{"paths": [device]} for device in DEVICES.values()]
    assert cluster(first)["osds"] == {
        f"{name}:{device}": n for n, (name, device) in enumerate(DEVICES.items())
    }


def test_settings_pools_and_file_system_are_those_of_the_definition(first):
    state = cluster(first)
    settings = {
        (setting["section"], setting["name"]): setting["value"] for setting in state["config"]
    }
    assert settings["mon", "auth_allow_insecure_global_id_reclaim"] == "false"
    assert settings["global", "container_image"] == IMAGE
    assert {pool["pool_name"]: pool["size"] for pool in state["pools"]} == {
        "cephfs.cephfs.meta": 2,
        "cephfs.cephfs.data": 2,
    }
    assert state["filesystems"] == [{"fs_name": "cephfs", "standby_count_wanted": 1}]


def test_folders_and_clients_are_made(first):
    state = cluster(first)
    assert state["folders"]["/home"] == {"mode": 0o755}
    quota = {"ceph.quota.max_bytes": str(2 * 2**30)}
    assert state["folders"]["/data/projects"] == {"mode": 0o2775, **quota}
    (client,) = [user for user in state["auth"] if user["entity"] == "client.muster-compute"]
    assert client["caps"] == {
        "mds": "allow rw fsname=cephfs path=/home, allow r fsname=cephfs path=/data/projects",
        "mon": "allow r fsname=cephfs",
        "osd": "allow rw tag cephfs data=cephfs",
    }


def test_a_client_s_key_is_given_as_the_role_of_clients_asks_for_it(first):
    said = first.check_output(
        "timeout 60 ceph --connect-timeout 30 auth get-key client.muster-compute"
    )
    assert len(said) == 40


def test_the_administrator_s_key_is_on_the_first_host_alone_and_in_no_log(host):
    keyring = host.file("/etc/ceph/ceph.client.admin.keyring")
    assert keyring.exists == is_first(host)
    if keyring.exists:
        assert keyring.mode == 0o600
        log = host.file("/var/log/ceph/cephadm.log")
        assert log.mode == 0o600
        assert log.content_string == "DEBUG /usr/bin/ceph-authtool: stdout (a key)\n"
        key = keyring.content_string.split("key = ")[1].strip()
        assert host.run(f"journalctl --no-pager | grep -cF -- '{key}'").stdout == "0\n"


def test_what_is_another_s_is_refused_and_left_alone(host, converge):
    device = host.check_output(
        "truncate --size=64M /root/precious; losetup --find --show /root/precious"
    )
    folder = "/var/lib/ceph/mgr/ceph-theirs"
    host.check_output(f"mkdir -p {folder}")
    try:
        host.check_output(f"mkswap --label precious {device}")
        before = host.check_output(f"sha256sum {device}")
        said = " ".join(converge("cephadm", cephadm_hosts=hosts(host, device)).split())
        assert f"{device} holds swap (blkid --probe), so no OSD is made of it" in said
        assert f"{folder}: the distribution's packages run this cluster here" in said
        assert "changed=0" in said
        assert host.check_output(f"sha256sum {device}") == before
    finally:
        host.check_output(f"losetup --detach {device}; rm /root/precious; rmdir {folder}")


def test_it_ends_by_its_uuid_and_an_interrupted_beginning_is_started_again(first, purge, converge):
    known = {
        **{"ceph_cluster_fsid": FSID, "ceph_cluster_devices": [], "cephadm_hosts": hosts(first)},
        **{"ceph_cluster_monitors": [{"name": FIRST}], "cephadm_image": IMAGE},
    }
    said = purge(beside=[OTHER], **known)
    assert "nothing was touched: this ends the cluster with all that is in it" in said
    assert cluster(first)["fsid"] == FSID

    said = purge(beside=[OTHER], **known, fsid=FSID)
    assert said.count("failed=0") == 2, said
    left = f"/var/lib/ceph/{FSID} /etc/ceph/ceph.* {AUTHORIZED} /etc/sudoers.d/50-cephadm"
    left += " /etc/ssh/sshd_config.d/50-cephadm.conf"
    assert first.run(f"ls {left}").stdout == ""
    assert first.run(f"blkid --probe {DEVICES[FIRST]}").rc == 2

    said = converge("cephadm")
    assert f"{OTHER} can't be asked whether it has a part of cluster {FSID}" in " ".join(
        said.split()
    )
    first.check_output("touch /var/lib/stand-in/fails")
    said = " ".join(converge("cephadm", beside=[OTHER]).split())
    assert "cephadm bootstrap: ERROR: no answer with key (a key); " in said
    first.check_output("rm /var/lib/stand-in/fails")
    said = converge("cephadm", beside=[OTHER])
    assert said.count("failed=0") == 2, said
    assert len(cluster(first)["osds"]) == 2
