"""The directory (LDAP): definition -> what the role `directory` takes. Pure functions."""

from typing import Any

from muster.catalog.system_names import ROOT_GROUPS, SUDO_GROUPS
from muster.definition import Definition


def variables(definition: Definition, *, logs_in: bool, makes_homes: bool) -> dict[str, Any]:
    """Return what a host needs to know people of the directory; nothing without one.

    `logs_in`: whether members of its groups may log in to the host, with a job or without.
    `makes_homes`: whether the host makes homes.
    """
    users, home = definition.cluster.users, definition.cluster.storage.home
    directory = users.directory
    if directory is None:
        return {}
    return {
        "servers": directory.servers,
        "base": directory.base,
        "bind_dn": directory.bind_dn or "",
        "ca": directory.ca or "",
        "ldap_schema": directory.ldap_schema,
        "groups": directory.groups,
        "min_id": directory.min_id,
        "max_id": directory.max_id,
        # Who was removed too: the login must not come back as somebody else's.
        "hidden_users": [*users.people],
        # Each person has a group of the same name. Nobody is root by a group of the directory.
        "hidden_groups": [*users.groups, *users.people, *SUDO_GROUPS, *ROOT_GROUPS],
        "login": logs_in,
        "create_homes": makes_homes,
        "quota_gib": (home.quota_gib or 0) if home.is_served else 0,
        "quota_files": (home.quota_files or 0) if home.is_served else 0,
    }


def people(definition: Definition) -> list[str]:
    """Return the people of the directory who have an account, in the order of the accounts."""
    users = definition.cluster.users
    if users.directory is None:
        return []
    named = [name for account in definition.cluster.accounts.values() for name in account.users]
    return [name for name in dict.fromkeys(named) if name not in users.people]


def groups(definition: Definition) -> list[str]:
    """Return the groups of the directory that the definition names."""
    users = definition.cluster.users
    if users.directory is None:
        return []
    named = [
        *users.directory.groups,
        *(name for part in definition.cluster.partitions.values() for name in part.groups),
    ]
    return [name for name in dict.fromkeys(named) if name not in users.groups]
