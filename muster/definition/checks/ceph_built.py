"""Checks of a Ceph cluster that Muster builds: its hosts, their disks, its image."""

import re
from collections.abc import Iterator

from muster.definition.checks.hosts import lacks
from muster.definition.checks.paths import is_disk, is_well_formed
from muster.definition.checks.registry import Finding, check, repeated, suggestion
from muster.definition.checks.storage import below, of_the_system
from muster.definition.definition import Definition
from muster.definition.problems import counted
from muster.definition.schema import patterns
from muster.definition.schema.ceph import Ceph

_FILES = "/var/lib/muster/"
"""Where files may stand for disks, though the folder is Muster's."""
# The first part of a name is a registry if it has a dot or a port, or is localhost:
# https://pkg.go.dev/github.com/distribution/reference
_REGISTRY = re.compile(
    r"(?:[a-z0-9-]+(?:\.[a-z0-9-]+)+(?::\d+)?|[a-z0-9-]+:\d+|localhost)/.+", re.ASCII
)
# Ceph's images have one tag a release (v19.2.3) and one a build of it (v19.2.3-20250717), which
# stay, and v19 and v19.2, which follow: https://docs.ceph.com/en/latest/install/containers
_PINNED = re.compile(
    r"[^\s:@]+(?::\d+/[^\s:@]+)?(?::v?\d+\.\d+\.\d+(?:-\d{8})?|(?::[\w.-]+)?@sha256:[0-9a-f]{64})",
    re.ASCII,
)


def _built(d: Definition) -> Ceph | None:
    """The Ceph cluster that Muster builds, if its disks are named."""
    ceph = d.cluster.storage.ceph
    return ceph if ceph and ceph.is_built and ceph.devices else None


def _disks(d: Definition) -> Iterator[tuple[tuple[str, str, str, str], list[str]]]:
    """The disks of each group or host that is named, and where they are written."""
    ceph = d.cluster.storage.ceph
    for name, disks in ceph.devices.items() if ceph else ():
        yield ("storage", "ceph", "devices", name), disks


def _is_own_file(d: Definition, path: str) -> bool:
    """Whether Muster may make a file there: not in folders of the system, nor in shared ones."""
    if path.startswith("/dev/"):
        return False
    shared = (folder.path for _, folder in d.cluster.storage.folders())
    return path.startswith(_FILES) or not (
        of_the_system(path) or any(below(path, folder) for folder in shared)
    )


@check("ceph-device")
def ceph_device(d: Definition) -> Iterator[Finding]:
    """A disk that is no device file of a disk, or is there twice."""
    for place, disks in _disks(d):
        for index, device in enumerate(disks):
            if is_well_formed(device) and not (is_disk(device) or _is_own_file(d, device)):
                yield Finding(
                    (*place, index),
                    f'"{device}" is no disk',
                    "write its slot, as /dev/disk/by-path/...; or, for trials, the path of a file "
                    "such as /var/lib/muster/osd-1.img",
                )
        for index, device in repeated(disks):
            yield Finding(
                (*place, index),
                f"{device} is there twice",
                "name each disk once: it is one OSD",
            )


@check("ceph-image")
def ceph_image(d: Definition) -> Iterator[Finding]:
    """A container image of Ceph without a fixed release, or without a registry."""
    image = d.cluster.storage.ceph.image if d.cluster.storage.ceph else None
    if image is not None and not _REGISTRY.fullmatch(image):
        yield Finding(
            ("storage", "ceph", "image"),
            f'"{image}" names no registry, and each host would search its own registries',
            "write the full name, like quay.io/ceph/ceph:v20.2.5",
        )
    elif image is not None and not _PINNED.fullmatch(image):
        yield Finding(
            ("storage", "ceph", "image"),
            f'"{image}" can change at any time: hosts would get different releases',
            "pin one release, like quay.io/ceph/ceph:v20.2.5, or one digest (@sha256:...)",
        )


@check("ceph-image-of-files")
def ceph_image_of_files(d: Definition) -> Iterator[Finding]:
    """A file in place of a disk for cephadm, which takes disks only."""
    by_cephadm = d.cluster.storage.ceph is not None and d.cluster.storage.ceph.image is not None
    for place, disks in _disks(d) if by_cephadm else ():
        for index, device in enumerate(disks):
            if not device.startswith("/dev/"):
                yield Finding(
                    (*place, index),
                    f"{device} is no disk, and cephadm makes OSDs of disks only",
                    "name a disk, or take `image` out: packages take files too",
                )


@check("ceph-without-host", reads_hosts=True)
def ceph_without_host(d: Definition) -> Iterator[Finding]:
    """Ceph to be built, and no host to build it on."""
    if _built(d) and lacks(d, "storage"):
        yield Finding(
            ("storage", "ceph"),
            "no host is in the group `storage` to build it on",
            "add those that have the disks to hosts.yml: three, or one for a trial",
        )


@check("ceph-copies", reads_hosts=True)
def ceph_copies(d: Definition) -> Iterator[Finding]:
    """More copies than disks."""
    ceph, hosts = _built(d), d.hosts.groups.get("storage", [])
    if ceph is None:
        return
    disks = [len(ceph.devices_of(host, d.hosts.groups)) for host in hosts]
    # Another check reports a host without disks.
    if all(disks) and 0 < sum(disks) < ceph.copies:
        yield Finding(
            ("storage", "ceph"),
            f"{ceph.copies} copies do not fit on {counted(sum(disks), 'disk')} of "
            f"{counted(len(hosts), 'host')} in group `storage`",
            "name more disks, add hosts, or say fewer `copies`",
        )


def _owners(d: Definition) -> set[str]:
    """The names that `devices` may have: storage hosts, and groups with some of them."""
    hosts = {*d.hosts.groups.get("storage", [])}
    return hosts | {name for name, members in d.hosts.groups.items() if hosts & {*members}}


@check("ceph-devices-of-nobody", reads_hosts=True)
def ceph_devices_of_nobody(d: Definition) -> Iterator[Finding]:
    """Disks of a group or host that is not among those on which Ceph is built."""
    known = _owners(d)
    for place, _ in _disks(d) if known else ():
        name = place[-1]
        if name not in known:
            yield Finding(
                place,
                f'"{name}" is no host in the group `storage`, and no group of such hosts',
                suggestion(name, known, "write `storage` for all of them"),
            )


@check("ceph-devices-of-host", reads_hosts=True)
def ceph_devices_of_host(d: Definition) -> Iterator[Finding]:
    """A storage host without disks for Ceph, or with the disks of two groups."""
    ceph = _built(d)
    if ceph is None:
        return
    # Disks under an unknown name are likely meant for hosts that seem to have none.
    complete = ceph.devices.keys() <= _owners(d)
    for host in d.hosts.groups.get("storage", []):
        named = [name for name in ceph.devices if host in d.hosts.groups.get(name, [])]
        if complete and not ceph.devices_of(host, d.hosts.groups):
            yield Finding(
                ("storage", "ceph", "devices"),
                f"{host} is in the group `storage`, and none of its disks is named",
                f"name them below {host} or a group that it is in, or take it out of `storage`",
            )
        elif host not in ceph.devices and len(named) > 1:
            yield Finding(
                ("storage", "ceph", "devices", named[1]),
                f"{host} is in {' and '.join(named)}, each with its own disks here",
                f"name the disks of {host} below its own name",
            )


@check("ceph-host-address", reads_hosts=True)
def ceph_host_address(d: Definition) -> Iterator[Finding]:
    """A storage host whose address is not known: Ceph's daemons and clients use no names."""
    # In a play no host has variables here, and the file was checked before.
    if not _built(d) or not any(d.hosts.vars.values()):
        return
    for host in d.hosts.groups.get("storage", []):
        address = str(d.hosts.vars.get(host, {}).get("ansible_host", ""))
        # Only Ansible knows the value of a template.
        if "{{" not in address and not patterns.is_address(address):
            yield Finding(
                ("storage", host),
                f"ansible_host of {host} is no IP address, and Ceph uses no names",
                "write it like 192.0.2.11, in the network of the cluster",
                "hosts",
            )
