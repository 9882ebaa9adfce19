"""Checks of Ceph: whether it is built or there already, and what its clients need."""

from collections.abc import Iterator

from muster.definition.checks.registry import Finding, check, repeated
from muster.definition.checks.rows import Spelling, at, table
from muster.definition.definition import Definition
from muster.definition.schema import patterns

_OF_THE_BUILT = ("file_gib", "copies", "image")
_OF_THE_EXISTING = ("filesystem", "user")

# fmt: off
table(
    Spelling("ceph-fsid-shape",
        "A number of a Ceph cluster that is no UUID",
        at("storage.ceph.fsid"), r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
        '"{value}" is no UUID',
        "write it as `ceph fsid` prints it"),
    Spelling("ceph-user",
        "A name of a Ceph client that begins with `client.`, or is no name",
        at("storage.ceph.user"), r"(?!client\.)[A-Za-z0-9._-]+",
        '"{value}" is no name of a client',
        "write what `ceph auth ls` shows behind `client.`, without that"),
)
# fmt: on


@check("ceph-missing")
def ceph_missing(d: Definition) -> Iterator[Finding]:
    """A folder of CephFS, and no Ceph."""
    if d.cluster.storage.ceph is None:
        for key in d.cluster.storage.of_kind("ceph"):
            yield Finding(
                ("storage", key, "kind"),
                "no Ceph cluster is in `storage.ceph`",
                "name `devices` there for one that Muster builds, or `monitors` and `fsid` of "
                "one that is there already (docs/storage.md, docs/ceph.md)",
            )


@check("ceph-without-folder")
def ceph_without_folder(d: Definition) -> Iterator[Finding]:
    """A Ceph cluster, and no folder on it."""
    if d.cluster.storage.ceph and not d.cluster.storage.of_kind("ceph"):
        yield Finding(
            ("storage", "ceph"),
            "no folder is on it",
            "say `kind: ceph` of home, apps, data, models or images, or take `ceph` out",
        )


@check("ceph-in-the-cloud")
def ceph_in_the_cloud(d: Definition) -> Iterator[Finding]:
    """CephFS in the cloud, whose disks have copies already."""
    if d.cluster.cloud is not None:
        for key in d.cluster.storage.of_kind("ceph"):
            yield Finding(
                ("storage", key, "kind"),
                "Muster has no Ceph in the cloud: disks there have copies already",
                "say `kind: nfs`; with `server` it is Filestore",
            )


@check("ceph-devices-or-monitors")
def ceph_devices_or_monitors(d: Definition) -> Iterator[Finding]:
    """A Ceph cluster that is to be built and exists already, or neither."""
    ceph = d.cluster.storage.ceph
    if ceph and bool(ceph.devices) == bool(ceph.monitors):
        both = "`devices` to build it on, and `monitors` of one that is there already"
        yield Finding(
            ("storage", "ceph"),
            both if ceph.devices else "neither `devices` to build it on, nor `monitors`",
            "name one of the two",
        )


@check("ceph-fsid")
def ceph_fsid(d: Definition) -> Iterator[Finding]:
    """A Ceph cluster that is there already without its number, or the other way round."""
    ceph = d.cluster.storage.ceph
    if ceph and ceph.monitors and ceph.fsid is None:
        yield Finding(
            ("storage", "ceph", "monitors"),
            "the cluster's `fsid` is missing",
            "write down what `ceph fsid` prints there",
        )
    if ceph and ceph.fsid is not None and not ceph.monitors:
        yield Finding(
            ("storage", "ceph", "fsid"),
            "a cluster that Muster builds gets its number from Muster",
            "take it out, or name the `monitors` of the cluster that has it",
        )


@check("ceph-monitor")
def ceph_monitor(d: Definition) -> Iterator[Finding]:
    """A monitor that is no address, or is there twice."""
    monitors = d.cluster.storage.ceph.monitors if d.cluster.storage.ceph else []
    for index, monitor in enumerate(monitors):
        if not patterns.is_address(monitor):
            yield Finding(
                ("storage", "ceph", "monitors", index),
                f'"{monitor}" is no IP address',
                "write the address alone, without a port; the kernel resolves no names",
            )
    for index, monitor in repeated(monitors):
        yield Finding(
            ("storage", "ceph", "monitors", index),
            f"{monitor} is there twice",
            "take one of them out",
        )


@check("ceph-key-without-meaning")
def ceph_key_without_meaning(d: Definition) -> Iterator[Finding]:
    """A key without effect for a Ceph cluster that Muster builds, or for an existing one."""
    ceph = d.cluster.storage.ceph
    if ceph is None:
        return
    wrong = _OF_THE_EXISTING if ceph.is_built else _OF_THE_BUILT
    why = "Muster builds this cluster" if ceph.is_built else "Muster does not build this cluster"
    for key in wrong:
        if key in ceph.model_fields_set:
            yield Finding(
                ("storage", "ceph", key), f"{why}, so this has no effect here", "take it out"
            )


@check("ceph-cached-by-fuse")
def ceph_cached_by_fuse(d: Definition) -> Iterator[Finding]:
    """FS-Cache with ceph-fuse: only the kernel's client has it."""
    ceph = d.cluster.storage.ceph
    if ceph and ceph.client == "fuse":
        for key, folder in d.cluster.storage.of_kind("ceph").items():
            if folder.cached:
                yield Finding(
                    ("storage", key, "cached"),
                    "ceph-fuse has no FS-Cache",
                    "leave it out, or say `client: kernel` in `storage.ceph`",
                )


@check("ceph-export-nested")
def ceph_export_nested(d: Definition) -> Iterator[Finding]:
    """One folder of the file system inside another: a quota would count for both."""
    folders = d.cluster.storage.of_kind("ceph")
    exports = [(key, folder.export or folder.path) for key, folder in folders.items()]
    for index, (key, export) in enumerate(exports):
        for other_key, other in exports[:index]:
            if f"{export}/".startswith(f"{other}/") or f"{other}/".startswith(f"{export}/"):
                yield Finding(
                    ("storage", key),
                    f'"{export}" and storage.{other_key} "{other}" of the file system overlap',
                    "give each its own folder in `export`",
                )
