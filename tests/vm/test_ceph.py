"""CephFS mounted by a kernel: the role ceph_client against a Ceph cluster that is there already."""

from vmkit.ceph import Ceph
from vmkit.site import Site

MIB = 2**20


def options(pair: Site) -> tuple[str, set[str]]:
    """Type and options of what the node has at /data, as its kernel tells them."""
    table = pair.client.check("cat /proc/self/mountinfo")
    line = next(line for line in table.splitlines() if line.split()[4] == "/data")
    own, _, of_system = line.partition(" - ")
    kind, _, shared = of_system.split()
    return kind, {*own.split()[5].split(","), *shared.split(",")}


def test_what_one_host_writes_the_other_reads(pair: Site) -> None:
    kind, found = options(pair)
    assert kind == "ceph"
    assert found >= {"rw", "nosuid", "nodev", "noatime", "recover_session=clean"}
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
    # A client without the right `p` can't change it, be it root's.
    lift = "import os; os.setxattr('/data', 'ceph.quota.max_bytes', b'0')"
    assert "Permission" in pair.client.ssh(f'python3 -c "{lift}"').stderr
    # Smaller, so that it is soon reached.
    pair.server.check("install -d -m 1777 /data/small")
    ceph.quota("/data/small", 16 * MIB)
    written = pair.client.ssh("dd if=/dev/zero of=/data/small/big bs=1M count=64 oflag=direct")
    assert "Disk quota exceeded" in written.stderr
    assert int(pair.client.check("stat -c %s /data/small/big")) < 64 * MIB


def test_a_folder_that_the_key_does_not_hold_can_not_be_mounted(pair: Site, ceph: Ceph) -> None:
    known = "name=muster-compute,secretfile=/etc/ceph/muster.secret,ms_mode=prefer-crc"
    mount = f"timeout 90 mount -t ceph {ceph.address}:3300:/ /mnt/all -o {known}"
    done = pair.client.ssh(f"mkdir -p /mnt/all && {mount}")
    assert "mount error 13 = Permission denied" in done.stderr, done.stderr
