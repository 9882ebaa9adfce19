"""People, their groups and accounts: definition -> what the roles take. Pure functions."""

from typing import Any

from muster.definition import Definition
from muster.render import directory, limits


def people(definition: Definition) -> list[dict[str, Any]]:
    """Return the people as the role `users` takes them."""
    return [
        {
            "name": name,
            "uid": person.uid,
            "groups": person.groups,
            "shell": person.shell,
            "ssh_keys": person.ssh_keys,
            "state": person.state,
        }
        for name, person in definition.cluster.users.people.items()
    ]


def no_login(definition: Definition) -> list[str]:
    """Return the people who may log in to login hosts only."""
    return [
        name
        for name, person in definition.cluster.users.people.items()
        if person.state == "present" and not person.admin
    ]


def administrators(definition: Definition) -> list[str]:
    """Return the people who may log in to every host."""
    return [
        name
        for name, person in definition.cluster.users.people.items()
        if person.state == "present" and person.admin
    ]


def sudo(definition: Definition) -> list[str]:
    """Return the people who become root with sudo: in the cloud the administrators.

    On VMs root has no ssh key and no console password, so there is no other way. Administrators of
    machines have a way to be root on them already.
    """
    return administrators(definition) if definition.cluster.cloud else []


def groups(definition: Definition) -> list[dict[str, Any]]:
    """Return the groups as the role `users` takes them."""
    return [
        {"name": name, "gid": group.gid} for name, group in definition.cluster.users.groups.items()
    ]


def mail_addresses(definition: Definition) -> dict[str, str]:
    """Return login -> address for the people who have their own address."""
    return {
        name: person.email
        for name, person in definition.cluster.users.people.items()
        if person.email is not None
    }


def accounts(definition: Definition) -> list[dict[str, Any]]:
    """Return the accounts as the role `accounts` takes them; `root` above those without parent."""
    present = {*_present(definition), *directory.people(definition)}
    return [
        {
            "name": name,
            "parent": account.parent or "root",
            "description": account.description or name,
            "organization": account.organization or definition.cluster.name,
            "fairshare": account.fairshare,
            "users": [user for user in account.users if user in present],
            **limits.of_account(definition, account, present),
        }
        for name, account in definition.cluster.accounts.items()
    ]


def account_users(definition: Definition) -> list[dict[str, str]]:
    """Return each person who has an account: the account of jobs that name none, and rights."""
    defaults: dict[str, str] = {}
    for name, account in definition.cluster.accounts.items():
        for user in account.users:
            defaults.setdefault(user, name)
    here = {user: person for user, person in _present(definition).items() if user in defaults}
    elsewhere = [user for user in directory.people(definition) if user not in here]
    return [
        {
            "name": user,
            "default_account": person.default_account or defaults[user],
            "admin_level": person.admin_level,
        }
        for user, person in here.items()
    ] + [{"name": user, "default_account": defaults[user]} for user in elsewhere]


def _present(definition: Definition) -> dict[str, Any]:
    return {
        name: person
        for name, person in definition.cluster.users.people.items()
        if person.state == "present"
    }


def node_passwd(definition: Definition) -> list[str]:
    """Return the lines of a passwd file with the people whom nodes in the cloud know."""
    home = definition.cluster.storage.home.path
    return [
        f"{name}:x:{person.uid}:{person.uid}::{home}/{name}:{person.shell}"
        for name, person in _present(definition).items()
    ]


def node_group(definition: Definition) -> list[str]:
    """Return the lines of a group file: people's own groups, then the others with their members."""
    present = _present(definition)
    own = [f"{name}:x:{person.uid}:" for name, person in present.items()]
    others = [
        f"{name}:x:{group.gid}:"
        + ",".join(login for login, person in present.items() if name in person.groups)
        for name, group in definition.cluster.users.groups.items()
    ]
    return own + others


def node_people_dir(definition: Definition) -> str:
    """Return the shared folder with both files; metadata attribute `muster-people` of nodes."""
    return f"{definition.cluster.storage.apps.path}/.muster/extrausers"
