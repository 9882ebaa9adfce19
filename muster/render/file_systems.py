"""File systems that hold state and shared folders. Pure."""

from typing import Any

from muster.definition import Definition
from muster.definition.schema.cloud import STATE
from muster.render import quotas

STATE_ROOT = "/srv/muster"
"""Where a controller in the cloud mounts the disk with its state."""
_OPTIONS = ["nosuid", "nodev"]


def of_controller(definition: Definition) -> list[dict[str, Any]]:
    """Return the disk with the state of a controller in the cloud, as `file_systems` takes it.

    Nothing outside the cloud: machines keep their disks.
    """
    if definition.cluster.cloud is None:
        return []
    # The clients that may reclaim their locks: nfsdcld(8). Without it a recreated controller
    # refuses them, and programs lose the locks that they hold.
    clients = {
        "path": "/var/lib/nfs",
        "owner": "statd",
        "group": "nogroup",
        "units": ["nfs-server", "nfs-mountd", "nfsdcld"],
    }
    folders = [
        *([clients] if definition.cluster.storage.served() else []),
        {"path": "/var/lib/mysql", "owner": "mysql", "group": "mysql", "units": ["mariadb"]},
        # StateSaveLocation, as the role slurmctld has it.
        {
            "path": "/var/lib/slurm/slurmctld",
            "owner": "slurm",
            "group": "slurm",
            "units": ["slurmctld"],
        },
    ]
    return [
        {
            "path": STATE_ROOT,
            "device": _disk(STATE),
            "label": f"muster-{STATE}",
            "host_keys": True,
            "folders": folders,
        }
    ]


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
