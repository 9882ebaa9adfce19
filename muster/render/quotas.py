"""Quotas of homes and projects in the folders that the storage host serves. Pure."""

from typing import Any, Literal

from muster.definition import Definition
from muster.definition.schema.storage import project_number

Key = Literal["home", "data"]
KEYS: tuple[Key, ...] = ("home", "data")
"""Folders in which single folders may have a quota."""


def file_systems(definition: Definition) -> list[dict[str, Any]]:
    """Return the folders that are served, with their quotas, as the role `quotas` takes them.

    One without quotas is listed too: it may have had some.
    """
    storage = definition.cluster.storage
    return [
        {
            "path": storage.served()[key].path,
            "folders": folders(definition, key),
            **({"others": others} if (others := kept(definition, key)) else {}),
        }
        for key in KEYS
        if key in storage.served()
    ]


def kept(definition: Definition, key: str) -> list[int]:
    """Return between which numbers the role `directory` sets the quotas of homes, where it does."""
    home, directory = definition.cluster.storage.home, definition.cluster.users.directory
    if key != "home" or directory is None or not (home.quota_gib or home.quota_files):
        return []
    return [directory.min_id, directory.max_id]


def are_defined(definition: Definition) -> bool:
    """Whether some folder has a quota."""
    return any(has_quotas(definition, key) for key in KEYS)


def has_quotas(definition: Definition, key: str) -> bool:
    """Whether folders in a shared folder have a quota, or may get one between two runs."""
    return bool(folders(definition, key) or kept(definition, key))


def folders(definition: Definition, key: str) -> list[dict[str, Any]]:
    """Return the folders in a shared folder that have a quota."""
    storage, users = definition.cluster.storage, definition.cluster.users
    if key == "home":
        found = [
            {
                "path": f"{storage.home.path}/{name}",
                "project": person.uid,
                "gib": person.quota_gib or storage.home.quota_gib,
                "files": person.quota_files or storage.home.quota_files,
            }
            for name, person in users.people.items()
            if person.state == "present"
        ]
    elif key == "data":
        found = [
            {
                "path": f"{storage.data.path}/{name}",
                "project": project_number(name),
                "gib": project.quota_gib,
                "files": project.quota_files,
            }
            for name, project in storage.projects.items()
        ]
    else:
        found = []
    return [
        # 0: no limit, as quotactl(2) has it.
        {**folder, "gib": folder["gib"] or 0, "files": folder["files"] or 0}
        for folder in found
        if folder["gib"] or folder["files"]
    ]
