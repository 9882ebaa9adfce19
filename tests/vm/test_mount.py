"""One folder served by a kernel and mounted by another: the NFS test of `make test`.

It has its own machines, configured by two roles; all else is in test_nfs.py.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from vmkit import site
from vmkit.site import Site
from waiting import until

ROLES = "file_systems,nfs_server,nfs_client"
FORGE = Path(__file__).with_name("vmkit") / "forge.py"
ADA = "setpriv --reuid=20001 --regid=20001 --clear-groups"


def cluster(*, home_gib: int) -> dict[str, Any]:
    """The definition: homes in a file system of this size."""
    home = {"kind": "nfs", "path": "/home", "size_gib": home_gib}
    return site.CLUSTER | {"storage": {"home": home}}


@pytest.fixture(scope="module")
def two() -> Iterator[Site]:
    """A server and a client, with /home between them."""
    with site.booted() as machines:
        machines.define(cluster(home_gib=1))
        machines.play(roles=ROLES)
        machines.server.check("install -d -o 20001 -g 20001 -m 700 /home/ada")
        yield machines


def test_a_file_that_somebody_writes_on_a_node_is_on_the_server(two: Site) -> None:
    two.client.check(f"{ADA} sh -c 'echo from the node >/home/ada/file'")
    assert two.server.check("cat /home/ada/file") == "from the node"
    assert two.server.check("stat -c %u:%g /home/ada/file") == "20001:20001"


def test_root_is_squashed(two: Site) -> None:
    for path in ("/home", "/home/ada"):
        done = two.client.ssh(f"touch {path}/planted")
        assert (done.returncode, "Permission denied" in done.stderr) == (1, True), done.stderr


def test_a_program_that_root_of_a_node_leaves_runs_as_who_starts_it(two: Site) -> None:
    """It is slurm, and in the group disk, where the server's own mount has no nosuid."""
    two.server.check("install -d -m 1777 /home/all")
    leave = "cp /usr/bin/id /home/all/id && chmod 6755 /home/all/id"
    two.client.check(f"setpriv --reuid=64030 --regid=6 --clear-groups sh -c '{leave}'")
    assert "euid=" not in two.server.check(f"{ADA} /home/all/id")
    two.server.check("mount -o remount,suid,nodev /home")
    try:
        become = two.server.check(f"{ADA} /home/all/id")
        assert "euid=64030" in become
        assert "egid=6" in become
    finally:
        two.server.check("mount -o remount,nosuid,nodev /home && rm -r /home/all")


def test_the_server_knows_who_has_a_file_open_for_writing(two: Site) -> None:
    """Who moves the folder there asks for them."""
    look = "import sys; sys.path[:0] = ['/usr/local/lib/muster']; import open_files"
    look += "; print(*open_files.writers(['/home'], ['nfs-server']), sep='\\n')"
    holds = "sh -c 'exec sleep 300 >/home/ada/open'"
    two.client.check(f"systemd-run --quiet --unit=holds {ADA} {holds}")
    try:
        until(lambda: two.server.ssh("test -e /home/ada/open").returncode == 0, "it is open")
        (found,) = two.server.check(f'python3 -c "{look}"').splitlines()
        assert found.startswith("NFS client 192.0.2.2 (/proc/fs/nfsd/clients/")
        assert found.endswith("/open")
    finally:
        two.client.check("systemctl stop holds")
    until(lambda: two.server.check(f'python3 -c "{look}"') == "", "nobody has it open")


def forged(two: Site, served: str, inode: str, text: str = "") -> str:
    """What root of the client gets for a file with this number, next to one that is served.

    It is the file's content, or nothing where this text is written to its beginning, or the error.
    """
    two.client.check(f"cat >/root/forge.py <<'EOF'\n{FORGE.read_text()}EOF")
    done = two.client.ssh(f"python3 /root/forge.py {served} {inode} 20001 {text}")
    assert not done.stderr, done.stderr
    return done.stdout


def test_a_forged_file_handle_reaches_no_file_outside_the_folder(two: Site) -> None:
    """It does so where a folder is exported that is a part of another file system."""
    two.server.check("install -o 20001 -m 600 /dev/null /var/lib/precious")
    two.server.check("echo 'not exported' >/var/lib/precious")
    inode = two.server.check("stat -c %i /var/lib/precious")
    two.server.check("mkdir -p /srv/part && echo served >/srv/part/file")
    two.server.check("exportfs -o rw,no_subtree_check,fsid=77 192.0.2.2:/srv/part")
    two.client.check("mount -t nfs4 storage1:/srv/part /mnt")
    try:
        assert forged(two, "/mnt/file", inode) == "not exported\n"
        assert forged(two, "/mnt/file", inode, "was") == ""
        assert two.server.check("cat /var/lib/precious") == "was exported"
    finally:
        two.client.check("umount /mnt")
        two.server.check("exportfs -u 192.0.2.2:/srv/part")
    # The same in homes, with the number of a file there and with that of the other one.
    two.server.check("touch /home/file")
    own = two.server.check("stat -c %i /home/ada/file")
    assert forged(two, "/home/file", own) == "from the node\n"
    assert forged(two, "/home/file", inode) == "Stale file handle\n"
    assert forged(two, "/home/file", inode, "got") == "Stale file handle\n"
    assert two.server.check("cat /var/lib/precious") == "was exported"


def test_a_folder_grows_while_it_is_in_use(two: Site) -> None:
    two.define(cluster(home_gib=2))
    before = int(two.client.check("df --output=size -BM /home").split()[1].rstrip("M"))
    two.play(roles="file_systems")
    after = int(two.client.check("df --output=size -BM /home").split()[1].rstrip("M"))
    assert after > before + 900
    assert two.client.check(f"{ADA} cat /home/ada/file") == "from the node"
