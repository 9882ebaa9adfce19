"""Roles -> permissions: the basic ones by rule, the predefined ones from roles.yml, custom ones.

Google's basic roles hold thousands of permissions; here they follow the documented rule:
https://cloud.google.com/iam/docs/roles-overview#basic
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

HERE = Path(__file__).parent
BASIC = ("roles/owner", "roles/editor", "roles/viewer")

READING = ("get", "list", "getFromFamily", "getSerialPortOutput", "getGuestAttributes")

# In no basic role, or in the owner's alone: who edits a project neither gives rights away nor
# reads secrets, https://cloud.google.com/iam/docs/roles-permissions/secretmanager.
# Objects and buckets are reached through what a new bucket grants to projectOwner and the others:
# https://cloud.google.com/storage/docs/access-control/iam-roles#basic-roles-intrinsic
NOT_IN_BASIC = (
    "storage.objects.*",
    "storage.buckets.get",
    "storage.buckets.getIamPolicy",
    "storage.buckets.setIamPolicy",
    "storage.buckets.update",
    "storage.anywhereCaches.*",
    "storage.managedFolders.*",
    "iam.serviceAccounts.getAccessToken",
    "iam.serviceAccounts.getOpenIdToken",
    "iam.serviceAccounts.implicitDelegation",
    "iam.serviceAccounts.signBlob",
    "iam.serviceAccounts.signJwt",
)
OWNER_ALONE = (
    "*.setIamPolicy",
    "iam.roles.create",
    "iam.roles.delete",
    "iam.roles.undelete",
    "iam.roles.update",
    "iap.*",
    "resourcemanager.projects.delete",
    "secretmanager.versions.access",
)
# https://cloud.google.com/iam/docs/custom-roles-permissions-support: not in a project's roles.
NOT_IN_CUSTOM = ("resourcemanager.projects.list",)


@dataclass(frozen=True, slots=True)
class Role:
    """A predefined role."""

    name: str
    title: str
    permissions: frozenset[str]


@cache
def document(name: str) -> Any:
    """One of the tables beside this file."""
    return yaml.safe_load((HERE / name).read_text(encoding="utf-8"))


@cache
def known_permissions() -> frozenset[str]:
    """All permissions that fakecloud knows: those that methods need or roles may name."""
    methods = document("permissions.yml")
    groups = list(methods["shared"].values())
    for service in methods["services"].values():
        groups += [needs for needs in service["methods"].values() if isinstance(needs, list)]
    needed = {
        (need if isinstance(need, str) else need["need"]).split(" on ")[0]
        for group in groups
        for need in group
    }
    tunnels = {
        permission.replace("{tunnel}", kind)
        for permission in needed
        if "{tunnel}" in permission
        for kind in ("iap.tunnel", "iap.tunnelZones", "iap.tunnelInstances")
    }
    named = {permission for permission in needed if "{" not in permission}
    return frozenset(named | tunnels | set(document("roles.yml")["further"]))


@cache
def predefined() -> dict[str, Role]:
    """Name -> role, including the basic ones."""
    known = known_permissions()
    roles = {
        name: Role(name, role["title"], _matching(known, role["permissions"]))
        for name, role in document("roles.yml")["roles"].items()
    }
    owner = known - _matching(known, NOT_IN_BASIC)
    editor = owner - _matching(known, OWNER_ALONE)
    viewer = frozenset(
        permission
        for permission in editor
        if permission.rsplit(".", 1)[1] in READING or permission.endswith(".getIamPolicy")
    )
    for name, permissions in zip(BASIC, (owner, editor, viewer), strict=True):
        title = name.removeprefix("roles/").capitalize()
        roles[name] = Role(name, title, frozenset(permissions))
    return roles


def _matching(known: Iterable[str], patterns: Iterable[str]) -> frozenset[str]:
    known = list(known)
    return frozenset(
        permission
        for pattern in patterns
        for permission in ([pattern] if "*" not in pattern else known)
        if pattern == permission or fnmatchcase(permission, pattern)
    )
