"""Quotas of homes and projects, over NFS, on a file system of Muster and on an administrator's."""

from collections.abc import Iterator
from typing import Any

import pytest
from vmkit import site
from vmkit.site import Site

pytestmark = pytest.mark.proof("emulated machines of their own; containers have no project quotas")

ROLES = "file_systems,nfs_server,nfs_client,projects,quotas"
ADA = "setpriv --reuid=20001 --regid=20001 --groups=20001,20008"
BOB = "setpriv --reuid=20002 --regid=20002 --clear-groups"
FULL = "Disk quota exceeded"


def cluster(*, quotas: bool) -> dict[str, Any]:
    """The definition: homes in a file of Muster's, data on an administrator's disk."""
    home = {"quota_gib": 1, "quota_files": 200} if quotas else {}
    project = {"quota_files": 100} if quotas else {}
    return site.CLUSTER | {
        "users": {
            "groups": {"vision": {"gid": 20008}},
            "people": {"ada": {"uid": 20001, "groups": ["vision"]}, "bob": {"uid": 20002}},
        },
        "storage": {
            "home": {"kind": "nfs", "path": "/home", "size_gib": 2, **home},
            "data": {"kind": "nfs", "path": "/data"},
            "projects": {"photos": {"group": "vision", **project}},
        },
    }


@pytest.fixture(scope="module")
def two() -> Iterator[Site]:
    """A server and a client, with quotas."""
    with site.booted() as machines:
        for machine in machines.machines:
            # As the role users makes them.
            machine.check("groupadd -g 20008 vision; groupadd -g 20001 ada; groupadd -g 20002 bob")
            machine.check("useradd -M -u 20001 -g ada -G vision -d /home/ada -s /bin/bash ada")
            machine.check("useradd -M -u 20002 -g bob -d /home/bob -s /bin/bash bob")
        for name in ("ada", "bob"):
            machines.server.check(f"install -d -o {name} -g {name} -m 700 /home/{name}")
        machines.server.check("install -o ada -g ada -D /dev/null /home/ada/sub/old")
        machines.server.check("truncate -s 320M /srv/disk && mkfs.xfs -q /srv/disk && mkdir /data")
        machines.server.check("mount -o loop,prjquota,nosuid,nodev /srv/disk /data")
        machines.define(cluster(quotas=True))
        machines.play(roles=ROLES)
        yield machines


def test_a_home_holds_its_quota_and_no_more(two: Site) -> None:
    two.client.check(f"{ADA} fallocate -l 900M /home/ada/big")
    try:
        done = two.client.ssh(f"{ADA} fallocate -l 200M /home/ada/more")
        assert FULL in done.stderr, done.stdout + done.stderr
        done = two.client.ssh(f"{ADA} dd if=/dev/zero of=/home/ada/more bs=1M count=200")
        assert FULL in done.stderr, done.stdout + done.stderr
        # There is room for all others.
        two.client.check(f"{BOB} sh -c 'fallocate -l 200M ~bob/more && rm ~bob/more'")
    finally:
        two.client.check(f"{ADA} rm -f /home/ada/big /home/ada/more")


MANY = "i=0; while touch $0/f$i; do i=$((i+1)); done; rm -f $0/f*; echo $i"


@pytest.mark.parametrize(
    ("folder", "most", "says"),
    # XFS answers so for projects (xfs_trans_dqresv).
    [("/home/ada", 200, FULL), ("/data/photos", 100, "No space left on device")],
    ids=["ext4", "xfs"],
)
def test_the_number_of_files_is_limited(two: Site, folder: str, most: int, says: str) -> None:
    done = two.client.ssh(f"{ADA} sh -c '{MANY}' {folder}")
    assert says in done.stderr
    # The folder itself counts, and what it has already.
    assert most - 10 < int(done.stdout) < most


def test_what_was_there_before_counts(two: Site) -> None:
    assert two.server.check("lsattr -p /home/ada/sub/old").split()[0] == "20001"


def test_nobody_leaves_a_quota_from_a_node(two: Site) -> None:
    """On the server an owner may give a file to another project (ioctl_xfs_fsgetxattr(2))."""
    assert two.client.ssh(f"{ADA} chattr -p 0 /home/ada/sub/old").returncode != 0
    assert two.server.check("lsattr -p /home/ada/sub/old").split()[0] == "20001"


def test_people_see_their_quotas_and_are_told_at_login_near_a_limit(two: Site) -> None:
    two.client.check(f"{ADA} fallocate -l 512M /home/ada/big")
    shown = two.client.check(f"{ADA} muster-quota").splitlines()
    assert shown[1].split()[:6] == ["/home/ada", "512.0", "MiB", "1.0", "GiB", "50%"]
    assert shown[2].split()[:1] == ["/data/photos"]
    assert shown[2].split()[-2:] == ["100", "1%"]
    login = f"{ADA} env HOME=/home/ada bash -lic true"
    assert "nearly full" not in two.client.check(login)
    two.client.check(f"{ADA} fallocate -l 1000M /home/ada/big")
    assert "/home/ada is nearly full: 1000.0 MiB of 1.0 GiB (98%)" in two.client.check(login)
    two.client.check(f"{ADA} rm /home/ada/big")


def test_a_second_run_changes_nothing(two: Site) -> None:
    assert two.play(roles="file_systems,projects,quotas") == set()


def test_quotas_that_are_taken_out_of_the_definition_are_taken_away(two: Site) -> None:
    two.define(cluster(quotas=False))
    assert two.play(roles="quotas") == {"storage1: quotas : Limit what folders may hold"}
    two.client.check(f"{ADA} sh -c 'fallocate -l 1100M ~ada/big && rm ~ada/big'")


def test_a_file_system_without_quotas_gets_them_at_the_next_boot(two: Site) -> None:
    apply = "python3 /usr/local/lib/muster/muster_file_systems.py apply"
    two.define(cluster(quotas=False))
    two.play(roles="file_systems")
    two.server.check("systemctl stop nfs-server && umount /home")
    file = "/var/lib/muster/file-systems/muster-home"
    two.server.check(f"tune2fs -O ^quota,^project {file} && {apply}")
    assert "prjquota" not in two.server.check("findmnt -no OPTIONS /home")
    two.define(cluster(quotas=True))
    two.play(roles="file_systems")
    said = two.failed(roles="quotas")
    assert "/home is not mounted with project quotas" in said
    assert "reboot this host" in said
    two.server.check("umount /home")
    # As at boot.
    assert "count what belongs to a project" in two.server.check(apply)
    assert "prjquota" in two.server.check("findmnt -no OPTIONS /home")
    two.server.check("systemctl start nfs-server")
    two.play(roles="quotas")
    assert FULL in two.client.ssh(f"{ADA} fallocate -l 1100M /home/ada/big").stderr
