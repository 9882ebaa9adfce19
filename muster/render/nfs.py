"""Shared folders: definition -> what is served and mounted by NFS, and how. Pure.

Those of CephFS are in `muster.render.ceph`.
"""

from typing import Any
from uuid import NAMESPACE_URL, uuid5

from muster.definition import Definition, Folder

# `hard`: a job waits while a server is down; with `soft` it would get a wrong end of file.
_ALWAYS = "hard,vers=4.2,proto=tcp"
# A published tree: attributes are cached for a minute without asking the server. Python opens
# thousands of files per start.
_PUBLISHED = "actimeo=60,nocto"


def shared_paths(definition: Definition) -> list[str]:
    """Return the mount points that a node must have before slurmd takes jobs."""
    storage = definition.cluster.storage
    own = [storage.scratch] if storage.scratch is not None else []
    return [folder.path for _, folder in storage.folders()] + own


def home_maker(definition: Definition) -> str:
    """Return the host that makes people's homes."""
    return _root_of(definition, definition.cluster.storage.home)


def _root_of(definition: Definition, folder: Folder) -> str:
    """Return the host whose root is root in a folder.

    The storage host for the folders that it serves; else the controller, for which an existing
    server must export with `no_root_squash`.
    """
    return definition.hosts.groups["storage" if folder.is_served else "controller"][0]


def group_folders(definition: Definition, host: str) -> list[dict[str, Any]]:
    """Return the folders that groups share and that `host` makes: projects, and models."""
    storage = definition.cluster.storage
    folders = []
    if _root_of(definition, storage.data) == host:
        folders += [
            {"path": f"{storage.data.path}/{name}", "group": project.group, "readable": False}
            for name, project in storage.projects.items()
        ]
    models = storage.models
    if models is not None and models.group is not None and _root_of(definition, models) == host:
        folders.append({"path": models.path, "group": models.group, "readable": True})
    return folders


def is_published(key: str, *, builds_software: bool, computes: bool) -> bool:
    """Whether a host only reads the folder `key`: modules built elsewhere, models on all nodes."""
    return (key == "apps" and not builds_software) or (key == "models" and computes)


def mounts(
    definition: Definition,
    *,
    builds_software: bool = False,
    computes: bool = False,
    caches: bool = False,
    serves: bool = False,
) -> list[dict[str, str]]:
    """Return what a host mounts by NFS, in the form of mount(8).

    `builds_software`: the one host that writes to the module tree; the others read it.
    `computes`: a compute node, which only reads models.
    `caches`: a host with a disk for its cache.
    `serves`: a storage host, which has its own folders and mounts those of other servers.
    """
    folders = definition.cluster.storage.of_kind("nfs")
    # Folders of one file system share a superblock, and its first mount decides on `fsc` for all:
    # nfs(5), sharecache. Those that Muster serves have an fsid each, so they don't share one.
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
    """Return what the storage host serves and to whom, as the role `nfs_server` takes it.

    In the cloud the clients are the cluster's own subnet, since nodes come and go; elsewhere each
    host of `addresses` (host -> address, empty where DNS knows the name), and no whole network.
    """
    served = definition.cluster.storage.served()
    if not served:
        return []
    cloud, server = definition.cluster.cloud, definition.hosts.groups["storage"][0]
    hosts = {host: address or host for host, address in addresses.items() if host != server}
    clients = [cloud.subnet] if cloud else list(hosts.values())
    # Root of the controller installs modules. All other clients are squashed: homes are made on the
    # storage host itself.
    builder = hosts.get(definition.hosts.groups["controller"][0])
    return [
        {
            "path": folder.path,
            # The same for the life of the cluster, also with another host or disk: clients identify
            # open files by it.
            "fsid": str(uuid5(NAMESPACE_URL, f"muster:{definition.cluster.name}:{key}")),
            "own_disk": folder.own_disk,
            "clients": [
                {
                    "host": client,
                    "writes": client == builder if key == "apps" else not folder.read_only,
                    "as_root": key == "apps" and client == builder,
                }
                for client in clients
            ],
        }
        for key, folder in served.items()
    ]


def nfs_connections(definition: Definition) -> int:
    """Return how many connections the clients open together when all nodes are up."""
    served = definition.cluster.storage.served()
    nodes = {node for name in definition.cluster.nodes for node in definition.hosts_of(name)}
    hosts = nodes | {*definition.hosts.groups.get("all", [])}
    # A check makes sure that all folders have the same: nconnect of nfs(5) is per server.
    return len(hosts) * max((folder.connections for folder in served.values()), default=0)
