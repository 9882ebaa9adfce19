"""Check of paths: one spelling for all paths of the definition.

They are written into shells, units of systemd, slurm.conf, exports and options of mounts. Each of
these gives other characters a meaning, and hardly any two quote them alike.
"""

import posixpath
import re
from collections.abc import Iterator

from muster.catalog import hostlists
from muster.definition.checks.registry import Finding, check
from muster.definition.checks.rows import at
from muster.definition.definition import Definition
from muster.definition.yaml_file import KeyPath

_ODD = re.compile(r"[^A-Za-z0-9._/+-]")
_ODD_OF_DEVICE = re.compile(r"[^A-Za-z0-9._:/+-]")
"""udev's links have colons: /dev/disk/by-path/pci-0000:01:00.0-ata-1."""
_PART_BYTES = 255
_PATH_BYTES = 4095
"""NAME_MAX, and PATH_MAX without the byte that ends a path, of linux/limits.h."""

_NO_DISK = re.compile(
    r"/dev/(?:(?:char|fd|hugepages|input|mqueue|net|pts|shm|snd|dri|disk|mapper|vfio)$"
    r"|(?:char|fd|hugepages|input|mqueue|net|pts|shm|snd|dri|vfio)/"
    r"|(?:null|zero|full|random|urandom|mem|port|kmsg|console|ptmx|log|stdin|stdout|stderr)$"
    # A controller of NVMe, whose disks are called nvme0n1; SCSI's other names; terminals; GPUs.
    r"|(?:nvme[0-9]+|nvme-fabrics|sg[0-9]+|bsg/.*|(?:tty|sr|nvidia).*)$)"
)
"""Devices and folders that are no disks: devices.txt of the kernel's admin guide, udev(7)."""

_FOLDERS = ("home", "apps", "data", "models", "images")
_PATHS = {
    "/srv/data": at(
        *(f"storage.{key}.{name}" for key in _FOLDERS for name in ("path", "export")),
    ),
    "/scratch": at("storage.scratch"),
    "/dev/nvme1n1": at("storage.cache.device"),
    "/dev/disk/by-path/pci-0000:01:00.0": at("storage.ceph.devices.<name>.[]"),
    "/bin/bash": at("users.people.<name>.shell"),
    "/apps/software/torch": at("software.modules.<name>.<version>.root"),
}
"""Where paths are written, each with an example."""
_GPUS = "/dev/nvidia[0-3]"


def _devices(d: Definition) -> Iterator[tuple[KeyPath, str]]:
    """Each device file of GPUs that the definition names; one that is no hostlist is left out."""
    for path, gpus in at("nodes.<name>.gpus")(d):
        if "devices" in gpus.model_fields_set:
            try:
                names = hostlists.expand(gpus.devices)
            except ValueError:
                names = []
            yield from (((*path, "devices"), name) for name in names)


def _paths(d: Definition) -> Iterator[tuple[KeyPath, str, str]]:
    """Each path: where it is written, the path, an example."""
    for example, values in _PATHS.items():
        yield from ((place, path, example) for place, path in values(d))
    yield from ((place, path, _GPUS) for place, path in _devices(d))


def is_well_formed(path: str) -> bool:
    """Whether this check takes a path; if not, others need not say that it is wrong."""
    return _fault(path, "") is None


def is_disk(path: str) -> bool:
    """Whether a path below /dev can be that of a disk."""
    return path.startswith("/dev/") and not _NO_DISK.match(path)


def _fault(path: str, example: str) -> tuple[str, str] | None:
    """What is wrong with a path, and the remedy; None if it is right."""
    if not path.startswith("/"):
        return f'"{path}" is no absolute path', f"write the whole path, such as {example}"
    odd = (_ODD_OF_DEVICE if path.startswith("/dev/") else _ODD).search(path)
    if odd:
        what = "white space" if odd[0].isspace() else f"the character {odd[0]}"
        remedy = "use letters, digits and _ . + - between the slashes"
        if odd[0] in "*?" and example == _GPUS:
            remedy = f"write each device, like {example}"
        return f'"{path}" has {what} in it', remedy
    if path != posixpath.normpath(path) or path.startswith("//"):
        shorter = "leave out .., double slashes and the slash at the end"
        return f'"{path}" is not in its shortest form', shorter
    # All characters are ASCII here.
    if len(path) > _PATH_BYTES or any(len(name) > _PART_BYTES for name in path.split("/")):
        return (
            f'"{path[:40]}..." is too long',
            f"use up to {_PART_BYTES} characters between two slashes, and {_PATH_BYTES} in all",
        )
    return None


@check("path-malformed")
def path_malformed(d: Definition) -> Iterator[Finding]:
    """A path that is relative, too long, not in its shortest form, or has odd characters in it."""
    said: set[KeyPath] = set()
    for place, path, example in _paths(d):
        fault = _fault(path, example)
        if path == "/" and place[-1] in ("shell", "root"):
            fault = f'"{path}" is the root of the system', f"write a path such as {example}"
        if fault and place not in said:
            said.add(place)
            yield Finding(place, *fault)
