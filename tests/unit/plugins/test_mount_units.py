"""What a table of mounts says, how units are called, and what NFS and CephFS put into them."""

import importlib.util
import shutil
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ansible_collections.muster.slurm.plugins.module_utils.mount_table import (
    automounts,
    mounted,
    unit_name,
)
from ansible_collections.muster.slurm.plugins.module_utils.mount_units import (
    Protocol,
    automount_text,
    missing_options,
    unit_text,
)

MODULES = Path(__file__).parents[3] / "ansible/plugins/modules"

# As /proc/self/mountinfo has it on Debian 12; the second mount of /home hides the first.
TABLE = """\
21 26 0:19 / /sys rw,nosuid,nodev,noexec,relatime shared:7 - sysfs sysfs rw
30 26 8:1 / /home rw,relatime shared:1 - ext4 /dev/sda1 rw
95 26 0:51 / /home rw,nosuid,nodev,noatime - nfs4 storage1:/home rw,vers=4.2,hard,proto=tcp
97 26 0:52 / /srv/my\\040apps ro,nosuid - nfs4 storage1:/srv/apps rw,vers=4.2,soft,nocto
98 26 0:53 / /data rw,nosuid,nodev,noatime - ceph 192.0.2.41:3300:/data \
rw,name=muster-compute,secret=<hidden>,ms_mode=prefer-crc,fsid=0,acl,recover_session=clean,fsc
99 26 0:54 / /models ro,nosuid,nodev,noatime - fuse.ceph-fuse ceph-fuse rw,user_id=0,allow_other
60 26 0:55 / /late rw,relatime shared:9 - autofs systemd-1 rw,fd=32,pgrp=1,timeout=0,direct
61 26 0:56 / /used rw,relatime shared:9 - autofs systemd-1 rw,fd=33,pgrp=1,timeout=0,direct
62 61 0:57 / /used rw,nosuid,nodev,noatime - nfs4 storage1:/used rw,vers=4.2,hard,proto=tcp
"""


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, MODULES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


nfs_mounts, ceph_mounts = load("nfs_mounts"), load("ceph_mounts")

CEPH = {
    "monitors": ["192.0.2.41", "2001:db8::42"],
    "filesystem": "cephfs",
    "user": "muster-compute",
    "driver": "kernel",
    "key_file": "/etc/ceph/muster.secret",
    "config": "/etc/ceph/muster.conf",
}
FUSE = CEPH | {"driver": "fuse"}
DATA = {"export": "/data", "path": "/srv/data", "options": "ro,noatime,nosuid,nodev,fsc"}
NFS = nfs_mounts.PROTOCOL


@pytest.mark.parametrize(
    ("path", "unit"),
    [
        ("/home", "home.mount"),
        ("/srv/data", "srv-data.mount"),
        ("/srv/home-1", r"srv-home\x2d1.mount"),
        ("/srv/a+b_c.d", r"srv-a\x2bb_c.d.mount"),
        ("/.apps", r"\x2eapps.mount"),
    ],
)
def test_a_unit_has_the_name_that_systemd_demands(path: str, unit: str) -> None:
    assert unit_name(path) == unit
    if shutil.which("systemd-escape"):
        said = subprocess.run(
            ["systemd-escape", "--path", "--suffix=mount", path],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
        assert said.stdout.strip() == unit


def test_the_last_mount_of_a_path_is_the_one_that_counts() -> None:
    kind, source, options = mounted(TABLE)["/home"]
    assert (kind, source) == ("nfs4", "storage1:/home")
    assert {"rw", "noatime", "hard", "vers=4.2"} <= options


def test_a_mount_is_read_only_where_it_says_so_itself() -> None:
    options = mounted(TABLE)["/srv/my apps"][2]
    assert "ro" in options
    assert "rw" not in options


def test_an_automount_is_no_mount_and_hides_none() -> None:
    assert automounts(TABLE) == {"/late": "systemd-1", "/used": "systemd-1"}
    assert "/late" not in mounted(TABLE)
    assert mounted(TABLE)["/used"][:2] == ("nfs4", "storage1:/used")


@pytest.mark.parametrize(
    ("protocol", "path", "wanted", "missing"),
    [
        (NFS, "/home", "rw,hard,vers=4.2,proto=tcp,nosuid,nodev,noatime", []),
        # The kernel tells these otherwise, or settles them with the first mount of a server.
        (NFS, "/home", "rw,hard,actimeo=60,nconnect=4", []),
        (NFS, "/home", "ro,hard,vers=4.1,nocto", ["ro", "vers=4.1", "nocto"]),
        (ceph_mounts.protocol(CEPH), "/data", "rw,nosuid,name=muster-compute,fsc,_netdev", []),
        (
            ceph_mounts.protocol(CEPH),
            "/data",
            "ro,noexec,name=muster-login,ms_mode=secure,secretfile=/x",
            ["ro", "noexec", "name=muster-login", "ms_mode=secure"],
        ),
        (ceph_mounts.protocol(FUSE), "/models", "ro,noatime,ceph.id=muster-compute", []),
        (ceph_mounts.protocol(FUSE), "/models", "rw,noexec", ["rw", "noexec"]),
    ],
)
def test_a_mount_with_other_options_is_noticed(
    protocol: Protocol, path: str, wanted: str, missing: list[str]
) -> None:
    kind, _, options = mounted(TABLE)[path]
    assert kind in protocol.kinds
    assert missing_options(protocol.shown, wanted, options) == missing


def test_a_unit_says_what_to_mount_literally() -> None:
    text = unit_text(
        NFS, {"source": "s:/100%", "path": "/home", "type": "nfs4", "options": "rw,hard"}
    )
    assert "What=s:/100%%\n" in text
    assert "Options=rw,hard,retry=9\nTimeoutSec=600\n" in text
    assert "\nOnFailure=muster-mount-again@%N.service\n\n[Mount]\n" in text
    assert "\nWantedBy=remote-fs.target\n" in text


def test_a_boot_starts_the_automount_and_leaves_the_mount_to_who_enters_the_folder() -> None:
    mount = {"source": "s:/100%", "path": "/100%", "type": "nfs4", "options": "rw,hard"}
    text = unit_text(NFS, mount, on_entry=True)
    assert "Options=rw,hard,retry=0\nTimeoutSec=10\n" in text
    assert "[Install]" not in text
    assert "OnFailure" not in text
    # Else five failures in ten seconds take the automount away.
    assert "\nStartLimitIntervalSec=0\n\n[Mount]\n" in text
    text = automount_text(NFS, "/100%")
    assert text.startswith(NFS.mark)
    assert "[Automount]\nWhere=/100%%\n\n[Install]\nWantedBy=remote-fs.target\n" in text
    assert "After=" not in text


def test_each_protocol_knows_its_own_units() -> None:
    marks = {NFS.mark, ceph_mounts.protocol(CEPH).mark, ceph_mounts.protocol(FUSE).mark}
    # A host that changes its driver has units of the other one.
    assert len(marks) == 2


def test_the_kernel_is_told_the_monitors_and_the_port_of_the_protocol_that_it_is_to_speak() -> None:
    assert ceph_mounts.by_kernel(CEPH, DATA) == {
        "source": "192.0.2.41:3300,[2001:db8::42]:3300:/data",
        "path": "/srv/data",
        "type": "ceph",
        "options": "ro,noatime,nosuid,nodev,fsc,name=muster-compute,fs=cephfs,"
        "secretfile=/etc/ceph/muster.secret,conf=/etc/ceph/muster.conf,ms_mode=prefer-crc,"
        "recover_session=clean,_netdev",
    }


def test_ceph_fuse_reads_key_and_monitors_in_its_configuration() -> None:
    assert ceph_mounts.by_fuse(FUSE, DATA | {"options": "rw,noatime"}) == {
        "source": "ceph-fuse",
        "path": "/srv/data",
        "type": "fuse.ceph",
        "options": "rw,noatime,ceph.conf=/etc/ceph/muster.conf,ceph.id=muster-compute,"
        "ceph.client_mountpoint=/data,_netdev",
    }


@pytest.mark.parametrize(
    ("given", "waits"), [(CEPH, "mount_timeout="), (FUSE, "ceph.client_mount_timeout=")]
)
def test_monitors_are_waited_for_within_a_bound(given: dict[str, Any], waits: str) -> None:
    protocol, mount = ceph_mounts.protocol(given), ceph_mounts.by_fuse(FUSE, DATA)
    assert f",{waits}300\nTimeoutSec=600\n" in unit_text(protocol, mount)
    assert f",{waits}5\nTimeoutSec=10\n" in unit_text(protocol, mount, on_entry=True)


@pytest.mark.parametrize(
    ("given", "line", "words"),
    [
        (CEPH, "mount error 13 = Permission denied", "mount error 13 = Permission denied"),
        (
            CEPH,
            "mount error: no mds server is up or the cluster is laggy",
            "mount error: no mds server is up or the cluster is laggy",
        ),
        (
            FUSE,
            "ceph-fuse[811]: ceph mount failed with (1) Operation not permitted",
            "mount failed with (1) Operation not permitted",
        ),
        (
            FUSE,
            "7f52cca166c0 -1 monclient(hunting): handle_auth_bad_method server allowed_methods [2]",
            "handle_auth_bad_method",
        ),
    ],
)
def test_why_a_mount_failed_is_found_in_its_log(
    given: dict[str, Any], line: str, words: str
) -> None:
    match = ceph_mounts.protocol(given).words.search(line)
    assert match is not None
    assert match[0] == words
