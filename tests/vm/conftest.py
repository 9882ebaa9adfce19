"""A storage host, which is also the controller, and a node: booted once, set up by site.yml."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
from interrupts import end_cleanly_when_told  # noqa: F401 (a fixture)
from vmkit import site
from vmkit.ceph import ADDRESS, USER, Ceph, raised
from vmkit.site import Site

CLUSTER = site.CLUSTER | {
    "storage": {
        "home": {"kind": "nfs", "path": "/home"},
        "apps": {"kind": "nfs", "path": "/apps", "size_gib": 1, "cached": True},
        "data": {"kind": "ceph", "path": "/data"},
        # Debian 12's kernel is slow at it, but correct.
        "cache": {"device": "/dev/vda", "any_kernel": site.RELEASE == "bookworm"},
    },
}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, value in report.user_properties:
            if name == "measured" and report.when == "call":
                terminalreporter.line(f"{report.nodeid} ({site.RELEASE}): {value}")


@pytest.fixture(scope="session")
def booted() -> Iterator[tuple[Site, Ceph]]:
    """Two booted machines, and a Ceph cluster in a container beside them."""
    with ExitStack() as stack, ThreadPoolExecutor(1) as pool:
        raising = pool.submit(stack.enter_context, raised(site.RELEASE))
        machines = stack.enter_context(site.booted(alone=False))
        yield machines, raising.result()


@pytest.fixture(scope="session")
def ceph(booted: tuple[Site, Ceph]) -> Ceph:
    """The existing Ceph cluster."""
    return booted[1]


@pytest.fixture(scope="session")
def pair(booted: tuple[Site, Ceph]) -> Site:
    """Their cluster: /home on a disk, /apps in a file, /data from Ceph."""
    machines, ceph = booted
    machines.server.check(
        "mke2fs -q -t ext4 /dev/vda && "
        "echo '/dev/vda /home ext4 nosuid,nodev' >>/etc/fstab && mount -a"
    )
    machines.define(
        CLUSTER | {"storage": CLUSTER["storage"] | {"ceph": known(ceph)}}, ceph_key=ceph.key
    )
    machines.play()
    return machines


def known(ceph: Ceph) -> dict[str, Any]:
    """An existing Ceph cluster, as the definition has it."""
    return {"monitors": [ADDRESS], "fsid": ceph.fsid, "user": USER}
