"""Quotas of homes and projects, as the definition says."""

from pathlib import Path
from typing import Any

from muster.definition import Definition, validate
from muster.render import file_systems, quotas
from muster.render.role_variables import Host, role_variables

GROUPS = {
    "controller": ["access"],
    "database": [],
    "login": ["access"],
    "compute": ["cpu-01"],
    "cpu": ["cpu-01"],
    "storage": ["disks"],
    "all": ["access", "cpu-01", "disks"],
}
ADDRESSES = {"access": "192.0.2.1", "cpu-01": "192.0.2.11", "disks": "192.0.2.9"}
NUMBER = 142008537
"""Of the project, crc32 of "photos": another one would count its files again."""


def defined(*, home: dict[str, Any], **photos: int) -> Definition:
    """A definition whose storage host serves homes of three people, and data with a project."""
    return validate(
        {
            "name": "lab",
            "os": "debian-13",
            "nodes": {"cpu": {"sockets": 1, "cores_per_socket": 2, "memory_mib": 2048}},
            "partitions": {"main": {"nodes": ["cpu"], "default": True}},
            "users": {
                "groups": {"vision": {"gid": 20008}},
                "people": {
                    "ada": {"uid": 20001},
                    "bob": {"uid": 20002, "quota_gib": 500} if home else {"uid": 20002},
                    "eve": {"uid": 20003, "state": "absent"},
                },
            },
            "storage": {
                "home": {"kind": "nfs", "path": "/home", "size_gib": 900, **home},
                "data": {"kind": "nfs", "path": "/data", "size_gib": 10},
                "projects": {"photos": {"group": "vision", **photos}},
            },
        },
        GROUPS,
    )


def role_on(definition: Definition, host: str) -> tuple[Any, Any, bool]:
    """The role's variables on a host, and whether the host has the role."""
    inventory = Path("/inventories/lab")
    variables, needed = role_variables(Host(definition, host, ADDRESSES, inventory, "", {}))
    return variables["quotas_file_systems"], variables["quotas_shown"], "quotas" in needed


def test_a_person_s_quota_replaces_that_of_all_homes() -> None:
    definition = defined(home={"quota_gib": 50, "quota_files": 1000}, quota_files=5000)
    assert quotas.file_systems(definition) == [
        {
            "path": "/home",
            "folders": [
                {"path": "/home/ada", "project": 20001, "gib": 50, "files": 1000},
                {"path": "/home/bob", "project": 20002, "gib": 500, "files": 1000},
            ],
        },
        {
            "path": "/data",
            "folders": [{"path": "/data/photos", "project": NUMBER, "gib": 0, "files": 5000}],
        },
    ]


def test_only_file_systems_with_quotas_are_made_for_them() -> None:
    def made(definition: Definition) -> dict[str, bool]:
        mounts = file_systems.of_storage(definition)
        return {mount["path"]: mount.get("project_quotas", False) for mount in mounts}

    assert made(defined(home={})) == {"/home": False, "/data": False}
    assert made(defined(home={"quota_gib": 50})) == {"/home": True, "/data": False}
    assert made(defined(home={}, quota_gib=5)) == {"/home": False, "/data": True}


def test_the_storage_host_limits_and_the_others_show() -> None:
    limited = defined(home={"quota_gib": 50})
    assert role_on(limited, "disks") == (quotas.file_systems(limited), False, True)
    assert role_on(limited, "cpu-01") == ([], True, True)
    assert role_on(limited, "access") == ([], True, True)


def test_without_quotas_the_storage_host_takes_away_what_there_was() -> None:
    free = defined(home={})
    empty = [{"path": "/home", "folders": []}, {"path": "/data", "folders": []}]
    assert role_on(free, "disks") == (empty, False, True)
    assert role_on(free, "cpu-01") == ([], False, False)


def test_quotas_of_the_directory_s_homes_are_left_to_who_makes_them() -> None:
    directory = {"servers": ["ldaps://ldap"], "base": "o=x", "groups": ["hpc"], "max_id": 30000}

    def with_directory(definition: Definition) -> Definition:
        cluster = definition.cluster.model_dump(exclude_unset=True)
        cluster["users"] = {"groups": cluster["users"]["groups"], "directory": directory}
        return validate(cluster, GROUPS)

    limited = with_directory(defined(home={"quota_gib": 50}))
    assert quotas.file_systems(limited)[0] == {
        "path": "/home",
        "folders": [],
        "others": [1000, 30000],
    }
    # Nobody of the definition has a home; the file system must be able to limit those to come.
    assert [m["path"] for m in file_systems.of_storage(limited) if "project_quotas" in m] == [
        "/home"
    ]
    assert role_on(limited, "cpu-01") == ([], True, True)
    assert "others" not in quotas.file_systems(with_directory(defined(home={})))[0]
