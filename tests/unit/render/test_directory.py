"""What hosts are told of the directory, and which names of it the definition has."""

from typing import Any

from muster.definition import Definition, validate
from muster.render import directory

GROUPS = {
    "controller": ["ctl"],
    "database": ["ctl"],
    "login": ["front"],
    "compute": ["cpu-01"],
    "cpu": ["cpu-01"],
    "storage": ["disks"],
}
DIRECTORY = {"servers": ["ldaps://ldap.example.org"], "base": "dc=example", "groups": ["hpc"]}


def defined(more: dict[str, Any] | None, **home: Any) -> Definition:
    users = {
        "groups": {"ml": {"gid": 20000}},
        "people": {
            "ada": {"uid": 20001, "groups": ["ml"]},
            "bob": {"uid": 20002, "state": "absent"},
        },
    }
    # Names that are in the directory alone.
    staff, zoe = ([], []) if more is None else (["staff", "hpc"], ["zoe"])
    return validate(
        {
            "name": "lab",
            "os": "debian-12",
            "nodes": {"cpu": {"sockets": 1, "cores_per_socket": 2, "memory_mib": 2048}},
            "partitions": {"main": {"nodes": ["cpu"], "default": True, "groups": ["ml", *staff]}},
            "accounts": {"lab": {"users": ["ada", *zoe]}, "other": {"users": zoe}},
            "users": users | ({} if more is None else {"directory": DIRECTORY | more}),
            "storage": {"home": {"path": "/home", **home}},
        },
        GROUPS,
    )


def variables(definition: Definition, **role: bool) -> dict[str, Any]:
    return directory.variables(definition, **{"logs_in": False, "makes_homes": False} | role)


def test_without_a_directory_there_is_nothing_to_tell() -> None:
    assert variables(defined(None)) == {}
    assert directory.people(defined(None)) == []
    assert directory.groups(defined(None)) == []


def test_the_definition_s_own_names_are_hidden_those_of_the_gone_too() -> None:
    given = variables(defined({}))
    assert given["hidden_users"] == ["ada", "bob"]
    assert given["hidden_groups"][:3] == ["ml", "ada", "bob"]


def test_nobody_is_root_by_a_group_of_the_directory() -> None:
    """sudo compares names: a group sudo of the directory has the rights of the host's own."""
    assert {"sudo", "admin", "wheel", "docker"} <= {*variables(defined({}))["hidden_groups"]}


def test_what_is_not_said_is_empty() -> None:
    given = variables(defined({}))
    assert (given["bind_dn"], given["ca"], given["ldap_schema"]) == ("", "", "rfc2307")
    assert (given["min_id"], given["max_id"]) == (1000, 59999)
    more = variables(defined({"bind_dn": "cn=hosts", "ldap_schema": "rfc2307bis"}))
    assert (more["bind_dn"], more["ldap_schema"]) == ("cn=hosts", "rfc2307bis")


def test_homes_have_a_quota_where_muster_serves_them() -> None:
    served = variables(defined({}, kind="nfs", size_gib=900, quota_gib=50))
    assert (served["quota_gib"], served["quota_files"]) == (50, 0)
    elsewhere = variables(defined({}, kind="nfs", server="filer"))
    assert (elsewhere["quota_gib"], elsewhere["quota_files"]) == (0, 0)


def test_names_that_are_nowhere_in_the_definition_are_the_directory_s() -> None:
    assert directory.people(defined({})) == ["zoe"]
    assert directory.groups(defined({})) == ["hpc", "staff"]
