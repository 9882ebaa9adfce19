"""What a node keeps of a cached folder on a disk of its own: counted where the kernel counts it."""

import json
import time
from collections.abc import Iterator

import pytest
from vmkit.calls import calls
from vmkit.site import Site

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
    """READ calls for reading the file at `path` once, after a command."""
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


def test_a_folder_that_is_not_cached_is_read_anew(files: Site) -> None:
    forget = "echo 3 >/proc/sys/vm/drop_caches"
    first, second = (reading(files, "/home", forget) for _ in range(2))
    assert first > 200
    assert second == first


def test_the_node_says_what_is_cached_and_what_it_spared(files: Site) -> None:
    told = json.loads(files.client.check("muster-cache --json"))
    assert told["active"]
    assert told["disk"]["bytes"] - told["disk"]["free_bytes"] >= MIB * 2**20
    asked = {folder["path"]: folder["asked"] for folder in told["folders"]}
    assert asked == {"/apps": True, "/home": False}
    files.client.check("systemctl stop cachefilesd")
    done = files.client.ssh("muster-cache")
    files.client.check("systemctl start cachefilesd")
    assert done.returncode == 1
    assert "not cached: cachefilesd does not run" in done.stderr


def test_the_cache_has_a_disk_of_its_own(pair: Site) -> None:
    assert pair.client.check(f"findmnt -no SOURCE,FSTYPE {CACHE}").split() == [
        "/dev/nvme1n1",
        "ext4",
    ]
