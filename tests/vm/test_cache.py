"""A node's cache of a folder on its own disk, measured by the kernel's counters."""

import json
import time
from collections.abc import Iterator

import pytest
from conftest import CLUSTER
from vmkit.calls import calls
from vmkit.site import Site
from waiting import until

from muster.definition import validate
from muster.render import nfs

pytestmark = pytest.mark.proof(
    "emulated machines with a Ceph cluster beside them take ten minutes and more"
)

MIB = 32
CACHE = "/var/cache/fscache"


@pytest.fixture(scope="module")
def files(pair: Site) -> Iterator[Site]:
    """A file of 32 MiB in /apps, which is cached, and in /home, which is not."""
    for folder in ("/apps", "/home"):
        pair.server.check(f"dd if=/dev/urandom of={folder}/big bs=1M count={MIB} status=none")
    yield pair
    pair.server.check("rm /apps/big /home/big")


def reading(pair: Site, path: str, before: str = "true") -> int:
    """The number of READ calls for reading the file at `path` once, after a command."""
    pair.client.check(before)
    held = calls(pair.client, path)["READ"]
    assert pair.client.check(f"sha256sum <{path}/big") == pair.server.check(
        f"sha256sum <{path}/big"
    )
    return calls(pair.client, path)["READ"] - held


def kept_mib(pair: Site) -> int:
    return int(pair.client.check(f"du -sm {CACHE}").split()[0])


def test_what_was_read_once_is_not_read_again_not_even_after_a_new_mount(files: Site) -> None:
    pair = files
    forget = "sync; echo 3 >/proc/sys/vm/drop_caches"
    first = reading(pair, "/apps", forget)
    assert first > 200
    deadline = time.monotonic() + 60
    while kept_mib(pair) < MIB:
        assert time.monotonic() < deadline, f"{kept_mib(pair)} MiB are in the cache"
        time.sleep(1)
    assert reading(pair, "/apps", forget) == 0
    assert reading(pair, "/apps", "systemctl restart apps.mount") == 0


def test_a_folder_that_is_not_cached_is_read_again(files: Site) -> None:
    forget = "echo 3 >/proc/sys/vm/drop_caches"
    first, second = (reading(files, "/home", forget) for _ in range(2))
    assert first > 200
    assert second == first


def test_two_folders_of_one_file_system_are_cached_and_not_as_each_of_them_says(
    pair: Site,
) -> None:
    # An existing server, such as a filer with all folders on one volume: that of /apps, which is
    # mounted with other options.
    filer = {"kind": "nfs", "server": "storage1"}
    folders = {
        "home": {**filer, "path": "/mnt/plain", "export": "/apps/plain"},
        "data": {**filer, "path": "/mnt/cached", "export": "/apps/cached", "cached": True},
    }
    cluster = CLUSTER | {"storage": {**folders, "cache": {"any_kernel": True}}}
    groups = {"controller": ["a"], "database": [], "login": ["a"], "cpu": ["b"], "compute": ["b"]}
    mounts = nfs.mounts(validate(cluster, groups), computes=True, caches=True)
    assert [mount["path"] for mount in mounts] == ["/mnt/plain", "/mnt/cached"]
    pair.server.check("mkdir /apps/plain /apps/cached")
    try:
        for mount in mounts:
            pair.client.check(
                f"mkdir -p {mount['path']} && timeout 60 mount -t nfs4 -o {mount['options']} "
                f"{mount['source']} {mount['path']}"
            )
        table = pair.client.check("cat /proc/self/mountinfo").splitlines()
        cached = {line.split()[4]: "fsc" in line.split()[-1].split(",") for line in table}
        assert (cached["/mnt/plain"], cached["/mnt/cached"]) == (False, True)
    finally:
        pair.client.ssh("umount /mnt/cached; umount /mnt/plain")
        pair.server.check("rmdir /apps/plain /apps/cached")


def test_the_node_says_what_is_cached_and_what_it_spared(files: Site) -> None:
    report = json.loads(files.client.check("muster-cache --json"))
    assert report["active"]
    assert report["disk"]["bytes"] - report["disk"]["free_bytes"] >= MIB * 2**20
    asked = {folder["path"]: folder["asked"] for folder in report["folders"]}
    assert asked == {"/apps": True, "/home": False}
    files.client.check("systemctl stop cachefilesd")
    done = files.client.ssh("muster-cache")
    files.client.check("systemctl start cachefilesd")
    assert done.returncode == 1
    assert "not cached: cachefilesd does not run" in done.stderr


def test_a_full_disk_costs_speed_alone(files: Site) -> None:
    pair = files
    forget = "sync; echo 3 >/proc/sys/vm/drop_caches"
    filler = f"{CACHE}/filler"
    free = f"$(stat --file-system --format='%a * %S' {CACHE})"
    length = f"$(($(stat --format=%s {filler}) + {free}))"

    def told_full() -> bool:
        # What cachefilesd gives up of the cache to make room is taken, too. It may be less room by
        # then: fallocate takes what there is.
        pair.client.ssh(f"touch {filler}; fallocate --length {length} {filler}")
        done = pair.client.ssh("muster-cache")
        return done.returncode == 1 and "so nothing new is kept" in done.stderr

    try:
        until(told_full, "muster-cache says that the disk is full", 60)
        # However much of it is still cached, the content is right.
        reading(pair, "/apps", forget)
        assert pair.client.check("systemctl is-active cachefilesd apps.mount").split() == [
            "active",
            "active",
        ]
    finally:
        pair.client.check(f"rm {filler}")
    until(lambda: reading(pair, "/apps", forget) == 0, "it is kept again", 120)


def test_the_cache_has_a_disk_of_its_own(pair: Site) -> None:
    assert pair.client.check(f"findmnt -no SOURCE,FSTYPE {CACHE}").split() == [
        "/dev/vda",
        "ext4",
    ]
