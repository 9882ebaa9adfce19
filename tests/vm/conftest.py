"""A storage host, which is the controller too, and a node: booted once, raised by site.yml."""

from collections.abc import Iterator

import pytest
from interrupts import end_cleanly_when_told  # noqa: F401 (a fixture)
from vmkit import site
from vmkit.site import Site

CLUSTER = {
    "name": "vm",
    "os": "debian-12",
    "nodes": {"cpu": {"sockets": 1, "cores_per_socket": 1, "memory_mib": 512}},
    "partitions": {"main": {"nodes": ["cpu"], "default": True}},
    "storage": {
        "home": {"kind": "nfs", "path": "/home"},
        "apps": {"kind": "nfs", "path": "/apps", "own_disk": False, "cached": True},
        "data": {"kind": "nfs", "path": "/data", "own_disk": False},
        # Debian 12's kernel is slow at it, and right.
        "cache": {"device": "/dev/nvme1n1", "any_kernel": True},
    },
}


@pytest.fixture(scope="session")
def booted() -> Iterator[Site]:
    """Two machines that have booted."""
    with site.booted() as found:
        yield found


@pytest.fixture(scope="session")
def pair(booted: Site) -> Site:
    """A cluster of them: /home on a disk of its own, /apps and /data on the root disk."""
    booted.server.check(
        "mke2fs -q -t ext4 /dev/nvme1n1 && echo '/dev/nvme1n1 /home ext4' >>/etc/fstab && mount -a"
    )
    booted.define(CLUSTER)
    booted.play()
    return booted
