"""What is served and mounted, and how, as the definition says."""

import shutil
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from muster.definition import Definition, load, validate
from muster.render import ceph, nfs

ROOT = Path(__file__).resolve().parents[3]
GROUPS = {
    "controller": ["access"],
    "database": ["access"],
    "login": ["access"],
    "compute": ["cpu-01", "gpu-01"],
    "cpu": ["cpu-01"],
    "gpu": ["gpu-01"],
    "storage": ["disks"],
    "all": ["access", "cpu-01", "gpu-01", "disks"],
}
NODES = {"sockets": 1, "cores_per_socket": 2, "memory_mib": 2048}
CLUSTER: dict[str, Any] = {
    "name": "lab",
    "os": "debian-13",
    "nodes": {"cpu": NODES, "gpu": NODES},
    "partitions": {"main": {"nodes": ["cpu", "gpu"], "default": True}},
    "storage": {"apps": {"path": "/sw"}},
}
ADDRESSES = {"access": "192.0.2.1", "disks": "192.0.2.9", "cpu-01": "192.0.2.11", "gpu-01": ""}


def defined(**folders: dict[str, Any]) -> Definition:
    """A definition with the folders of CLUSTER, except for these changes."""
    cluster = deepcopy(CLUSTER)
    for key, words in folders.items():
        default = {} if key == "cache" else {"path": f"/{key}"}
        cluster["storage"][key] = default | cluster["storage"].get(key, {}) | words
    return validate(cluster, GROUPS)


NFS = {"kind": "nfs"}


def mounted(definition: Definition, **host_options: bool) -> dict[str, dict[str, Any]]:
    """The mounts of a host by path, their options as a set."""
    return {
        mount["path"]: mount | {"options": set(mount["options"].split(","))}
        for mount in nfs.mounts(definition, **host_options)
    }


def served(definition: Definition) -> dict[str, dict[str, Any]]:
    """The exports of the storage host by path, their clients by host."""
    return {
        export["path"]: export | {"clients": {c["host"]: c for c in export["clients"]}}
        for export in nfs.exports(definition, ADDRESSES)
    }


def test_slurmd_waits_for_all_shared_folders() -> None:
    assert nfs.shared_paths(defined()) == ["/home", "/sw", "/data"]
    assert nfs.shared_paths(defined(models={})) == ["/home", "/sw", "/data", "/models"]


def test_what_exists_already_is_neither_mounted_nor_served() -> None:
    assert nfs.mounts(defined()) == []
    assert nfs.exports(defined(), ADDRESSES) == []
    assert nfs.nfs_connections(defined()) == 0


def test_served_folders_are_mounted_from_the_storage_host() -> None:
    assert nfs.mounts(defined(home=NFS)) == [
        {
            "source": "disks:/home",
            "path": "/home",
            "type": "nfs4",
            "options": "rw,hard,vers=4.2,proto=tcp,nconnect=4,noatime,nosuid,nodev",
        }
    ]


@pytest.mark.parametrize(
    ("words", "source"),
    [
        ({"server": "filer.example.org"}, "filer.example.org:/home"),
        ({"server": "filer", "export": "/vol1/home"}, "filer:/vol1/home"),
        ({"server": "2001:db8::5", "export": "/home"}, "[2001:db8::5]:/home"),
    ],
)
def test_a_server_that_is_there_already_is_mounted_and_not_set_up(
    words: dict[str, str], source: str
) -> None:
    definition = defined(home=NFS | words, apps=NFS)
    assert mounted(definition)["/home"]["source"] == source
    assert list(served(definition)) == ["/sw"]


def test_who_has_root_on_the_homes_makes_them() -> None:
    assert nfs.home_maker(defined(home=NFS)) == "disks"
    assert nfs.home_maker(defined(home=NFS | {"server": "filer"})) == "access"
    assert nfs.home_maker(defined()) == "access"


def test_all_hosts_read_the_modules_and_the_builder_writes_and_sees_at_once_what_it_wrote() -> None:
    reader = mounted(defined(apps=NFS))["/sw"]["options"]
    assert {"ro", "actimeo=60", "nocto"} < reader
    builder = mounted(defined(apps=NFS), builds_software=True)["/sw"]["options"]
    assert "rw" in builder
    assert not builder & {"ro", "actimeo=60", "nocto"}


def test_compute_nodes_read_the_models_that_people_put_there_from_other_hosts() -> None:
    assert "ro" in mounted(defined(models=NFS), computes=True)["/models"]["options"]
    assert "rw" in mounted(defined(models=NFS))["/models"]["options"]


@pytest.mark.parametrize(
    ("words", "there", "not_there"),
    [
        ({}, {"rw", "nosuid", "nodev"}, {"noexec", "ro", "fsc"}),
        ({"read_only": True}, {"ro"}, {"rw", "nocto"}),
        ({"exec": False}, {"noexec"}, set()),
        ({"connections": 8}, {"nconnect=8"}, {"nconnect=4"}),
    ],
)
def test_a_folder_behaves_as_the_definition_says(
    words: dict[str, Any], there: set[str], not_there: set[str]
) -> None:
    options = mounted(defined(data=NFS | words))["/data"]["options"]
    assert there <= options
    assert not options & not_there


def test_only_hosts_with_a_disk_for_it_cache_and_only_what_is_cached() -> None:
    definition = defined(apps=NFS | {"cached": True}, data=NFS)
    node = mounted(definition, computes=True, caches=True)
    assert ("fsc" in node["/sw"]["options"], "fsc" in node["/data"]["options"]) == (True, False)
    assert "fsc" not in mounted(definition, computes=True)["/sw"]["options"]


def test_what_is_cached_and_what_is_not_share_no_superblock_of_a_server() -> None:
    filer = NFS | {"server": "filer"}
    definition = defined(home=filer, apps=filer | {"cached": True}, data=NFS)
    node = mounted(definition, computes=True, caches=True)
    assert "nosharecache" in node["/home"]["options"]
    assert "nosharecache" not in node["/sw"]["options"] | node["/data"]["options"]
    other = mounted(definition)
    assert "nosharecache" not in other["/home"]["options"] | other["/sw"]["options"]


def test_folders_are_served_to_the_hosts_of_the_cluster_alone() -> None:
    exports = served(defined(home=NFS, apps=NFS))
    home = exports["/home"]
    assert list(home["clients"]) == ["192.0.2.1", "192.0.2.11", "gpu-01"]
    assert all(c["writes"] and not c["as_root"] for c in home["clients"].values())
    assert home["fsid"] != exports["/sw"]["fsid"]


def test_only_the_controller_writes_modules_and_it_does_so_as_root() -> None:
    clients = served(defined(apps=NFS))["/sw"]["clients"]
    assert {h: (c["writes"], c["as_root"]) for h, c in clients.items()} == {
        "192.0.2.1": (True, True),
        "192.0.2.11": (False, False),
        "gpu-01": (False, False),
    }


def test_images_are_read_by_nodes_and_pulled_on_other_hosts() -> None:
    assert "ro" in mounted(defined(images=NFS), computes=True)["/images"]["options"]
    assert "rw" in mounted(defined(images=NFS))["/images"]["options"]
    assert (
        served(defined(images=NFS))["/images"]["clients"]
        == served(defined(models=NFS))["/models"]["clients"]
    )


def test_models_are_written_from_where_they_are_added() -> None:
    clients = served(defined(models=NFS))["/models"]["clients"]
    assert {host: client["writes"] for host, client in clients.items()} == {
        "192.0.2.1": True,
        "192.0.2.11": False,
        "gpu-01": False,
    }
    assert not any(client["as_root"] for client in clients.values())
    clients = served(defined(models=NFS | {"read_only": True}))["/models"]["clients"]
    assert not any(client["writes"] for client in clients.values())


def test_what_is_read_only_is_served_read_only() -> None:
    clients = served(defined(data=NFS | {"read_only": True}))["/data"]["clients"]
    assert not any(client["writes"] for client in clients.values())


def test_the_server_is_told_the_connections_of_all_hosts() -> None:
    assert nfs.nfs_connections(defined(home=NFS | {"connections": 8})) == 8 * 4


def test_slurmd_waits_for_the_disk_of_scratch() -> None:
    assert nfs.shared_paths(laid_out(scratch="/mnt/nvme"))[-1] == "/mnt/nvme"


def laid_out(**storage_keys: Any) -> Definition:
    """A definition with the group `vision` and these keys of storage."""
    cluster = {**CLUSTER, "users": {"groups": {"vision": {"gid": 20000}}}}
    return validate({**cluster, "storage": {**CLUSTER["storage"], **storage_keys}}, GROUPS)


PROJECTS = {"photos": {"group": "vision"}}


def test_who_serves_a_folder_makes_those_of_its_groups() -> None:
    data = {"path": "/data", **NFS}
    photos = {"path": "/data/photos", "group": "vision", "readable": False}
    for served, maker in ((data, "disks"), ({"path": "/data"}, "access")):
        # What Muster does not serve the controller can reach.
        definition = laid_out(data=served, projects=PROJECTS)
        hosts = ["access", "disks", "cpu-01"]
        made = {host: nfs.group_folders(definition, host) for host in hosts}
        assert made == {host: [photos] if host == maker else [] for host in hosts}


@pytest.mark.parametrize(
    ("models", "maker"),
    [
        (NFS, "disks"),
        ({}, "access"),
        ({"kind": "nfs", "server": "filer"}, "access"),
        (NFS | {"read_only": True}, None),
        (None, None),
    ],
)
def test_who_has_root_rights_in_the_model_store_makes_it(
    models: dict[str, Any] | None, maker: str | None
) -> None:
    definition = laid_out(models=models)
    store = definition.cluster.storage.models
    names = ("access", "disks", "cpu-01")
    hosts = [name for name in names if nfs.makes_store(definition, store, name)]
    assert hosts == ([maker] if maker else [])


def test_a_storage_host_mounts_what_other_servers_have() -> None:
    filer = {"kind": "nfs", "server": "filer", "export": "/vol1/home"}
    definition = defined(home=filer, data=NFS)
    assert [mount["path"] for mount in nfs.mounts(definition)] == ["/home", "/data"]
    assert [mount["path"] for mount in nfs.mounts(definition, serves=True)] == ["/home"]


LAB = Path(__file__).parents[3] / "inventories/lab"
FILER = "kind: nfs, server: filer.example.org, export: /vol1/{key}"
CEPH = """\
    ceph:
      monitors: [192.0.2.41, 192.0.2.42, 192.0.2.43]
      fsid: 6f9a3c1e-0000-4000-8000-000000000001
"""


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        (FILER, ""),
        (f"{FILER}, cached: true", "    cache: {any_kernel: true}\n"),
        ("kind: ceph", CEPH),
    ],
)
def test_the_lab_s_three_lines_say_where_its_folders_come_from(
    tmp_path: Path, kind: str, more: str
) -> None:
    shutil.copytree(LAB, tmp_path, dirs_exist_ok=True)
    file = tmp_path / "group_vars/all/cluster.yml"
    text = file.read_text()
    for key in ("home", "apps", "data"):
        here = kind.format(key=key) if key != "home" else kind.format(key=key).split(", cached")[0]
        assert text.count(f"{key}: {{kind: existing,") == 1
        text = text.replace(f"{key}: {{kind: existing,", f"{key}: {{{here},")
    file.write_text(text.replace("  storage:\n", f"  storage:\n{more}"))
    definition = load(tmp_path)
    by_ceph = ceph.client(definition, "lab-cpu-01", {})["mounts"] if "ceph" in kind else []
    mounts = nfs.mounts(definition, computes=True, caches=True) + by_ceph
    assert {mount["path"] for mount in mounts} == {"/home", "/apps", "/data"}
    cached = {mount["path"] for mount in mounts if "fsc" in mount["options"].split(",")}
    assert cached == ({"/apps", "/data"} if "cached" in kind else set())


def test_in_the_cloud_the_subnet_is_served_and_nobody_is_root_there() -> None:
    definition = load(ROOT / "inventories/cloud")
    assert definition.cluster.cloud is not None
    clients = [export["clients"] for export in nfs.exports(definition, {})]
    assert clients == [
        [{"host": definition.cluster.cloud.subnet, "writes": writes, "as_root": False}]
        for writes in (True, False, True)
    ]
    assert nfs.nfs_connections(definition) == 4 * sum(
        [1, definition.cluster.cloud.login.count]
        + [len(definition.hosts_of(name)) for name in definition.cluster.nodes]
    )
    controller = f"{definition.cluster.name}-controller"
    assert {mount["source"].partition(":")[0] for mount in nfs.mounts(definition)} == {controller}
