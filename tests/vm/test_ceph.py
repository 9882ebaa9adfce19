"""CephFS mounted by a kernel: the role ceph_client with an existing Ceph cluster."""

import re

import pytest
from vmkit.ceph import Ceph
from vmkit.site import Site
from waiting import until

pytestmark = pytest.mark.proof(
    "emulated machines with a Ceph cluster beside them take ten minutes and more"
)

MIB = 2**20
KEPT_MIB = 8


def options(pair: Site) -> tuple[str, set[str]]:
    """Type and options of the node's mount at /data, from its kernel."""
    table = pair.client.check("cat /proc/self/mountinfo")
    line = next(line for line in table.splitlines() if line.split()[4] == "/data")
    own, _, of_system = line.partition(" - ")
    kind, _, shared = of_system.split()
    return kind, {*own.split()[5].split(","), *shared.split(",")}


def test_what_one_host_writes_the_other_reads(pair: Site) -> None:
    kind, mount_options = options(pair)
    assert kind == "ceph"
    assert mount_options >= {"rw", "nosuid", "nodev", "noatime", "recover_session=clean"}
    pair.server.check("install -d -o 20001 -g 20001 -m 700 /data/ada")
    ada = "setpriv --reuid=20001 --regid=20001 --clear-groups"
    pair.client.check(f"{ada} sh -c 'echo from the node >/data/ada/file'")
    assert pair.server.check("cat /data/ada/file") == "from the node"
    assert pair.server.check("stat -c %u:%g /data/ada/file") == "20001:20001"


def test_the_key_is_nobody_s_and_the_kernel_does_not_show_it(pair: Site, ceph: Ceph) -> None:
    assert pair.client.check("stat -c %a:%U /etc/ceph/muster.secret") == "600:root"
    shown = pair.client.check("cat /proc/mounts; systemctl cat data.mount; ps -ef")
    assert ceph.key not in shown


def test_the_node_sees_its_quota_and_can_not_write_past_it(pair: Site, ceph: Ceph) -> None:
    size = int(pair.client.check("df --output=size --block-size=1M /data").split()[-1])
    assert size == 1024
    # A client without the capability `p` can't change it, even as root.
    lift = "import os; os.setxattr('/data', 'ceph.quota.max_bytes', b'0')"
    assert "Permission" in pair.client.ssh(f'python3 -c "{lift}"').stderr
    # Smaller, so that it is soon reached.
    pair.server.check("install -d -m 1777 /data/small")
    ceph.quota("/data/small", 16 * MIB)
    written = pair.client.ssh("dd if=/dev/zero of=/data/small/big bs=1M count=64 oflag=direct")
    assert "Disk quota exceeded" in written.stderr
    assert int(pair.client.check("stat -c %s /data/small/big")) < 64 * MIB


def test_a_wrong_key_is_refused(pair: Site, ceph: Ceph) -> None:
    wrong = "AQBTz2JnAAAAABAAk4vDFzMzdBmK0Pwr0f6zgQ=="
    known = f"name=muster-compute,secret={wrong},ms_mode=prefer-crc"
    mount = f"timeout 90 mount -t ceph {ceph.address}:3300:/data /mnt/wrong -o {known}"
    done = pair.client.ssh(f"mkdir -p /mnt/wrong && {mount}")
    # So mount.ceph(8) calls it, of Ceph 16 and 18; the role adds what to look at.
    assert re.search(r"mount error: no mds .*is up", done.stderr), done.stderr


def test_a_folder_that_the_key_does_not_hold_can_not_be_mounted(pair: Site, ceph: Ceph) -> None:
    known = "name=muster-compute,secretfile=/etc/ceph/muster.secret,ms_mode=prefer-crc"
    mount = f"timeout 90 mount -t ceph {ceph.address}:3300:/ /mnt/all -o {known}"
    done = pair.client.ssh(f"mkdir -p /mnt/all && {mount}")
    assert "mount error 13 = Permission denied" in done.stderr, done.stderr


def test_what_was_read_of_ceph_can_be_kept_on_the_node(pair: Site, ceph: Ceph) -> None:
    pair.server.check(f"dd if=/dev/urandom of=/data/kept bs=1M count={KEPT_MIB}")
    known = "name=muster-compute,secretfile=/etc/ceph/muster.secret,ms_mode=prefer-crc"
    mount = f"timeout 90 mount -t ceph {ceph.address}:3300:/data /mnt/kept -o ro,fsc,{known}"
    pair.client.check(f"mkdir -p /mnt/kept && {mount}")
    counts = "/sys/kernel/debug/ceph/*/metrics/latency"
    asked = f"cat {counts} | awk '$1 == \"read\" {{n += $2}} END {{print n}}'"

    def reads() -> int:
        """Reads that the node sends to Ceph for reading the file once."""
        before = int(pair.client.check(f"sync; echo 3 >/proc/sys/vm/drop_caches; {asked}"))
        assert pair.client.check("sha256sum </mnt/kept/kept") == whole
        return int(pair.client.check(asked)) - before

    whole = pair.server.check("sha256sum </data/kept")
    try:
        assert reads() > 0
        until(lambda: reads() == 0, "it is kept", 120)
    finally:
        pair.client.check("umount /mnt/kept")
        pair.server.check("rm /data/kept")
