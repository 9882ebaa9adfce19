"""File systems that hold state and shared folders. Pure."""

from typing import Any

from muster.definition import Definition
from muster.definition.schema.cloud import STATE
from muster.render import quotas

STATE_ROOT = "/srv/muster"
"""Where the file system of SLURM's queue and its database is mounted."""
_OPTIONS = ["nosuid", "nodev"]


# The clients that may reclaim their locks: nfsdcld(8). Without it a recreated controller refuses
# them, and programs lose the locks that they hold.
_CLIENTS = {
    "path": "/var/lib/nfs",
    "owner": "statd",
    "group": "nogroup",
    "units": ["nfs-server", "nfs-mountd", "nfsdcld"],
}
_DATABASE = {"path": "/var/lib/mysql", "owner": "mysql", "group": "mysql", "units": ["mariadb"]}
# StateSaveLocation, as the role slurmctld has it.
_QUEUE = {
    "path": "/var/lib/slurm/slurmctld",
    "owner": "slurm",
    "group": "slurm",
    "units": ["slurmctld"],
}


def of_state(
    definition: Definition, *, controls: bool, keeps_database: bool
) -> list[dict[str, Any]]:
    """Return the file system of queue and database of a host, as `file_systems` takes it.

    `controls`: slurmctld runs there. `keeps_database`: it is in the group `database`. In the cloud
    it is a disk, which outlives the controller's VM and keeps all that the next VM must have.
    """
    cluster = definition.cluster
    in_cloud = cluster.cloud is not None
    folders = [
        *([_CLIENTS] if in_cloud and controls and cluster.storage.served() else []),
        *([_DATABASE] if keeps_database and cluster.database is None else []),
        *([_QUEUE] if controls else []),
    ]
    if not folders or not (in_cloud or cluster.storage.state_gib):
        return []
    disk = {"device": _disk(STATE), "host_keys": True}
    place = disk if in_cloud else {"size_gib": cluster.storage.state_gib}
    return [{"path": STATE_ROOT, **place, "label": f"muster-{STATE}", "folders": folders}]


def of_storage(definition: Definition) -> list[dict[str, Any]]:
    """Return the file systems of the folders that Muster serves, one each.

    A client with the handle of one file may ask for any file of the same file system (exports(5),
    no_subtree_check), and who fills a folder fills all of it.
    """
    in_cloud = definition.cluster.cloud is not None
    return [
        {
            "path": folder.path,
            **({"device": _disk(key)} if in_cloud else {"size_gib": folder.size_gib}),
            "label": f"muster-{key}",
            "options": _OPTIONS,
            "units": ["nfs-server"],
            **({"project_quotas": True} if quotas.has_quotas(definition, key) else {}),
        }
        for key, folder in definition.cluster.storage.served().items()
        if in_cloud or folder.size_gib is not None
    ]


def _disk(device: str) -> str:
    """Path of a disk, which Google names after its device name in the VM."""
    return f"/dev/disk/by-id/google-{device}"
