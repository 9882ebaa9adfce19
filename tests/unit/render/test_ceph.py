"""What is built of Ceph, and who mounts what as whom, as the definition says."""

from copy import deepcopy
from typing import Any

import pytest

from muster.definition import Definition, validate, warnings
from muster.render import ceph, nfs

GROUPS = {
    "controller": ["access"],
    "database": ["access"],
    "login": ["access", "gate"],
    "compute": ["cpu-01"],
    "cpu": ["cpu-01"],
    "storage": ["s1", "s2", "s3", "s4"],
}
ADDRESSES = {
    **{"access": "192.0.2.1", "gate": "192.0.2.2", "cpu-01": "192.0.2.11"},
    **{f"s{n}": f"192.0.2.4{n}" for n in range(1, 5)},
}
DISKS = ["/dev/disk/by-path/pci-0000:01:00.0-nvme-1", "/dev/disk/by-path/pci-0000:02:00.0-nvme-1"]
CLUSTER: dict[str, Any] = {
    "name": "lab",
    "os": "debian-12",
    "users": {"people": {"ada": {"uid": 20001}}},
    "accounts": {"lab": {"users": ["ada"]}},
    "nodes": {"cpu": {"sockets": 1, "cores_per_socket": 2, "memory_mib": 2048}},
    "partitions": {"main": {"nodes": ["cpu"], "default": True}},
    "storage": {
        "home": {"kind": "ceph", "path": "/home"},
        "apps": {"kind": "ceph", "path": "/apps"},
        "data": {"kind": "ceph", "path": "/srv/data", "export": "/data", "size_gib": 500},
        "models": {"kind": "ceph", "path": "/models"},
        "ceph": {"devices": {"storage": DISKS}},
    },
}
EXISTING = {
    "monitors": ["192.0.2.51", "2001:db8::52"],
    "fsid": "4b3e3b9e-0c6f-4f3c-9d0e-1f2a3b4c5d6e",
    "filesystem": "ml",
    "user": "hpc",
}


def defined(groups: dict[str, list[str]] | None = None, **folders: dict[str, Any]) -> Definition:
    """A definition with the folders of CLUSTER, except for these changes."""
    cluster = deepcopy(CLUSTER)
    for key, words in folders.items():
        cluster["storage"][key] = cluster["storage"].get(key, {}) | words
    return validate(cluster, GROUPS | (groups or {}))


def existing() -> Definition:
    cluster = deepcopy(CLUSTER)
    cluster["storage"]["ceph"] = EXISTING
    del cluster["storage"]["data"]["size_gib"]
    return validate(cluster, GROUPS | {"storage": []})


def mounted(definition: Definition, host: str) -> dict[str, set[str]]:
    """The options of what a host mounts, by path."""
    mounts = ceph.client(definition, host, ADDRESSES)["mounts"]
    return {mount["path"]: set(mount["options"].split(",")) for mount in mounts}


def may(definition: Definition) -> dict[str, dict[str, str]]:
    """What each client may do, by folder."""
    clients = ceph.built(definition, "s1", ADDRESSES)["clients"]
    return {
        ceph_client["name"]: {folder["path"]: folder["access"] for folder in ceph_client["folders"]}
        for ceph_client in clients
    }


def test_three_hosts_have_monitors_and_two_the_other_servers() -> None:
    role_variables = ceph.built(defined(), "s4", ADDRESSES)
    assert role_variables["monitors"] == [
        {"name": f"s{n}", "address": f"192.0.2.4{n}"} for n in range(1, 4)
    ]
    assert (role_variables["managers"], role_variables["metadata_servers"]) == (
        ["s1", "s2"],
        ["s1", "s2"],
    )
    assert role_variables["hosts"] == ["s1", "s2", "s3", "s4"]
    assert role_variables["address"] == "192.0.2.44"


def test_two_monitors_would_have_no_majority_without_each_other() -> None:
    definition = defined({"storage": ["s1", "s2"]})
    assert [m["name"] for m in ceph.built(definition, "s2", ADDRESSES)["monitors"]] == ["s1"]


@pytest.mark.parametrize(
    ("hosts", "copies", "domain"),
    [(["s1", "s2", "s3"], 3, "host"), (["s1", "s2"], 3, "osd"), (["s1"], 1, "host")],
)
def test_copies_lie_on_several_hosts_where_there_are_as_many(
    hosts: list[str], copies: int, domain: str
) -> None:
    role_variables = ceph.built(
        defined({"storage": hosts}, ceph={"copies": copies}), "s1", ADDRESSES
    )
    assert (role_variables["copies"], role_variables["failure_domain"]) == (copies, domain)


def test_with_an_image_cephadm_builds_it_and_nobody_else() -> None:
    by_packages, image = defined(), "quay.io/ceph/ceph:v19.2.3"
    assert ceph.built(by_packages, "s1", ADDRESSES)["devices"] == DISKS
    unused = ceph.by_cephadm(by_packages, ADDRESSES)
    assert unused["image"] == ""
    assert [host["devices"] for host in unused["hosts"]] == [[]] * 4

    devices = {"storage": DISKS, "s4": ["/dev/disk/by-id/nvme-C"]}
    by_image = defined(ceph={"image": image, "devices": devices})
    assert ceph.built(by_image, "s1", ADDRESSES)["devices"] == []
    used = ceph.by_cephadm(by_image, ADDRESSES)
    assert used["image"] == image
    assert used["hosts"][2:] == [
        {"name": "s3", "address": "192.0.2.43", "devices": DISKS},
        {"name": "s4", "address": "192.0.2.44", "devices": ["/dev/disk/by-id/nvme-C"]},
    ]


@pytest.mark.parametrize(
    ("host", "disks"), [("s1", ["/dev/sda"]), ("s3", ["/dev/sdc"]), ("s4", ["/dev/sdb"])]
)
def test_disks_are_those_of_the_host_or_else_of_its_group(host: str, disks: list[str]) -> None:
    devices = {"old": ["/dev/sda"], "new": ["/dev/sdb"], "s3": ["/dev/sdc"]}
    groups = {"old": ["s1", "s2"], "new": ["s3", "s4"]}
    definition = defined(groups, ceph={"devices": devices})
    assert ceph.built(definition, host, ADDRESSES)["devices"] == disks


def test_clients_do_not_see_who_built_it() -> None:
    by_image = defined(ceph={"image": "quay.io/ceph/ceph:v19.2.3"})
    for host in ADDRESSES:
        role_variables = ceph.client(by_image, host, ADDRESSES)
        assert role_variables == ceph.client(defined(), host, ADDRESSES)


def test_the_cluster_s_number_is_that_of_its_name() -> None:
    other = deepcopy(CLUSTER) | {"name": "other"}
    numbers = {
        ceph.built(validate(cluster, GROUPS), "s1", ADDRESSES)["fsid"]
        for cluster in (CLUSTER, CLUSTER, other)
    }
    assert len(numbers) == 2
    assert ceph.client(existing(), "access", ADDRESSES)["fsid"] == EXISTING["fsid"]


def test_folders_are_made_with_their_quota_under_their_name_in_the_file_system() -> None:
    assert ceph.built(defined(), "s1", ADDRESSES)["folders"] == [
        {"path": "/home", "mode": "0755", "quota_gib": None},
        {"path": "/apps", "mode": "0755", "quota_gib": None},
        {"path": "/data", "mode": "0755", "quota_gib": 500},
        {"path": "/models", "mode": "0755", "quota_gib": None},
    ]


def test_a_project_has_a_quota_of_its_own_and_the_controller_makes_it_its_group_s() -> None:
    cluster = deepcopy(CLUSTER)
    cluster["users"]["groups"] = {"vision": {"gid": 20000}}
    cluster["storage"]["projects"] = {
        "photos": {"group": "vision", "quota_gib": 5, "quota_files": 9000}
    }
    definition = validate(cluster, GROUPS)
    folders = ceph.built(definition, "s1", ADDRESSES)["folders"]
    quotas = {"quota_gib": 5, "quota_files": 9000}
    assert folders[-1] == {"path": "/data/photos", "mode": "0700", **quotas}
    assert nfs.group_folders(definition, "access") == [
        {"path": "/srv/data/photos", "group": "vision", "readable": False}
    ]
    assert nfs.group_folders(definition, "s1") == []


def test_each_class_of_hosts_may_do_what_its_hosts_need_and_no_more() -> None:
    assert may(defined()) == {
        "muster-controller": {"/home": "rw", "/apps": "rw", "/data": "rw", "/models": "rw"},
        "muster-compute": {"/home": "rw", "/apps": "r", "/data": "rw", "/models": "r"},
        "muster-login": {"/home": "rw", "/apps": "r", "/data": "rw", "/models": "rw"},
    }


def test_what_is_read_only_somebody_can_fill() -> None:
    definition = defined(data={"read_only": True})
    assert {name: paths["/data"] for name, paths in may(definition).items()} == {
        "muster-controller": "rw",
        "muster-compute": "r",
        "muster-login": "r",
    }
    assert "ro" in mounted(definition, "access")["/srv/data"]


@pytest.mark.parametrize(
    ("host", "user"),
    [
        # The controller is a login host too, and it is the one that builds modules.
        ("access", "muster-controller"),
        ("gate", "muster-login"),
        ("cpu-01", "muster-compute"),
    ],
)
def test_a_host_is_the_client_of_its_class(host: str, user: str) -> None:
    role_variables = ceph.client(defined(), host, ADDRESSES)
    assert role_variables["user"] == user
    assert role_variables["key_host"] == "s1"
    assert role_variables["monitors"] == ["192.0.2.41", "192.0.2.42", "192.0.2.43"]


def test_folders_are_mounted_as_the_class_of_the_host_needs_them() -> None:
    safe = {"noatime", "nosuid", "nodev"}
    assert mounted(defined(), "cpu-01") == {
        "/home": {"rw", *safe},
        "/apps": {"ro", *safe},
        "/srv/data": {"rw", *safe},
        "/models": {"ro", *safe},
    }
    assert "rw" in mounted(defined(), "access")["/apps"]
    assert "rw" in mounted(defined(), "gate")["/models"]


def test_a_folder_has_its_own_name_in_the_file_system() -> None:
    mounts = ceph.client(defined(), "gate", ADDRESSES)["mounts"]
    assert {mount["path"]: mount["export"] for mount in mounts} == {
        "/home": "/home",
        "/apps": "/apps",
        "/srv/data": "/data",
        "/models": "/models",
    }


def test_a_folder_behaves_as_the_definition_says() -> None:
    cached = {"cache": {"any_kernel": True}, "apps": {"cached": True}}
    definition = defined(data={"exec": False}, **cached)
    node, gate = mounted(definition, "cpu-01"), mounted(definition, "gate")
    assert "noexec" in node["/srv/data"]
    assert ("fsc" in node["/apps"], "fsc" in gate["/apps"]) == (True, False)
    assert "fsc" not in node["/srv/data"]


def test_a_host_that_has_the_disks_alone_mounts_nothing() -> None:
    assert mounted(defined(), "s1") == {}
    both = defined({"storage": ["access", "s2", "s3"]})
    assert "/home" in mounted(both, "access")
    assert mounted(both, "s2") == {}


def test_a_cluster_that_is_there_already_is_mounted_and_not_built() -> None:
    role_variables = ceph.client(existing(), "cpu-01", ADDRESSES)
    assert {
        key: role_variables[key] for key in ("monitors", "fsid", "filesystem", "user")
    } == EXISTING
    assert role_variables["key_host"] == ""
    assert len(role_variables["mounts"]) == 4


def test_without_ceph_nothing_is_built_and_nothing_mounted() -> None:
    cluster = deepcopy(CLUSTER)
    cluster["storage"] = {}
    definition = validate(cluster, GROUPS)
    assert ceph.built(definition, "s1", ADDRESSES)["devices"] == []
    assert ceph.client(definition, "cpu-01", ADDRESSES)["mounts"] == []


def test_folders_of_ceph_are_none_of_nfs() -> None:
    definition = defined()
    assert nfs.mounts(definition) == []
    assert nfs.exports(definition, ADDRESSES) == []
    assert nfs.home_maker(definition) == "access"


@pytest.mark.parametrize(
    ("definition", "warned"),
    [
        (defined(), None),
        (existing(), None),
        (
            defined(ceph={"devices": {"storage": ["/srv/osd.img"]}}),
            "/srv/osd.img is on another file system",
        ),
        (defined(ceph={"copies": 1}), "with one copy a broken disk"),
        (defined({"storage": ["s1", "s2"]}), "3 copies on 2 hosts"),
        (
            defined(
                {"storage": ["s1"]},
                ceph={"devices": {"storage": ["/dev/sdb", "/dev/sdc", "/dev/sdd"]}},
            ),
            "3 copies on 1 host:",
        ),
        (defined({"storage": ["s1", "s2"]}, ceph={"copies": 2}), "2 hosts have one monitor, on s1"),
        (
            defined(ceph={"devices": {"storage": ["/dev/disk/by-id/nvme-A"]}}),
            "/dev/disk/by-id/nvme-A is likely on one of 4 hosts only",
        ),
        (
            defined(apps={"cached": True}, cache={"any_kernel": True}),
            "storage.apps: FS-Cache behind CephFS is experimental",
        ),
        (defined({"storage": ["access", "s2", "s3"]}), "access would mount what its own disks"),
        (defined({"storage": ["access", "s2", "s3"]}, ceph={"client": "fuse"}), None),
    ],
)
def test_what_is_risky_is_allowed_and_warned_of(definition: Definition, warned: str | None) -> None:
    said = list(warnings.warnings(definition))
    assert len(said) == (1 if warned else 0), said
    assert warned is None or warned in said[0]
