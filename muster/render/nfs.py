"""Shared folders: definition -> which folders NFS serves and mounts, and how. Pure functions.

Folders on CephFS are in `muster.render.ceph`.
"""

from typing import Any
from uuid import NAMESPACE_URL, uuid5

from muster.definition import Definition, Folder

# `hard`: a job waits while a server is down. With `soft` it would see a wrong end of the file.
_ALWAYS = "hard,vers=4.2,proto=tcp"
# A published tree: the client caches attributes for a minute and does not ask the server. Python
# opens thousands of files at each start.
_PUBLISHED = "actimeo=60,nocto"
# Folders that people fill on login nodes, and nodes read.
_STORES = ("models", "images")


def shared_paths(definition: Definition) -> list[str]:
    """Return the mount points that a node must have before slurmd takes jobs."""
    storage = definition.cluster.storage
    own = [storage.scratch] if storage.scratch is not None else []
    return [folder.path for _, folder in storage.folders()] + own


def home_maker(definition: Definition) -> str:
    """Return the host that makes people's homes."""
    return _root_of(definition, definition.cluster.storage.home)


def _root_of(definition: Definition, folder: Folder) -> str:
    """Return the host that has root rights in a folder: its root is root there.

    For the folders that the storage host serves, it is the storage host. For all others it is the
    controller: an existing server must export to it with `no_root_squash`.
    """
    return definition.hosts.groups["storage" if folder.is_served else "controller"][0]


def group_folders(definition: Definition, host: str) -> list[dict[str, Any]]:
    """Return the folders of projects that `host` makes."""
    storage = definition.cluster.storage
    folders = []
    if _root_of(definition, storage.data) == host:
        folders += [
            {"path": f"{storage.data.path}/{name}", "group": project.group, "readable": False}
            for name, project in storage.projects.items()
        ]
    return folders


def makes_store(definition: Definition, store: Folder | None, host: str) -> bool:
    """Whether `host` makes the store of models or of images: its root has root rights there."""
    return store is not None and not store.read_only and _root_of(definition, store) == host


def is_published(key: str, *, builds_software: bool, computes: bool) -> bool:
    """Whether a host only reads folder `key`: others build the modules; nodes read the stores."""
    return (key == "apps" and not builds_software) or (key in _STORES and computes)


def mounts(
    definition: Definition,
    *,
    builds_software: bool = False,
    computes: bool = False,
    caches: bool = False,
    serves: bool = False,
) -> list[dict[str, str]]:
    """Return the NFS mounts of a host, in the form of mount(8).

    `builds_software`: the one host that writes to the module tree; the others read it.
    `computes`: a compute node, which only reads models and images.
    `caches`: a host with a disk for its cache.
    `serves`: a storage host, which has its own folders and mounts those of other servers.
    """
    folders = definition.cluster.storage.of_kind("nfs")
    # Folders of one file system share a superblock, and the first mount sets `fsc`, or not, for all
    # of them: nfs(5), sharecache. Each folder that Muster serves has its own fsid, and doesn't
    # share.
    cached_servers = {folder.server for folder in folders.values() if caches and folder.cached} - {
        None
    }
    return [
        {
            "source": _source(definition, folder),
            "path": folder.path,
            "type": "nfs4",
            "options": _options(
                folder,
                published=is_published(key, builds_software=builds_software, computes=computes),
                caches=caches and folder.cached,
                apart=folder.server in cached_servers and not folder.cached,
            ),
        }
        for key, folder in folders.items()
        if folder.server or not serves
    ]


def _source(definition: Definition, folder: Folder) -> str:
    if folder.server is None:
        return f"{definition.hosts.groups['storage'][0]}:{folder.path}"
    server = f"[{folder.server}]" if ":" in folder.server else folder.server
    return f"{server}:{folder.export or folder.path}"


def _options(folder: Folder, *, published: bool, caches: bool, apart: bool) -> str:
    words = [
        "ro" if published or folder.read_only else "rw",
        _ALWAYS,
        f"nconnect={folder.connections}",
        "noatime,nosuid,nodev",
        *([] if folder.exec else ["noexec"]),
        *([_PUBLISHED] if published else []),
        *(["fsc"] if caches else []),
        *(["nosharecache"] if apart else []),
    ]
    return ",".join(words)


def exports(definition: Definition, addresses: dict[str, str]) -> list[dict[str, Any]]:
    """Return the folders and clients of the storage host, in the form for the role `nfs_server`.

    In the cloud the client is the cluster's whole subnet, because nodes come and go. On machines
    the clients are the single hosts of `addresses` (host -> address; the address is empty if DNS
    knows the name).
    """
    served = definition.cluster.storage.served()
    if not served:
        return []
    cloud, server = definition.cluster.cloud, definition.hosts.groups["storage"][0]
    hosts = {host: address or host for host, address in addresses.items() if host != server}
    clients = [cloud.subnet] if cloud else list(hosts.values())
    # Root of the controller installs modules. Root of all other clients has no root rights
    # (root_squash): the storage host itself makes homes.
    builder = hosts.get(definition.hosts.groups["controller"][0])
    # Where models and images are added. In the cloud all hosts are one client.
    groups = definition.hosts.groups
    adders = {hosts.get(host) for host in (*groups["controller"], *groups["login"])}
    writers = {"apps": {builder}, **dict.fromkeys(_STORES, {*clients} if cloud else adders)}
    return [
        {
            "path": folder.path,
            # The fsid never changes while the cluster exists, also with another host or disk:
            # clients identify open files by it.
            "fsid": str(uuid5(NAMESPACE_URL, f"muster:{definition.cluster.name}:{key}")),
            "clients": [
                {
                    "host": client,
                    "writes": client in writers.get(key, clients)
                    and (key == "apps" or not folder.read_only),
                    "as_root": key == "apps" and client == builder,
                }
                for client in clients
            ],
        }
        for key, folder in served.items()
    ]


def nfs_connections(definition: Definition) -> int:
    """Return how many connections all clients open together, if all nodes are up."""
    served = definition.cluster.storage.served()
    nodes = {node for name in definition.cluster.nodes for node in definition.hosts_of(name)}
    hosts = nodes | {*definition.hosts.groups.get("all", [])}
    # A check ensures the same number for all folders: nconnect of nfs(5) is per server.
    return len(hosts) * max((folder.connections for folder in served.values()), default=0)
