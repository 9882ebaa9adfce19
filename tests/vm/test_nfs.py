"""Folders served and mounted by a kernel: the roles nfs_server and nfs_client.

The machines are booted once; each test leaves them as it found them.
"""

import json
import subprocess
import time
from collections.abc import Iterator

import pytest
from vmkit.site import STORAGE, Site, addresses

from muster.definition import load
from muster.render import nfs

pytestmark = pytest.mark.proof(
    "emulated machines with a Ceph cluster beside them take ten minutes and more"
)

ADA = "setpriv --reuid=20001 --regid=20001 --clear-groups"
EXPORTS = "/etc/exports.d/muster.exports"
GROUP, MEMBERS = 20010, (20011, 20012)


@pytest.fixture
def home(pair: Site) -> Iterator[str]:
    """The home of somebody with the number 20001, made on the server."""
    pair.server.check("install -d -o 20001 -g 20001 -m 700 /home/ada")
    yield "/home/ada"
    pair.server.check("rm -r /home/ada")


@pytest.fixture
def project(pair: Site) -> Iterator[str]:
    """The folder of a group, made on the server, which knows the group's two members."""
    members = " && ".join(f"useradd -M -u {uid} -G speech p{uid}" for uid in MEMBERS)
    pair.server.check(f"groupadd -g {GROUP} speech && {members}")
    made = json.dumps({"projects_folders": [{"path": "/home/speech", "group": "speech"}]})
    pair.play("--limit=storage1", f"--extra-vars={made}", roles="projects")
    yield "/home/speech"
    gone = "; ".join(f"userdel p{uid}" for uid in MEMBERS)
    pair.server.check(f"rm -r /home/speech; {gone}; groupdel speech")


def options_at(pair: Site, path: str) -> set[str]:
    """Options of the client's mount at `path`, from its kernel."""
    table = pair.client.check("cat /proc/self/mountinfo")
    line = next(line for line in table.splitlines() if line.split()[4] == path)
    own, _, of_system = line.partition(" - ")
    kind, source, options = of_system.split()
    assert (kind, source) == ("nfs4", f"storage1:{path}")
    shared = {option for option in options.split(",") if option not in ("rw", "ro")}
    return shared | {*own.split()[5].split(",")}


def state(pair: Site, unit: str) -> str:
    return pair.client.ssh(f"systemctl is-active {unit}").stdout.strip()


def test_a_second_run_changes_nothing(pair: Site) -> None:
    assert pair.play(roles=STORAGE) == set()


def test_the_members_of_a_group_change_each_other_s_files_whatever_their_umask(
    pair: Site, home: str, project: str
) -> None:
    # Of these sixteen go over the wire (RFC 5531, appendix A): the server looks them up itself.
    others = ",".join(str(gid) for gid in range(30001, 30021))
    ann, ben = (f"setpriv --reuid={uid} --regid={uid} --groups={others},{GROUP}" for uid in MEMBERS)
    private = f"sh -c 'umask 077; mkdir {project}/plans; echo from ann >{project}/plans/file'"
    pair.client.check(f"{ann} {private}")
    pair.client.check(f"{ben} sh -c 'umask 077; echo from ben >>{project}/plans/file'")
    pair.client.check(f"{ben} sh -c 'umask 077; echo from ben >{project}/plans/other'")
    assert pair.client.check(f"{ann} cat {project}/plans/file") == "from ann\nfrom ben"
    pair.client.check(f"{ann} rm {project}/plans/other")
    modes = f"stat -c %a:%g {project}/plans {project}/plans/file"
    assert pair.server.check(modes).split() == [f"2770:{GROUP}", f"660:{GROUP}"]
    assert "Permission denied" in pair.client.ssh(f"{ADA} cat {project}/plans/file").stderr
    # In other folders the umask applies.
    pair.client.check(f"{ADA} sh -c 'umask 077; touch {home}/file'")
    assert pair.server.check(f"stat -c %a {home}/file") == "600"


def test_nodes_read_the_modules_and_nobody_writes_them(pair: Site) -> None:
    pair.server.check("echo module >/apps/file")
    assert pair.client.check("cat /apps/file") == "module"
    done = pair.client.ssh("touch /apps/planted")
    assert (done.returncode, "Read-only" in done.stderr) == (1, True), done.stderr


def test_the_server_lets_nodes_write_no_modules_however_they_mount_them(pair: Site) -> None:
    options = "vers=4.2,rw,nosharecache,retry=0"
    mount = f"timeout 60 mount -t nfs4 -o {options} storage1:/apps /mnt/apps"
    pair.client.check(f"mkdir -p /mnt/apps && {mount}")
    try:
        done = pair.client.ssh("touch /mnt/apps/planted")
        assert (done.returncode, "Read-only" in done.stderr) == (1, True), done.stderr
    finally:
        pair.client.check("umount /mnt/apps")


@pytest.mark.parametrize("path", ["/home", "/apps"])
def test_the_kernel_has_the_options_that_were_asked_for(pair: Site, path: str) -> None:
    mounts = nfs.mounts(load(pair.inventory), computes=True, caches=True)
    asked = next(mount["options"] for mount in mounts if mount["path"] == path)
    # The kernel shows actimeo as the options that it sets, without those at their defaults.
    told = {"actimeo=60": {"acregmin=60", "acdirmin=60"}}
    wanted = {told_as for word in asked.split(",") for told_as in told.get(word, {word})}
    # Whatever was asked for: root of another node may have left a program there that is set-uid.
    assert (wanted | {"nosuid", "nodev"}) - options_at(pair, path) == set()


def test_files_are_read_ahead_as_far_as_a_fast_network_needs(pair: Site) -> None:
    table = pair.client.check("cat /proc/self/mountinfo")
    device = next(line.split()[2] for line in table.splitlines() if line.split()[4] == "/home")
    # udev sets it a moment after the mount.
    deadline = time.monotonic() + 60
    while pair.client.check(f"cat /sys/class/bdi/{device}/read_ahead_kb") != "15360":
        assert time.monotonic() < deadline
        time.sleep(1)


def test_only_version_4_is_served(pair: Site) -> None:
    versions = pair.server.check("cat /proc/fs/nfsd/versions").split()
    assert versions == ["-3", "+4", "-4.0", "+4.1", "+4.2"]
    listening = pair.server.check("ss -H -ltunp")
    ports = {line.split()[4].rpartition(":")[2] for line in listening.splitlines()}
    # slurmctld beside NFS and ssh.
    assert ports == {"2049", "22", "6817"}, listening


def mount_from_elsewhere(pair: Site) -> subprocess.CompletedProcess[str]:
    """Mount /home by the server's other address, so from the client's other one."""
    return pair.client.ssh(
        "mkdir -p /mnt/other && "
        "timeout 60 mount -t nfs4 -o vers=4.2,retry=0 198.51.100.1:/home /mnt/other && "
        "umount /mnt/other"
    )


def test_another_network_is_refused(pair: Site) -> None:
    done = mount_from_elsewhere(pair)
    assert done.returncode != 0
    assert "access denied" in done.stderr or "No such file" in done.stderr, done.stderr


def test_changed_exports_need_no_restart_and_open_files_stay_open(pair: Site, home: str) -> None:
    started = "systemctl show nfs-server --property=ActiveEnterTimestampMonotonic"
    before = pair.server.check(f"cp {EXPORTS} /root/exports; {started}")
    pair.client.check(
        f"systemd-run --quiet --unit=writer {ADA} "
        f"sh -c 'while echo line; do sleep 0.2; done >{home}/open'"
    )
    try:
        wider = [
            {**e, "clients": [*e["clients"], {**e["clients"][0], "host": "198.51.100.0/24"}]}
            for e in nfs.exports(load(pair.inventory), addresses(1))
        ]
        changes = json.dumps({"nfs_server_exports": wider, "nfs_server_threads": 20})
        assert pair.play("--limit=storage1", f"--extra-vars={changes}", roles="nfs_server")
        assert pair.server.check("cat /proc/fs/nfsd/threads") == "20"
        assert pair.server.check(started) == before
        done = mount_from_elsewhere(pair)
        assert done.returncode == 0, done.stderr
        lines = int(pair.server.check(f"wc -l <{home}/open"))
        time.sleep(2)
        assert int(pair.server.check(f"wc -l <{home}/open")) > lines
        assert state(pair, "writer") == "active"
    finally:
        pair.client.ssh("systemctl stop writer")
        pair.server.check(f"mv /root/exports {EXPORTS}; exportfs -ra")
    assert mount_from_elsewhere(pair).returncode != 0


WRONG_MOUNTS = [
    (
        {"source": "storage1:/root", "options": "vers=4.2,hard"},
        "No such file or directory; does the server serve it to this host's address?",
    ),
    (
        {"source": "storage1:/home", "options": "vers=4.2,nonsense=1"},
        "an incorrect mount option was specified",
    ),
]


def test_the_role_says_why_a_folder_can_not_be_mounted(pair: Site) -> None:
    mounts = nfs.mounts(load(pair.inventory), computes=True, caches=True)
    for wrong, said in WRONG_MOUNTS:
        changes = json.dumps({"nfs_client_mounts": [*mounts, {**wrong, "path": "/mnt/wrong"}]})
        begin = time.monotonic()
        output = pair.failed("--limit=node1", f"--extra-vars={changes}", roles="nfs_client")
        assert time.monotonic() - begin < 120
        assert said in output, output
    assert "Mount the folders" in " ".join(pair.play("--limit=node1", roles="nfs_client"))
    assert state(pair, "mnt-wrong.mount") == "inactive"
    assert state(pair, "home.mount") == "active"


def test_no_role_waits_for_a_server_that_is_away(pair: Site) -> None:
    person = json.dumps({"users_people": [{"name": "ada", "uid": 20001}]})
    pair.server.check("systemctl stop nfs-server")
    try:
        begin = time.monotonic()
        assert pair.play("--limit=node1", roles="nfs_client") == set()
        assert time.monotonic() - begin < 90
        changed = pair.play("--limit=node1", "--check", f"--extra-vars={person}", roles="users")
        assert "node1: users : Make groups and people" in changed
        assert time.monotonic() - begin < 180
    finally:
        pair.server.check("systemctl start nfs-server")
    # `hard`: processes that waited continue.
    assert "ada" not in pair.client.check("timeout 100 ls /home")
