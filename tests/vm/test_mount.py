"""One folder served by a kernel and mounted by another: the NFS test of `make test`.

It has its own machines, configured by two roles; all else is in test_nfs.py.
"""

from collections.abc import Iterator

import pytest
from vmkit import site
from vmkit.site import Site

from muster_sandbox.containers import base_image

ROLES = "nfs_server,nfs_client"
ADA = "setpriv --reuid=20001 --regid=20001 --clear-groups"


@pytest.fixture(scope="module")
def two() -> Iterator[Site]:
    """A server and a client, with /home between them."""
    with site.booted() as machines:
        machines.define(
            {
                "name": "vm",
                "os": base_image.RELEASES[site.RELEASE],
                "nodes": {"cpu": {"sockets": 1, "cores_per_socket": 1, "memory_mib": 512}},
                "partitions": {"main": {"nodes": ["cpu"], "default": True}},
                "storage": {"home": {"kind": "nfs", "path": "/home", "own_disk": False}},
            }
        )
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


def test_a_second_run_changes_nothing(two: Site) -> None:
    assert two.play(roles=ROLES) == set()
