"""Shared folders: where they come from, and how they behave."""

import zlib
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from muster.definition.schema import patterns
from muster.definition.schema.base import Model, named
from muster.definition.schema.ceph import Ceph

# Kernels that the distributions' own packages install.
KERNELS = {
    "debian-12": "6.1",
    "debian-13": "6.12",
    "ubuntu-22.04": "5.15",
    "ubuntu-24.04": "6.8",
}

# Known faults of FS-Cache by kernel, from production use: known issues and change log of
# https://github.com/GoogleCloudPlatform/knfsd-cache-utils. Fixed from 6.11 on.
POOR_CACHE = {
    "5.15": "stops caching for good once its disk is full",
    "6.1": "reads at 30 to 40 MB/s per process, less than most networks bring",
    "6.8": "has faults in cachefiles that later kernels fixed",
}

LEAST_FILES = 100
"""Quota of files at least: a new home has some, and programs make more at their first start."""


def project_number(name: str) -> int:
    """Return the number by which a file system counts what is in a project's folder."""
    return zlib.crc32(name.encode())


class Folder(Model):
    """A folder that all hosts share."""

    kind: Annotated[
        Literal["existing", "nfs", "ceph"],
        Field(
            description="existing: each host has it already, Muster mounts nothing. nfs: the host "
            "in the group `storage` serves it, or `server` does, and all others mount it. ceph: it "
            "is a folder of CephFS, see `storage.ceph`."
        ),
    ] = "existing"
    path: Annotated[str, Field(description="Where it is on each host, absolute path.")]
    server: Annotated[
        str | None,
        Field(
            description="nfs: name or address of an NFS server that is there already, such as a "
            "filer or Filestore; null: the host in the group `storage` serves it."
        ),
    ] = None
    export: Annotated[
        str | None,
        Field(
            description="nfs: the folder on `server`, such as `/vol1/home`. ceph: the folder in "
            "the file system. null: `path`."
        ),
    ] = None
    connections: Annotated[
        int,
        Field(
            ge=1,
            # nfs(5).
            le=16,
            description="nfs: TCP connections of each host to the server (`nconnect`); more than "
            "4 pay from 25 Gbit/s on, or where the cloud limits one connection.",
        ),
    ] = 4
    read_only: Annotated[
        bool,
        Field(
            description="Mounted read-only on all hosts; `apps` always is, except where it is "
            "built."
        ),
    ] = False
    exec: Annotated[
        bool, Field(description="Whether programs may be started from it (`noexec` if not).")
    ] = True
    size_gib: Annotated[
        int | None,
        Field(
            ge=1,
            le=65536,
            json_schema_extra={"x-unit": "GiB"},
            description="How much it may hold, if Muster serves it: each folder has a file system "
            "of its own. In the cloud its disk, which can grow; null: 100. On the host in the "
            "group `storage` a file, whose room is taken at once; null: an administrator mounts a "
            "disk there. ceph: a quota; null: none.",
        ),
    ] = None
    cached: Annotated[
        bool,
        Field(
            description="Compute nodes cache what they read of it on their own disk (FS-Cache), "
            "see `storage.cache`."
        ),
    ] = False

    @property
    def is_served(self) -> bool:
        """Whether the host in group `storage` serves it."""
        return self.kind == "nfs" and self.server is None


class Home(Folder):
    """The folder of the homes."""

    quota_gib: Annotated[
        int | None,
        Field(
            ge=1,
            json_schema_extra={"x-unit": "GiB"},
            description="How much each home may hold, where the host in the group `storage` serves "
            "them; null: as much as there is room.",
        ),
    ] = None
    quota_files: Annotated[
        int | None,
        Field(
            ge=LEAST_FILES,
            description="How many files and folders each home may have, likewise.",
        ),
    ] = None


class Project(Model):
    """A folder in `data` that a group shares."""

    group: Annotated[str, Field(description="Group whose members share it; nobody else reads it.")]
    quota_gib: Annotated[
        int | None,
        Field(
            ge=1,
            json_schema_extra={"x-unit": "GiB"},
            description="How much it may hold, where Muster serves `data`; null: as `data`.",
        ),
    ] = None
    quota_files: Annotated[
        int | None,
        Field(
            ge=LEAST_FILES,
            description="How many files and folders it may have, likewise.",
        ),
    ] = None


class Models(Folder):
    """The model store: one copy of each model, which all read."""

    path: Annotated[str, Field(description="Where it is on each host, absolute path.")] = "/models"
    group: Annotated[
        str | None,
        Field(
            description="Group whose members may add models, by `muster-models` on a login node. "
            "The store belongs to the account `muster-models`, and everybody can read it. null: "
            "only root adds models."
        ),
    ] = None


class Images(Folder):
    """The store of OCI images, whose programs jobs run without root."""

    path: Annotated[str, Field(description="Where it is on each host, absolute path.")] = "/images"
    group: Annotated[
        str | None,
        Field(
            description="Group whose members may pull images into it, by `muster-container` on a "
            "login node, and replace each other's. Everybody can run them. null: only root."
        ),
    ] = None


class Cache(Model):
    """The disk of a compute node that caches what it reads of cached folders."""

    device: Annotated[
        str | None,
        Field(
            description="Disk of each compute node, such as `/dev/nvme1n1`, all of which becomes "
            "the cache: it is formatted if it is blank, and refused if anything else is on it. "
            "null: a file of `size_gib` on the root disk."
        ),
    ] = None
    size_gib: Annotated[
        int,
        Field(
            ge=1,
            json_schema_extra={"x-unit": "GiB"},
            description="Size of that file; no effect where there is a `device`.",
        ),
    ] = 20
    any_kernel: Annotated[
        bool,
        Field(description="Also cache on kernels with known faults in it (docs/storage.md)."),
    ] = False


class Storage(Model):
    """The folders that all hosts share."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"data": {"path": "/data"}}]})

    home: Annotated[Home, Field(description="Home directories.")] = Home(path="/home")
    apps: Annotated[Folder, Field(description="Software and its modules.")] = Folder(path="/apps")
    data: Annotated[Folder, Field(description="Data sets.")] = Folder(path="/data")
    projects: Annotated[
        dict[str, Project],
        Field(
            description="Folders in `data` by name, one group each: the other members can read and "
            "change what one member writes, whatever the umask is.",
            json_schema_extra=named(patterns.PROJECT_NAME),
        ),
    ] = {}
    models: Annotated[
        Models | None,
        Field(
            description="The model store, one copy of each model for all; null: there is none.",
            examples=[{"kind": "nfs", "group": "curators"}],
        ),
    ] = None
    images: Annotated[
        Images | None,
        Field(
            description="The store of OCI images; jobs then run their programs by "
            "`muster-container run`. For own machines, not for VMs of a cloud. null: there is "
            "none.",
            examples=[{"kind": "nfs", "group": "curators"}],
        ),
    ] = None
    state_gib: Annotated[
        int | None,
        Field(
            ge=1,
            le=65536,
            json_schema_extra={"x-unit": "GiB"},
            description="How much slurmctld's state and MariaDB's data may hold on machines of "
            "your own: on the hosts that have them they lie in a file system of their own, whose "
            "room is taken at once, so that nobody stops them by a full disk. It can grow. null: "
            "they stay where they are, such as on a disk that an administrator mounts there.",
        ),
    ] = 10
    scratch: Annotated[
        str | None,
        Field(
            description="Folder on each compute node's own disk, such as `/scratch`: it has the "
            "job's TMPDIR and caches, which are removed with the job; null: jobs use /tmp."
        ),
    ] = None
    private_tmp: Annotated[
        bool,
        Field(
            description="Each job has a `/tmp` and a `/dev/shm` of its own on each of its nodes, "
            "empty at its start and removed at its end; `/tmp` lies in `scratch` where there is "
            "one. Off by default: such a job does not see what is mounted on its node later, such "
            "as a home by autofs. For own machines, not for VMs of a cloud, where it was not tried."
        ),
    ] = False
    cache: Annotated[
        Cache,
        Field(
            description="FS-Cache, for folders with `cached`.",
            examples=[{"device": "/dev/nvme1n1"}],
        ),
    ] = Cache()
    ceph: Annotated[
        Ceph | None,
        Field(
            description="The Ceph cluster of folders with `kind: ceph`; null: there is none.",
            examples=[{"devices": {"storage": ["/dev/disk/by-path/..."]}}],
        ),
    ] = None

    def folders(self) -> Iterator[tuple[str, Folder]]:
        """Return the folders that there are, by key."""
        for key, value in self:
            if isinstance(value, Folder):
                yield key, value

    def mounted(self) -> dict[str, Folder]:
        """Return the folders that hosts mount, by key."""
        return {key: folder for key, folder in self.folders() if folder.kind != "existing"}

    def keeps_quotas(self, key: Literal["home", "data"]) -> bool:
        """Whether Muster can limit what single folders in this one hold."""
        folder: Folder = getattr(self, key)
        built = key == "data" and self.ceph is not None and self.ceph.is_built
        return folder.is_served or (folder.kind == "ceph" and built)

    @property
    def is_cached(self) -> bool:
        """Whether compute nodes cache what they read of some folder."""
        return any(folder.cached for folder in self.mounted().values())

    def of_kind(self, kind: str) -> dict[str, Folder]:
        """Return the folders of one kind, by key."""
        return {key: folder for key, folder in self.folders() if folder.kind == kind}

    def served(self) -> dict[str, Folder]:
        """Return the folders that the storage host serves, by key."""
        return {key: folder for key, folder in self.folders() if folder.is_served}
