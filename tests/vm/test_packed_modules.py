"""Modules as one squashfs file each, and a tree of 500 modules, over NFS with FS-Cache.

What the kernel counts is the same on emulated machines as on others; how long it takes is not.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest
from vmkit import site
from vmkit.calls import calls
from vmkit.machine import Machine
from vmkit.site import Site
from waiting import until

pytestmark = pytest.mark.proof("five emulated machines, a quarter of an hour and more")

T = TypeVar("T")

ROLES = "lmod,software"
ENVIRONMENT = Path(__file__).with_name("vmkit") / "environment.py"
MAKE = "python3 /opt/environment.py {root}"
CACHE = "/var/cache/fscache"
NOBODY = "setpriv --reuid=65534 --regid=65534 --clear-groups env -i HOME=/tmp PATH=/usr/bin:/bin"
FEWER = 50
"""How many times fewer calls the import of a packed environment takes."""

MANY = 500
MANY_MODULES = f"""
import pathlib
for number in range({MANY}):
    path = pathlib.Path(f"/apps/modules/many/tool{{number // 5}}/{{number % 5}}.lua")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'whatis("Description: number {{number}}")\\nsetenv("TOOL", "{{number}}")\\n')
"""


def cluster(*versions: str) -> dict[str, Any]:
    """The definition: an environment as a folder, and these versions of it that are packed."""
    packed = {
        # The version is in the command, so each is a release of its own.
        version: {
            "form": "squashfs",
            "build": f"{MAKE} && echo {version} >{{root}}/version",
            "prepend_path": {"PYTHONPATH": ""},
        }
        for version in versions
    }
    return site.CLUSTER | {
        "storage": {
            "apps": {"kind": "nfs", "path": "/apps", "cached": True},
            "cache": {"device": "/dev/vda", "any_kernel": site.RELEASE == "bookworm"},
        },
        "software": {
            "modules": {"libs/tree": {"1": {"build": MAKE}}, "libs/packed": packed},
        },
    }


@pytest.fixture(scope="module")
def five() -> Iterator[Site]:
    """A controller that serves /apps from a disk, and four nodes."""
    with site.booted(clients=4, disk="8G") as machines:
        server = machines.server
        server.check("mke2fs -q -t ext4 /dev/vda && mkdir /apps")
        server.check("echo '/dev/vda /apps ext4 nosuid,nodev' >>/etc/fstab && mount /apps")
        server.check(f"cat >/opt/environment.py <<'end'\n{ENVIRONMENT.read_text()}end")
        machines.define(cluster("1"))
        machines.play(roles=site.STORAGE)
        machines.play(roles=ROLES)
        yield machines


def root(machines: Site, module: str) -> str:
    """Return the folder that a module names."""
    return machines.server.check(
        f"sed -n 's/^local root = \"\\(.*\\)\"$/\\1/p' /apps/modules/{module}.lua"
    )


def all_at_once(work: Callable[[Machine], T], nodes: list[Machine]) -> list[T]:
    with ThreadPoolExecutor(len(nodes)) as pool:
        return list(pool.map(work, nodes))


def importing(node: Machine, folder: str) -> Counter[str]:
    """Return the calls that the import of an environment takes."""
    # ssh answers before folders are mounted.
    node.check("systemctl start apps.mount && systemctl start autofs")
    before = calls(node, "/apps")
    program = f"import sys; sys.path.insert(0, '{folder}'); import everything"
    done = node.ssh(f'{NOBODY} python3 -I -c "{program}"', timeout=1800)
    assert done.returncode == 0, done.stderr
    return calls(node, "/apps") - before


def remount(node: Machine) -> None:
    """Unmount /apps, forget what is in memory, and mount it again."""
    node.check("systemctl stop autofs && systemctl stop apps.mount")
    node.check("echo 3 >/proc/sys/vm/drop_caches")
    node.check("systemctl start apps.mount && systemctl start autofs")


def forget(node: Machine) -> None:
    """As if the node had never read anything of /apps."""
    node.check("systemctl stop autofs && systemctl stop apps.mount")
    node.check(f"systemctl stop cachefilesd && rm -rf {CACHE}/* && systemctl start cachefilesd")
    node.check("echo 3 >/proc/sys/vm/drop_caches")
    node.check("systemctl start apps.mount && systemctl start autofs")


def test_a_packed_release_is_one_file_and_a_link_and_works_on_the_controller_too(
    five: Site,
) -> None:
    folder = root(five, "libs/packed/1")
    name = folder.rpartition("/")[2]
    server = five.server
    assert server.check(f"readlink {folder}") == f"/usr/local/lib/muster/releases/{name}"
    assert server.check("ls /apps/.muster/images") == f"{name}.squashfs"
    assert server.check("find /apps -name '*.building' -o -name '*.new'") == ""
    assert server.check(f"cat {folder}/version") == "1"
    row = server.check(
        f"findmnt --noheadings --output FSTYPE,OPTIONS /usr/local/lib/muster/releases/{name}"
    )
    kind, options = row.split()
    assert kind == "squashfs"
    assert {"ro", "nosuid", "nodev"} <= {*options.split(",")}


def test_its_import_takes_fewer_calls_and_after_a_reboot_nothing_is_read(
    five: Site, record_property: Callable[[str, object], None]
) -> None:
    node = five.client
    asked = {}
    for module in ("libs/tree/1", "libs/packed/1"):
        folder = root(five, module)
        forget(node)
        first = importing(node, folder)
        node.reboot()
        asked[module] = first, importing(node, folder)
    record_property(
        "measured",
        "; ".join(
            f"{module}: {sum(first.values())} calls, {first['READ']} READs, after a reboot "
            f"{sum(again.values())}, {again['READ']} READs"
            for module, (first, again) in asked.items()
        ),
    )
    tree, packed = asked["libs/tree/1"], asked["libs/packed/1"]
    for plain, one in zip(tree, packed, strict=True):
        assert sum(one.values()) * FEWER <= sum(plain.values()), (plain, one)
    assert packed[1]["READ"] == 0
    assert tree[0]["READ"] > 3000


def test_so_it_is_with_four_nodes_at_once(
    five: Site, record_property: Callable[[str, object], None]
) -> None:
    nodes, results = five.clients, {}
    for module in ("libs/tree/1", "libs/packed/1"):
        folder = root(five, module)

        def work(node: Machine, folder: str = folder) -> Counter[str]:
            return importing(node, folder)

        all_at_once(forget, nodes)
        first = all_at_once(work, nodes)
        all_at_once(remount, nodes)
        results[module] = first, all_at_once(work, nodes)
    record_property(
        "measured",
        "; ".join(
            f"{module}, each of four: {[sum(one.values()) for one in first]} calls, after a new "
            f"mount {[sum(one.values()) for one in again]}"
            for module, (first, again) in results.items()
        ),
    )
    tree, packed = results["libs/tree/1"], results["libs/packed/1"]
    for plain, ones in zip(tree, packed, strict=True):
        fewest = min(sum(node.values()) for node in plain)
        assert max(sum(node.values()) for node in ones) * FEWER <= fewest
    assert [node["READ"] for node in packed[1]] == [0] * len(nodes)


def test_a_node_mounts_what_was_published_after_its_last_play(five: Site) -> None:
    five.define(cluster("1", "2"))
    five.play("--limit", five.server.name, roles=ROLES)
    load = "module load libs/packed/2 && python3 -c 'import everything, p1.m1; print(p1.m1.v0)'"
    value = five.server.check(f'{NOBODY} bash -lc "{load}"')
    # The node asks the server for attributes once a minute.
    until(
        lambda: five.client.ssh(f'{NOBODY} bash -lc "{load}"').stdout.strip() == value,
        "the module loads on a node",
        300,
    )


def test_what_nobody_uses_is_unmounted_and_its_loop_device_is_free(five: Site) -> None:
    node, folder = five.client, root(five, "libs/packed/1")
    name = folder.rpartition("/")[2]
    node.check(f"systemd-run --quiet --unit=user --working-directory={folder} sleep infinity")

    def looped() -> str:
        # The signal has autofs do at once what it does after ten minutes.
        return node.check("systemctl kill --signal=USR1 autofs; sleep 3; losetup -l -n")

    try:
        until(lambda: looped().count(".squashfs") == 1, "only what is used stays", 60)
        assert name in looped()
    finally:
        node.check("systemctl stop user")
    until(lambda: ".squashfs" not in looped(), "it is unmounted", 60)
    assert node.check(f"cat {folder}/version") == "1"


def test_a_node_that_does_not_mount_releases_is_told_so(five: Site) -> None:
    node = five.clients[1]
    check = "muster-check-packed /apps/.muster/images"
    assert node.check(check) == ""
    node.check("systemctl stop autofs")
    try:
        done = node.ssh(check)
    finally:
        node.check("systemctl start autofs")
    assert done.returncode == 1
    assert "autofs does not serve /usr/local/lib/muster/releases" in done.stdout


def test_avail_of_500_modules_reads_the_cache_and_walks_no_folder(
    five: Site, record_property: Callable[[str, object], None]
) -> None:
    server, node = five.server, five.clients[2]
    server.check(f"python3 - <<'end'\n{MANY_MODULES}end")
    five.play("--limit", server.name, roles="software")
    lmod = f"{NOBODY} LMOD_PAGER=none bash -lc '$LMOD_CMD bash avail 2>&1'"
    uncached = lmod.replace("LMOD_PAGER", "LMOD_IGNORE_CACHE=1 LMOD_PAGER")
    asked = {}
    for name, command in (("with", lmod), ("without", uncached)):
        remount(node)
        before = calls(node, "/apps")
        shown = node.check(command)
        asked[name] = sum((calls(node, "/apps") - before).values())
        assert len({*re.findall(r"many/tool\d+/\d+", shown)}) == MANY
    record_property("measured", f"NFS calls of `module avail`: {asked}")
    assert asked["with"] * 7 <= asked["without"], asked
    traced = f"strace -f -e trace=openat,getdents64 {lmod} 2>&1"
    opened = [line for line in node.check(traced).splitlines() if "openat" in line]
    assert any("spiderT" in line for line in opened)
    assert [line for line in opened if "/apps/modules" in line] == []
