"""What all VMs of a cluster have in common."""

from typing import Any

from muster.catalog.machine_types import machine_types
from muster.definition.schema.node_sets import Disk
from muster.gcp.names import Names

CLOUD_PLATFORM = "https://www.googleapis.com/auth/cloud-platform"
"""Roles alone decide what an account may do; scopes are an older, second limit."""

# https://cloud.google.com/compute/shielded-vm/docs/shielded-vm
SHIELDED = {
    "enable_secure_boot": True,
    "enable_vtpm": True,
    "enable_integrity_monitoring": True,
}


def metadata(names: Names, role: str, **more: Any) -> dict[str, Any]:
    """Return a VM's metadata: only the definition's people log in, and the VM may report."""
    return {
        "enable-oslogin": "FALSE",
        "block-project-ssh-keys": "TRUE",
        "enable-guest-attributes": "TRUE",
        "muster-cluster": names.cluster,
        "muster-role": role,
        **more,
    }


def on_host_maintenance(machine_type: str) -> str:
    """Return what happens to a VM when its host needs maintenance: MIGRATE or TERMINATE."""
    return machine_types()[machine_type].on_host_maintenance


def boot_disk(names: Names, role: str, disk: Disk) -> dict[str, Any]:
    """Return the boot disk of a VM that stays.

    It is created from the image family: a new image doesn't change it, and a recreated VM gets the
    newest image.
    """
    return {
        "auto_delete": True,
        "initialize_params": {
            "image": f"projects/{names.project}/global/images/family/{names.image_family}",
            "size": disk.size_gib,
            "type": disk.type,
            "labels": names.labels(role),
        },
    }
