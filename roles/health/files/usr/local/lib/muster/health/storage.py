# SPDX-License-Identifier: Apache-2.0
"""Whether the shared folders that slurmd waits for are mounted and answer; pure.

Which those are is known to systemd (RequiresMountsFor of slurmd, and the mount units that follow
from it) or, on a VM, to what mounted them at its boot. What is mounted is read from the kernel's
table: looking at a path of a server that is away would wait for it.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from .findings import BROKEN, HEALTHY, Finding, Reading, failure, one_line, unchecked

SHOW = [
    *("systemctl", "show", "slurmd.service"),
    *("--property=RequiresMountsFor", "--property=Requires"),
]
MOUNTINFO = "/proc/self/mountinfo"
VM_MOUNTS = "/run/muster-node/mounts.json"
"""Written at the boot of a VM by muster-key.service: the folders that it mounts."""

NETWORK = {"nfs", "nfs4", "ceph", "cifs", "smb3", "lustre", "beegfs", "gpfs", "autofs"}
"""Types of file systems that wait for others; those of programs (fuse.ceph) are added to them."""


_STALE = "Stale file handle"


class Wanted(NamedTuple):
    """What the node needs."""

    folders: tuple[str, ...]
    """Paths that jobs use; each may lie below a mount."""
    mounts: tuple[str, ...]
    """Paths that must themselves be mounts."""
    of_vm: tuple[str, ...]
    """Those of them that have no mount unit."""


def wanted(shown: str, vm_mounts: str) -> Wanted:
    """Return what systemd and, on a VM, its list of mounts say."""
    keys = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    units = [word for word in keys.get("Requires", "").split() if word.endswith(".mount")]
    of_vm = tuple(entry["path"] for entry in json.loads(vm_mounts)) if vm_mounts else ()
    return Wanted(
        tuple(keys.get("RequiresMountsFor", "").split()),
        (*(_path(unit) for unit in units if unit != "-.mount"), *of_vm),
        of_vm,
    )


def mounted(mountinfo: str) -> dict[str, str]:
    """Return the type of what is mounted by its path, as proc(5) has it; the last one is on top."""
    types = {}
    # People name mounts: what else Python takes for the end of a line or a word may be in there.
    for line in filter(None, mountinfo.split("\n")):
        before, _, after = line.partition(" - ")
        path = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), before.split(" ")[4])
        types[path] = after.split(" ")[0]
    return types


def looks(needs: Wanted, mounts: Mapping[str, str]) -> list[str]:
    """Return the mounts to look at: those of the network that hold what the node needs."""
    held = {_mount_of(path, mounts) for path in needs.folders} | {*needs.mounts} & mounts.keys()
    return sorted(path for path in held if _network(mounts.get(path, "")))


def look(path: str, kind: str) -> list[str]:
    """Return the command that looks at a mount of type `kind`; the dot lets an automount happen.

    statfs(2) asks the server each time. Of CephFS that is a monitor, without which jobs go on:
    there attributes are asked for, of the metadata server, with AT_STATX_FORCE_SYNC of statx(2).
    """
    if "ceph" in kind:
        return ["stat", "--cached=never", "--format=%F", f"{path}/."]
    return ["stat", "--file-system", "--format=%T", f"{path}/."]


def missing(needs: Wanted, mounts: Mapping[str, str]) -> list[str]:
    """Return what is to be mounted here: after its boot nothing else does so on a VM."""
    return [path for path in needs.of_vm if path not in mounts]


def stale(needs: Wanted, readings: Mapping[str, Reading]) -> list[str]:
    """Return the mounts of `look` whose server no longer knows them, such as a recreated one.

    Only those that `mount` can mount again.
    """
    return [path for path in needs.mounts if path in readings and _STALE in readings[path].text]


def unmount(path: str) -> list[str]:
    """Return the command that takes a mount away at once; what has files open there keeps them."""
    return ["umount", "--lazy", path]


def mounting(path: str) -> str:
    """Return the key of the reading of `mount`."""
    return f"mount {path}"


def mount(path: str, vm_mounts: str) -> list[str]:
    """Return the command that mounts a folder as it was mounted at boot."""
    for entry in json.loads(vm_mounts) if vm_mounts else []:
        if entry["path"] == path:
            options = ["-o", entry["options"]] if entry["options"] else []
            return ["mount", "-t", entry["type"], *options, entry["source"], path]
    # Started, not restarted: that would restart slurmd, which requires it.
    return ["systemctl", "start", path]


def findings(
    needs: Wanted, mounts: Mapping[str, str], readings: Mapping[str, Reading]
) -> Iterator[Finding]:
    """Return what is known of each shared folder.

    `readings` are those of `look` by path, and those of `mount` by `mounting`.
    """
    for path in needs.mounts:
        if path not in mounts:
            tried = readings.get(mounting(path)) if path in needs.of_vm else None
            why = failure(tried, "mount") if tried else "its mount unit says why"
            yield Finding(f"storage {path}", BROKEN, f"it is not mounted; {why}")
    for path in looks(needs, mounts):
        yield _finding(f"storage {path}", mounts[path], readings[path])


def unknown(reading: Reading) -> Finding:
    """Return the finding where systemd said nothing of use."""
    return unchecked("storage", reading, "systemctl")


def _finding(check: str, kind: str, reading: Reading) -> Finding:
    said = one_line(reading.text.rpartition(": ")[2])
    if reading.missing:
        return unchecked(check, reading, "stat")
    if reading.late:
        return Finding(check, BROKEN, "it does not answer; is its server up?")
    if _STALE in reading.text:
        return Finding(check, BROKEN, "its file handle is stale; unmount it and mount it again")
    # Root may be squashed there: the server has answered.
    if reading.status and "Permission denied" not in reading.text:
        return Finding(check, BROKEN, said or f"stat ends with {reading.status}")
    return Finding(check, HEALTHY, f"{kind}, answers")


def _path(unit: str) -> str:
    r"""Return the path of a mount unit, by systemd.unit(5): `srv-my\x2ddata.mount`."""
    escaped = "/" + unit.removesuffix(".mount").replace("-", "/")
    return re.sub(r"\\x([0-9a-f]{2})", lambda code: chr(int(code[1], 16)), escaped)


def _mount_of(path: str, mounts: Mapping[str, str]) -> str:
    parents = [path]
    while path != "/":
        path = path.rpartition("/")[0] or "/"
        parents.append(path)
    return next((parent for parent in parents if parent in mounts), "/")


def _network(kind: str) -> bool:
    return kind in NETWORK or kind.startswith("fuse.")
