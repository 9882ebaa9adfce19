"""The secrets that Muster reads, by their names in secrets.yml."""

from collections.abc import Iterable

from muster.definition.spelling import nearest

MUNGE_KEY = "munge_key"
DATABASE_PASSWORD = "slurmdbd_password"  # noqa: S105 - its name
CEPH_KEY = "ceph_key"
MAIL_PASSWORD = "mail_password"  # noqa: S105 - its name
DIRECTORY_PASSWORD = "directory_password"  # noqa: S105 - its name
NAMES = (MUNGE_KEY, DATABASE_PASSWORD, CEPH_KEY, MAIL_PASSWORD, DIRECTORY_PASSWORD)

OF_ROLES = {
    "munge_key_b64": MUNGE_KEY,
    "mariadb_password": DATABASE_PASSWORD,
    "slurmdbd_storage_password": DATABASE_PASSWORD,
    "ceph_client_key": CEPH_KEY,
}
"""Names of roles' variables that are the secrets (ansible/group_vars/all/secret_variables.yml)."""

_LIKENESS = 0.8
"""A site may have other secrets there: `deploy_key` is none of these, `munge-key` is."""


def misspelt(names: Iterable[str]) -> dict[str, str]:
    """Return misspelt names below `secrets:`: each with the missing secret that is likely meant."""
    there = set(names)
    near = {
        name: OF_ROLES.get(name) or nearest(name, NAMES, _LIKENESS)
        for name in names
        if name not in NAMES
    }
    return {name: meant for name, meant in near.items() if meant and meant not in there}
