"""What is on the state disk of a controller in the cloud. Pure."""

from typing import Any

from muster.definition import Definition


def folders(definition: Definition) -> list[dict[str, Any]]:
    """Return what is on the state disk of a controller in the cloud, as `state_disk` takes it.

    Nothing outside the cloud: machines keep their disks.
    """
    if definition.cluster.cloud is None:
        return []
    served = definition.cluster.storage.served().values()
    # The clients that may reclaim their locks: nfsdcld(8). Without it a recreated controller
    # refuses them, and programs lose the locks that they hold.
    clients = {
        "path": "/var/lib/nfs",
        "owner": "statd",
        "group": "nogroup",
        "units": ["nfs-server", "nfs-mountd", "nfsdcld"],
    }
    return [
        *({"path": folder.path, "units": ["nfs-server"]} for folder in served),
        *([clients] if served else []),
        {"path": "/var/lib/mysql", "owner": "mysql", "group": "mysql", "units": ["mariadb"]},
        # StateSaveLocation, as the role slurmctld has it.
        {
            "path": "/var/lib/slurm/slurmctld",
            "owner": "slurm",
            "group": "slurm",
            "units": ["slurmctld"],
        },
    ]
