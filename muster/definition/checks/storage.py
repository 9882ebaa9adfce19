"""Checks of shared folders."""

import re
from collections.abc import Iterator

from muster.definition.checks.hosts import lacks
from muster.definition.checks.paths import is_well_formed
from muster.definition.checks.registry import Finding, check
from muster.definition.checks.rows import Spelling, table
from muster.definition.definition import Definition
from muster.definition.schema import patterns
from muster.definition.schema.ceph import Ceph
from muster.definition.schema.node_sets import LEAST_DISK_GIB
from muster.definition.schema.storage import Folder
from muster.definition.yaml_file import KeyPath

# Folders of the system with all that is in them (hier(7)), and those in which others may lie.
_SYSTEM = (
    *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/root", "/run"),
    *("/sbin", "/sys", "/usr", "/var/cache", "/var/lock", "/var/log", "/var/mail", "/var/run"),
    *("/tmp", "/var/spool", "/var/tmp"),  # noqa: S108 (not used as such)
)
_SYSTEM_ALONE = ("/", "/var", "/var/lib")
# Folders of Muster and of the daemons that it runs, below /usr/local, /opt and /var/lib, where
# administrators have their own folders too.
_OWN = (
    *("/usr/local/bin", "/usr/local/lib", "/usr/local/sbin"),
    *("/opt/muster", "/opt/muster-models", "/opt/muster-uv"),
    *(f"/var/lib/{name}" for name in ("apt", "ceph", "dkms", "dpkg", "muster", "mysql", "nfs")),
    *(f"/var/lib/{name}" for name in ("cephadm", "munge", "slurm", "systemd")),
    "/srv/muster",
)


def below(path: str, other: str) -> bool:
    """Whether a path lies in another one or is it."""
    return path == other or path.startswith(other.rstrip("/") + "/")


def of_the_system(path: str) -> bool:
    """Whether a folder belongs to each host."""
    if any(below(path, own) for own in _OWN):
        return True
    if path.startswith("/usr/local/"):
        return False
    return path in _SYSTEM_ALONE or any(below(path, parent) for parent in _SYSTEM)


def _mounted_paths(d: Definition) -> Iterator[tuple[KeyPath, str]]:
    """The paths of folders that Muster mounts, if another check takes them."""
    for key, folder in d.cluster.storage.mounted().items():
        if is_well_formed(folder.path):
            yield ("storage", key, "path"), folder.path


def _servers(d: Definition) -> Iterator[tuple[KeyPath, str]]:
    for key, folder in d.cluster.storage.folders():
        if folder.server is not None:
            yield ("storage", key, "server"), folder.server


_UNIT_CHARACTERS = 255 - len(".automount")
"""Of a path in the name of its unit (systemd.unit(5))."""


def _has_unit(path: str) -> bool:
    """Whether the unit of systemd that mounts a path can have its name."""
    # systemd-escape(1) writes other characters as \\x2d.
    escaped = sum(1 if re.match(r"[A-Za-z0-9:_./]", character) else 4 for character in path)
    return escaped <= _UNIT_CHARACTERS


# fmt: off
table(
    Spelling("folder-too-long",
        "A shared folder whose path is too long for the unit of systemd that mounts it",
        _mounted_paths, _has_unit,
        "systemd can't mount it: the name of a unit has up to 255 characters, in which each "
        "character but letters, digits, dots and underscores counts as four",
        "take a shorter path"),
    Spelling("storage-server",
        "A server that is neither a host name nor an address",
        _servers, patterns.is_host,
        '"{value}" is no host',
        "write its name or address alone; the folder on it goes into `export`"),
)
# fmt: on


@check("folder-of-the-system")
def folder_of_the_system(d: Definition) -> Iterator[Finding]:
    """A shared folder that belongs to each host."""
    for key, folder in d.cluster.storage.folders():
        # What configures each VM is below it.
        if of_the_system(folder.path) or (d.cluster.cloud and folder.path == "/opt"):
            yield Finding(
                ("storage", key, "path"),
                f'"{folder.path}" belongs to each host',
                "share a separate folder, such as /home, /apps or /srv/data",
            )


@check("folders-nested")
def folders_nested(d: Definition) -> Iterator[Finding]:
    """A shared folder inside another one."""
    folders = [
        (key, folder.path)
        for key, folder in d.cluster.storage.folders()
        # Other checks refuse those.
        if is_well_formed(folder.path) and folder.path != "/"
    ]
    for index, (key, path) in enumerate(folders):
        for other_key, other in folders[:index]:
            if below(path, other) or below(other, path):
                yield Finding(
                    ("storage", key, "path"),
                    f'"{path}" and storage.{other_key} "{other}" overlap',
                    "give each its own folder",
                )


@check("export-twice")
def export_twice(d: Definition) -> Iterator[Finding]:
    """One folder of a server at two places: a file has two paths, and caches go out of date."""
    key_by_source: dict[tuple[str, str], str] = {}
    for key, folder in d.cluster.storage.mounted().items():
        if folder.server is None:
            continue
        source = (folder.server, folder.export or folder.path)
        if source in key_by_source:
            yield Finding(
                ("storage", key),
                f'"{source[0]}:{source[1]}" is storage.{key_by_source[source]} too',
                "mount it once, or give `export` its own folder on the server",
            )
        key_by_source.setdefault(source, key)


def _meaningless(folder: Folder, ceph: Ceph | None) -> Iterator[tuple[str, str, str]]:
    """Keys of a folder without effect: each with the reason, and how to give it an effect."""
    given = folder.model_fields_set
    if folder.kind != "ceph" and folder.server is None and "export" in given:
        why = "there is no `server` that has another folder"
        yield "export", why, "say `kind: nfs` with a `server`"
    built = folder.kind == "ceph" and ceph is not None and ceph.is_built
    if "size_gib" in given and not (folder.is_served or built):
        why = "Muster does not serve this folder"
        or_serve_it = "say `kind: nfs`, or " if folder.kind == "existing" else ""
        yield "size_gib", why, f"{or_serve_it}set its size where it is"
    if folder.kind == "ceph":
        for key in ("server", "connections"):
            if key in given:
                yield key, "Ceph's clients talk to all of its hosts", "say `kind: nfs`"
    if folder.kind == "existing":
        for key in ("server", "connections"):
            if key in given:
                yield key, "Muster does not mount this folder", "say `kind: nfs`"
        for key in ("read_only", "exec", "cached"):
            if key in given:
                yield key, "Muster does not mount this folder", "say `kind: nfs` or `kind: ceph`"


@check("folder-key-without-meaning")
def folder_key_without_meaning(d: Definition) -> Iterator[Finding]:
    """A key without effect for a folder of this kind."""
    for key, folder in d.cluster.storage.folders():
        for name, why, otherwise in _meaningless(folder, d.cluster.storage.ceph):
            yield Finding(
                ("storage", key, name),
                f"{why}, so this has no effect here",
                f"take it out, or {otherwise}",
            )


@check("storage-server-of-ours", reads_hosts=True)
def storage_server_of_ours(d: Definition) -> Iterator[Finding]:
    """A host of the inventory named as an existing server."""
    names = {host: host for host in d.hosts.groups.get("all", [])}
    names |= {str(d.hosts.vars.get(host, {}).get("ansible_host", host)): host for host in names}
    for key, folder in d.cluster.storage.folders():
        if folder.server in names:
            yield Finding(
                ("storage", key, "server"),
                f"{folder.server} is {names[folder.server]} of hosts.yml",
                "put it into the group `storage` and leave `server` out: Muster sets it up",
            )


@check("storage-connections")
def storage_connections(d: Definition) -> Iterator[Finding]:
    """Folders of one server with different numbers of connections: the first mount's counts."""
    # By server; None: the cluster's own.
    first: dict[str | None, tuple[str, int]] = {}
    for key, folder in d.cluster.storage.of_kind("nfs").items():
        other, connections = first.setdefault(folder.server, (key, folder.connections))
        if folder.connections != connections:
            yield Finding(
                ("storage", key, "connections"),
                f"storage.{other} of the same server has {connections}",
                "give both the same number: the kernel takes that of the first mount for all",
            )


@check("folder-disk-too-small")
def folder_disk_too_small(d: Definition) -> Iterator[Finding]:
    """A folder's disk that Google does not make so small."""
    for key, folder in d.cluster.storage.served().items() if d.cluster.cloud else ():
        if folder.size_gib is not None and folder.size_gib < LEAST_DISK_GIB:
            yield Finding(
                ("storage", key, "size_gib"),
                f"a disk has {LEAST_DISK_GIB} GiB at least",
                f"say {LEAST_DISK_GIB} or more, or leave it out",
            )


@check("state-size-in-the-cloud")
def state_size_in_the_cloud(d: Definition) -> Iterator[Finding]:
    """A size for queue and database where they have a disk."""
    if d.cluster.cloud and "state_gib" in d.cluster.storage.model_fields_set:
        yield Finding(
            ("storage", "state_gib"),
            "in the cloud queue and database have a disk, so this has no effect here",
            "take it out, and say `size_gib` of cloud.controller.state_disk",
        )


@check("folder-without-programs")
def folder_without_programs(d: Definition) -> Iterator[Finding]:
    """Homes or modules from which no program can be started."""
    for key in ("home", "apps"):
        if not getattr(d.cluster.storage, key).exec:
            yield Finding(
                ("storage", key, "exec"),
                "people start programs from this folder",
                "leave `exec` out; it is for folders with data only",
            )


@check("home-read-only")
def home_read_only(d: Definition) -> Iterator[Finding]:
    """Homes in which nobody can write."""
    if d.cluster.storage.home.read_only:
        yield Finding(
            ("storage", "home", "read_only"),
            "nobody could write in their own home",
            "leave it out",
        )


@check("apps-read-only")
def apps_read_only(d: Definition) -> Iterator[Finding]:
    """A read-only folder of modules, and modules that the controller has to build."""
    if d.cluster.storage.apps.read_only and d.cluster.software.modules:
        yield Finding(
            ("storage", "apps", "read_only"),
            "the controller could not install the modules of `software`",
            "leave it out: all other hosts mount it read-only anyway",
        )


@check("folder-without-server", reads_hosts=True)
def folder_without_server(d: Definition) -> Iterator[Finding]:
    """A folder that Muster serves, and no host to serve it."""
    ceph = d.cluster.storage.ceph
    # Ceph is built on these hosts too, of which another check says that they are missing.
    if lacks(d, "storage") and not (ceph and ceph.is_built):
        for key in d.cluster.storage.served():
            yield Finding(
                ("storage", key, "kind"),
                "no host is in the group `storage` to serve it",
                "add one to hosts.yml; it may be the controller",
                mistake="no host",
            )


@check("two-storage-hosts", reads_hosts=True)
def two_storage_hosts(d: Definition) -> Iterator[Finding]:
    """More than one host to serve the same folders."""
    ceph, served = d.cluster.storage.ceph, d.cluster.storage.served()
    others = (
        "name another machine that serves a folder as its `server` (not in hosts.yml), or say "
        "`kind: ceph` of all folders on them"
    )
    # Ceph is built on all storage hosts, so none of them can be removed.
    remedy = others if ceph and ceph.is_built else f"leave one host in `storage`, {others}"
    for host in d.hosts.groups.get("storage", ())[1:] if served else ():
        yield Finding(
            ("storage", host), "Muster does not set up a second NFS server yet", remedy, "hosts"
        )
