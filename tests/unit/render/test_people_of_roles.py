"""People, groups and accounts as the roles take them."""

from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from muster.definition import Definition, Person, load, validate
from muster.render import people

ROOT = Path(__file__).resolve().parents[3]

GROUPS = {
    "controller": ["access"],
    "database": ["access"],
    "login": ["access"],
    "compute": ["cpu-01", "gpu-01"],
    "cpu": ["cpu-01"],
    "gpu": ["gpu-01"],
    "storage": [],
}
CLUSTER: dict[str, Any] = {
    "name": "lab",
    "os": "debian-12",
    "users": {
        "groups": {"ml-users": {"gid": 20000}},
        "people": {
            "ada": {"uid": 20001, "groups": ["ml-users"], "email": "ada@example.org"},
            "bob": {"uid": 20002, "shell": "/bin/zsh", "default_account": "second"},
            "eve": {"uid": 20003, "state": "absent"},
        },
    },
    "nodes": {
        "cpu": {"sockets": 1, "cores_per_socket": 2, "memory_mib": 2048},
        "gpu": {"sockets": 1, "cores_per_socket": 2, "memory_mib": 2048, "gpus": {"count": 1}},
    },
    "partitions": {"main": {"nodes": ["cpu", "gpu"], "default": True}},
    "accounts": {
        "first": {"users": ["ada", "bob"]},
        "second": {"parent": "first", "users": ["bob"], "fairshare": 3, "description": "Trials"},
    },
    "storage": {"home": {"path": "/home"}, "apps": {"path": "/sw"}, "data": {"path": "/data"}},
}


@pytest.fixture
def definition() -> Definition:
    return validate(CLUSTER, GROUPS)


def test_people_keep_their_state(definition: Definition) -> None:
    by_name = {person["name"]: person for person in people.people(definition)}
    assert by_name["ada"] == {
        "name": "ada",
        "uid": 20001,
        "groups": ["ml-users"],
        "shell": "/bin/bash",
        "ssh_keys": [],
        "state": "present",
    }
    assert by_name["bob"]["shell"] == "/bin/zsh"
    assert by_name["eve"]["state"] == "absent"
    assert people.groups(definition) == [{"name": "ml-users", "gid": 20000}]


def test_people_log_in_to_login_hosts_only_unless_they_are_administrators(
    definition: Definition,
) -> None:
    by_name = definition.cluster.users.people
    present = [name for name, person in by_name.items() if person.state == "present"]
    assert people.no_login(definition) == present
    admin = by_name["bob"].model_copy(update={"admin": True})
    users = definition.cluster.users.model_copy(update={"people": {**by_name, "bob": admin}})
    changed = definition.cluster.model_copy(update={"users": users})
    assert "bob" not in people.no_login(replace(definition, cluster=changed))


def test_mail_goes_to_own_addresses_where_there_are_some(definition: Definition) -> None:
    assert people.mail_addresses(definition) == {"ada": "ada@example.org"}


def test_nodes_in_the_cloud_know_those_who_are_present(definition: Definition) -> None:
    assert people.node_passwd(definition) == [
        "ada:x:20001:20001::/home/ada:/bin/bash",
        "bob:x:20002:20002::/home/bob:/bin/zsh",
    ]
    assert people.node_group(definition) == [
        "ada:x:20001:",
        "bob:x:20002:",
        "ml-users:x:20000:ada",
    ]
    assert people.node_people_dir(definition) == "/sw/.muster/extrausers"


NOTHING_ELSE = {"qos": None, "default_qos": None, "coordinators": [], "associations": []}


def test_accounts_hang_below_root(definition: Definition) -> None:
    assert people.accounts(definition) == [
        {
            "name": "first",
            "parent": "root",
            "description": "first",
            "organization": "lab",
            "fairshare": 1,
            "users": ["ada", "bob"],
            "limits": {"MaxSubmitJobs": 2000},
            **NOTHING_ELSE,
        },
        {
            "name": "second",
            "parent": "first",
            "description": "Trials",
            "organization": "lab",
            "fairshare": 3,
            "users": ["bob"],
            "limits": {"MaxSubmitJobs": None},
            **NOTHING_ELSE,
        },
    ]


def test_the_default_account_is_the_one_given_or_the_first_one(definition: Definition) -> None:
    assert people.account_users(definition) == [
        {"name": "ada", "default_account": "first", "admin_level": "none"},
        {"name": "bob", "default_account": "second", "admin_level": "none"},
    ]


def test_who_is_gone_has_no_account() -> None:
    cluster = deepcopy(CLUSTER)
    cluster["users"]["people"]["ada"]["state"] = "absent"
    definition = validate(cluster, GROUPS)
    assert people.accounts(definition)[0]["users"] == ["bob"]
    assert [user["name"] for user in people.account_users(definition)] == ["bob"]


def with_administrator(definition: Definition) -> Definition:
    admin = Person(uid=20009, admin=True)
    users = definition.cluster.users.model_copy(update={"people": {"root-ada": admin}})
    return replace(definition, cluster=definition.cluster.model_copy(update={"users": users}))


def test_administrators_are_root_by_sudo_in_the_cloud_alone(definition: Definition) -> None:
    assert people.sudo(with_administrator(load(ROOT / "inventories/cloud"))) == ["root-ada"]
    assert people.sudo(with_administrator(definition)) == []


def test_people_of_the_directory_charge_their_first_account() -> None:
    cluster = deepcopy(CLUSTER)
    cluster["users"]["directory"] = {"servers": ["ldaps://ldap"], "base": "o=x", "groups": ["hpc"]}
    # eve was removed from the definition's people: the directory does not bring her back.
    cluster["accounts"]["first"]["users"] = ["ada", "zoe", "eve"]
    cluster["accounts"]["second"]["users"] = ["zoe", "bob"]
    definition = validate(cluster, GROUPS)
    assert [account["users"] for account in people.accounts(definition)] == [
        ["ada", "zoe"],
        ["zoe", "bob"],
    ]
    assert people.account_users(definition) == [
        {"name": "ada", "default_account": "first", "admin_level": "none"},
        {"name": "bob", "default_account": "second", "admin_level": "none"},
        {"name": "zoe", "default_account": "first"},
    ]
