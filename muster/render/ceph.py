"""CephFS: definition -> the cluster on the storage hosts, and what each host mounts. Pure.

The rights of a host follow from its class, since Ceph knows clients and not hosts: the controller
writes modules, nodes read models and images. Root of a host is root on what its client may write.
"""

from typing import Any, Literal
from uuid import NAMESPACE_URL, uuid5

from muster.definition import Definition, Folder
from muster.definition.schema.ceph import Ceph
from muster.render.nfs import is_published

Class = Literal["controller", "compute", "login"]
CLASSES: tuple[Class, ...] = ("controller", "compute", "login")

# An odd number keeps a majority when one is down, and two are no safer than one.
_MONITORS = 3
# One active, one standby.
_SERVERS = 2

# A storage host in none of these only runs Ceph, and needs no folder.
_OTHER_GROUPS = ("controller", "database", "login", "compute")


def class_of(definition: Definition, host: str) -> Class:
    """Return the class of client that a host is."""
    if host == definition.hosts.groups["controller"][0]:
        return "controller"
    return "compute" if host in definition.hosts.groups["compute"] else "login"


def built(definition: Definition, host: str, addresses: dict[str, str]) -> dict[str, Any]:
    """Return the variables of the role `ceph_cluster`; without devices where it builds none.

    `addresses`: host -> address, of all hosts.
    """
    ceph = _ceph(definition)
    return {
        **_cluster(definition, addresses),
        "address": addresses[host],
        "hosts": definition.hosts.groups["storage"],
        "devices": [] if ceph.image else ceph.devices_of(host, definition.hosts.groups),
        "file_gib": ceph.file_gib,
    }


def by_cephadm(definition: Definition, addresses: dict[str, str]) -> dict[str, Any]:
    """Return the variables of the role `cephadm`; without an image where it builds none.

    `addresses`: host -> address, of all hosts.
    """
    ceph, groups = _ceph(definition), definition.hosts.groups
    return {
        **_cluster(definition, addresses),
        "image": ceph.image or "",
        "hosts": [
            {
                "name": name,
                "address": addresses[name],
                "devices": ceph.devices_of(name, groups) if ceph.image else [],
            }
            for name in groups["storage"]
        ],
    }


def _cluster(definition: Definition, addresses: dict[str, str]) -> dict[str, Any]:
    """Return the variables that both roles take."""
    ceph, hosts = _ceph(definition), definition.hosts.groups["storage"]
    folders = definition.cluster.storage.of_kind("ceph")
    return {
        "fsid": _fsid(definition),
        "monitors": [{"name": name, "address": addresses[name]} for name in _monitors(definition)],
        "managers": hosts[:_SERVERS],
        "metadata_servers": hosts[:_SERVERS],
        "copies": ceph.copies,
        # With fewer hosts than copies some copies share a host, on different disks.
        "failure_domain": "host" if len(hosts) >= ceph.copies else "osd",
        "filesystem": ceph.filesystem,
        "folders": _folders(definition),
        "clients": [
            {
                "name": f"muster-{client_class}",
                "folders": [
                    {"path": _export(folder), "access": _access(key, folder, client_class)}
                    for key, folder in folders.items()
                ],
            }
            for client_class in CLASSES
        ],
    }


def _folders(definition: Definition) -> list[dict[str, Any]]:
    """Return the folders with their quotas, each before the folders in it."""
    storage = definition.cluster.storage
    folders = [
        {"path": _export(folder), "mode": "0755", "quota_gib": folder.size_gib}
        for folder in storage.of_kind("ceph").values()
    ]
    if storage.data.kind == "ceph":
        # Root's until the role `projects` gives it to its group.
        folders += [
            {
                "path": f"{_export(storage.data)}/{name}",
                "mode": "0700",
                "quota_gib": project.quota_gib,
                "quota_files": project.quota_files,
            }
            for name, project in storage.projects.items()
        ]
    return folders


def client(definition: Definition, host: str, addresses: dict[str, str]) -> dict[str, Any]:
    """Return the variables of the role `ceph_client`; without mounts where it mounts nothing."""
    ceph = _ceph(definition)
    built_on = _monitors(definition) if ceph.devices else []
    return {
        "monitors": ceph.monitors or [addresses[name] for name in built_on],
        "fsid": _fsid(definition),
        "filesystem": ceph.filesystem,
        "user": f"muster-{class_of(definition, host)}" if ceph.is_built else ceph.user,
        "driver": ceph.client,
        # This host has the administrator's key.
        "key_host": built_on[0] if built_on else "",
        "mounts": _mounts(definition, host),
    }


def _monitors(definition: Definition) -> list[str]:
    hosts = definition.hosts.groups["storage"]
    return hosts[: _MONITORS if len(hosts) >= _MONITORS else 1]


def _mounts(definition: Definition, host: str) -> list[dict[str, str]]:
    groups = definition.hosts.groups
    others = (name for group in _OTHER_GROUPS for name in groups[group])
    if host in groups["storage"] and host not in others:
        return []
    return [
        {
            "export": _export(folder),
            "path": folder.path,
            "options": _options(key, folder, class_of(definition, host)),
        }
        for key, folder in definition.cluster.storage.of_kind("ceph").items()
    ]


def _options(key: str, folder: Folder, client_class: Class) -> str:
    reads = folder.read_only or _reads(key, client_class)
    return ",".join(
        [
            "ro" if reads else "rw",
            "noatime,nosuid,nodev",
            *([] if folder.exec else ["noexec"]),
            *(["fsc"] if client_class == "compute" and folder.cached else []),
        ]
    )


def _access(key: str, folder: Folder, client_class: Class) -> str:
    # The controller may write what the others only read, through another mount, to fill it.
    reads = _reads(key, client_class) or (folder.read_only and client_class != "controller")
    return "r" if reads else "rw"


def _reads(key: str, client_class: Class) -> bool:
    return is_published(
        key, builds_software=client_class == "controller", computes=client_class == "compute"
    )


def _export(folder: Folder) -> str:
    return folder.export or folder.path


def _fsid(definition: Definition) -> str:
    name = f"muster:{definition.cluster.name}:ceph"
    return _ceph(definition).fsid or str(uuid5(NAMESPACE_URL, name))


def _ceph(definition: Definition) -> Ceph:
    return definition.cluster.storage.ceph or Ceph()
