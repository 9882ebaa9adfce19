"""Checks of Ceph: built on the storage hosts, or there already."""

import ipaddress
import posixpath
import re
import uuid
from collections.abc import Iterator

from muster.cluster.ceph import Ceph
from muster.cluster.checks.registry import Finding, check, repeated, source_check
from muster.cluster.definition import Definition
from muster.cluster.sources import SECRETS_FILE, Sources

_OF_THE_BUILT = ("file_gib", "copies", "image")
_OF_THE_EXISTING = ("filesystem", "user")

# Of a name its first part is a registry if it has a dot or a port, or is localhost:
# https://pkg.go.dev/github.com/distribution/reference
_REGISTRY = re.compile(r"(?:[a-z0-9-]+(?:\.[a-z0-9-]+)+(?::\d+)?|[a-z0-9-]+:\d+|localhost)/.+")
# Ceph's images have one tag a release (v19.2.3) and one a build of it (v19.2.3-20250717), which
# stay, and v19 and v19.2, which follow: https://docs.ceph.com/en/latest/install/containers
_PINNED = re.compile(
    r"[^\s:@]+(?::\d+/[^\s:@]+)?(?::v?\d+\.\d+\.\d+(?:-\d{8})?|(?::[\w.-]+)?@sha256:[0-9a-f]{64})"
)


def _built(d: Definition) -> Ceph | None:
    """The Ceph that Muster builds, where it says of what."""
    ceph = d.cluster.storage.ceph
    return ceph if ceph and ceph.is_built and ceph.devices else None


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


@check("ceph-missing")
def ceph_missing(d: Definition) -> Iterator[Finding]:
    """A folder of CephFS, and no Ceph."""
    if d.cluster.storage.ceph is None:
        for key in d.cluster.storage.of_kind("ceph"):
            yield Finding(
                ("storage", key, "kind"),
                "no Ceph cluster is in `storage.ceph`",
                "name `devices` there for one that Muster builds, or `monitors` and `fsid` of "
                "one that is there already (docs/storage.md)",
            )


@check("ceph-without-folder")
def ceph_without_folder(d: Definition) -> Iterator[Finding]:
    """A Ceph cluster, and no folder on it."""
    if d.cluster.storage.ceph and not d.cluster.storage.of_kind("ceph"):
        yield Finding(
            ("storage", "ceph"),
            "no folder is on it",
            "say `kind: ceph` of home, apps, data or models, or take `ceph` out",
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
    """A Ceph cluster that is to be built and there already, or neither."""
    ceph = d.cluster.storage.ceph
    if ceph and bool(ceph.devices) == bool(ceph.monitors):
        both = "`devices` to build it of, and `monitors` of one that is there already"
        yield Finding(
            ("storage", "ceph"),
            both if ceph.devices else "neither `devices` to build it of, nor `monitors`",
            "name the one or the other",
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


@check("ceph-fsid-shape")
def ceph_fsid_shape(d: Definition) -> Iterator[Finding]:
    """A number of a Ceph cluster that is no UUID."""
    fsid = d.cluster.storage.ceph.fsid if d.cluster.storage.ceph else None
    if fsid is None:
        return
    try:
        plain = str(uuid.UUID(fsid)) == fsid
    except ValueError:
        plain = False
    if not plain:
        yield Finding(
            ("storage", "ceph", "fsid"),
            f'"{fsid}" is no UUID',
            "write it as `ceph fsid` prints it",
        )


@check("ceph-monitor")
def ceph_monitor(d: Definition) -> Iterator[Finding]:
    """A monitor that is no address, or is there twice."""
    monitors = d.cluster.storage.ceph.monitors if d.cluster.storage.ceph else []
    for index, monitor in enumerate(monitors):
        if not _is_address(monitor):
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


@check("ceph-device")
def ceph_device(d: Definition) -> Iterator[Finding]:
    """A disk that is no absolute path in its shortest form, or is there twice."""
    devices = d.cluster.storage.ceph.devices if d.cluster.storage.ceph else []
    for index, device in enumerate(devices):
        plain = re.fullmatch(r"/[A-Za-z0-9._:+/-]+", device) and posixpath.normpath(device)
        if plain != device or device.startswith("//"):
            yield Finding(
                ("storage", "ceph", "devices", index),
                f'"{device}" is no device file',
                "write it as /dev/disk/by-id/..., a name that a disk keeps; or, for trials, as "
                "the path of a file such as /var/lib/muster/osd-1.img",
            )
    for index, device in repeated(devices):
        yield Finding(
            ("storage", "ceph", "devices", index),
            f"{device} is there twice",
            "name each disk once: it is one OSD",
        )


@check("ceph-image")
def ceph_image(d: Definition) -> Iterator[Finding]:
    """A container image of Ceph that is another one tomorrow, or lies in no registry."""
    image = d.cluster.storage.ceph.image if d.cluster.storage.ceph else None
    if image is not None and not _REGISTRY.fullmatch(image):
        yield Finding(
            ("storage", "ceph", "image"),
            f'"{image}" names no registry, and hosts would look for it in one of their own',
            "write all of its name, like quay.io/ceph/ceph:v20.2.5",
        )
    elif image is not None and not _PINNED.fullmatch(image):
        yield Finding(
            ("storage", "ceph", "image"),
            f'"{image}" is another image tomorrow: hosts would get different releases',
            "pin one release, like quay.io/ceph/ceph:v20.2.5, or one digest (@sha256:...)",
        )


@check("ceph-image-of-files")
def ceph_image_of_files(d: Definition) -> Iterator[Finding]:
    """A file in place of a disk for cephadm, which takes disks alone."""
    ceph = d.cluster.storage.ceph
    for index, device in enumerate(ceph.devices if ceph and ceph.image else []):
        if not device.startswith("/dev/"):
            yield Finding(
                ("storage", "ceph", "devices", index),
                f"{device} is no disk, and cephadm makes OSDs of disks alone",
                "name a disk, or take `image` out: packages take files too",
            )


@check("ceph-key-without-meaning")
def ceph_key_without_meaning(d: Definition) -> Iterator[Finding]:
    """A key that has no say for a Ceph cluster that is built, or for one that is there."""
    ceph = d.cluster.storage.ceph
    if ceph is None:
        return
    wrong = _OF_THE_EXISTING if ceph.is_built else _OF_THE_BUILT
    why = "Muster builds this cluster" if ceph.is_built else "Muster does not build this cluster"
    for key in wrong:
        if key in ceph.model_fields_set:
            yield Finding(
                ("storage", "ceph", key), f"{why}, so this has no say here", "take it out"
            )


@check("ceph-cached-by-fuse")
def ceph_cached_by_fuse(d: Definition) -> Iterator[Finding]:
    """FS-Cache, which the kernel's client alone has."""
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
                    f'"{export}" and storage.{other_key} "{other}" of the file system lie in '
                    "each other",
                    "give each a folder of its own in `export`",
                )


def _below(data: object, *keys: str) -> object:
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    return data


@source_check("ceph-key-missing")
def ceph_key_missing(sources: Sources) -> Iterator[Finding]:
    """A Ceph cluster that is there already, and no key of its client among the secrets."""
    document = sources.others.get(SECRETS_FILE)
    if document is None or not _below(sources.definition, "storage", "ceph", "monitors"):
        return
    # What is encrypted only Ansible reads.
    if not document.encrypted and not _below(document.data, "secrets", "ceph_key"):
        yield Finding(
            ("secrets",),
            "`ceph_key` is missing: the hosts could not mount what is on `storage.ceph`",
            "write down what `ceph auth get-key` prints for its client on that cluster",
            SECRETS_FILE,
            document.line(("secrets",)),
        )


@check("ceph-without-host", reads_hosts=True)
def ceph_without_host(d: Definition) -> Iterator[Finding]:
    """Ceph to be built, and no host to build it on."""
    if _built(d) and not d.hosts.groups.get("storage"):
        yield Finding(
            ("storage", "ceph"),
            "no host is in the group `storage` to build it on",
            "add those that have the disks to hosts.yml: three, or one for a trial",
        )


@check("ceph-copies", reads_hosts=True)
def ceph_copies(d: Definition) -> Iterator[Finding]:
    """More copies than there are disks to hold them."""
    ceph, hosts = _built(d), d.hosts.groups.get("storage", [])
    if ceph and hosts and len(hosts) * len(ceph.devices) < ceph.copies:
        yield Finding(
            ("storage", "ceph"),
            f"{ceph.copies} copies have no place on {len(hosts) * len(ceph.devices)} disks "
            f"({len(hosts)} in group `storage`, {len(ceph.devices)} in `devices` of each)",
            "name more disks, add hosts, or say fewer `copies`",
        )


@check("ceph-host-address", reads_hosts=True)
def ceph_host_address(d: Definition) -> Iterator[Finding]:
    """A storage host whose address is not known: Ceph's daemons and clients use no names."""
    # In a play nothing is known of any host, and the file was checked before.
    if not _built(d) or not any(d.hosts.vars.values()):
        return
    for host in d.hosts.groups.get("storage", []):
        address = str(d.hosts.vars.get(host, {}).get("ansible_host", ""))
        # What a template stands for, only Ansible knows.
        if "{{" not in address and not _is_address(address):
            yield Finding(
                ("storage", host),
                f"ansible_host of {host} is no IP address, and Ceph uses no names",
                "write it like 192.0.2.11, in the network of the cluster",
                "hosts",
            )
