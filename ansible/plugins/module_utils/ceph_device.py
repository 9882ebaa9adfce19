# SPDX-License-Identifier: Apache-2.0
"""What the device of an OSD holds; nothing is written here."""

import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator

from ansible_collections.muster.slurm.plugins.module_utils.commands import run

# The first bytes of what BlueStore manages: doc/man/8/ceph-bluestore-tool.rst, "bdev label".
MAGIC = b"bluestore block device"
LOOKED_AT = 2**20
"""Bytes at the beginning that must be zero on a device that becomes an OSD."""

# A physical volume has its label in one of the first four sectors: lib/label/label.h of LVM2.
VOLUME = b"LABELONE"
LABELLED = 2048

BEGUN = "/var/lib/ceph/tmp"
"""Where an OSD's UUID and key are noted until it is complete."""


class DeviceError(Exception):
    """Why a device is refused, in a sentence with the remedy."""


def note_path(path: str) -> str:
    """Return where the OSD that is being made of the device `path` is noted."""
    return f"{BEGUN}/muster-osd-{hashlib.sha256(path.encode()).hexdigest()[:16]}.json"


def begun(path: str) -> dict[str, str]:
    """Return UUID and key of the OSD whose making was interrupted there; empty if there is none."""
    try:
        with open(note_path(path), encoding="utf-8") as stream:
            note: dict[str, str] = json.load(stream)
            return note
    except FileNotFoundError:
        return {}


def stat_is_block(path: str) -> bool:
    """Whether there is a block device."""
    return os.path.exists(path) and stat.S_ISBLK(os.stat(path).st_mode)


class Device:
    """One device, or a file that stands for one, and what is on it."""

    def __init__(self, path: str, fsid: str) -> None:
        self.path = path
        self.fsid = fsid
        self.is_file = not path.startswith("/dev/")
        self.label = self.read_label()

    def head(self, count: int) -> bytes:
        """Return the first bytes."""
        with open(self.path, "rb") as stream:
            return stream.read(count)

    def is_there(self) -> bool:
        """Whether the device can be read."""
        return os.path.isfile(self.path) or stat_is_block(self.path)

    def read_label(self) -> dict[str, str]:
        """Return BlueStore's label as data: empty where there is none, or no tool to read it."""
        if not self.is_there() or self.head(len(MAGIC)) != MAGIC:
            return {}
        if shutil.which("ceph-bluestore-tool") is None:
            return {}
        code, out, err = run(["ceph-bluestore-tool", "show-label", "--dev", self.path])
        if code != 0:
            raise DeviceError(f"{self.path}: its label can't be read: {err.strip()}")
        labels: dict[str, dict[str, str]] = json.loads(out)
        return next(iter(labels.values()))

    @property
    def osd(self) -> int | None:
        """The id of this cluster's OSD that is complete on it, or None."""
        ready = self.label.get("ready") == "ready" and self.label.get("ceph_fsid") == self.fsid
        return int(self.label["whoami"]) if ready else None

    @property
    def unread(self) -> bool:
        """Whether an OSD is on it that can't be identified before Ceph is installed."""
        return self.is_there() and self.head(len(MAGIC)) == MAGIC and not self.label

    @property
    def is_ours(self) -> bool:
        """Whether this cluster's OSD is on it, also an incomplete one."""
        uuid = begun(self.path).get("uuid")
        return self.osd is not None or (uuid is not None and self.label.get("osd_uuid") == uuid)

    def refuse(self) -> None:
        """Raise unless this cluster's OSD is on it, or nothing at all.

        Raises:
            DeviceError: it is not there, or holds something.

        """
        if not os.path.exists(self.path):
            if self.is_file:
                return
            raise DeviceError(
                f"{self.path}: no such device; name one that `ls /dev/disk/by-id` shows in "
                "storage.ceph.devices of the definition"
            )
        if self.is_ours or self.unread:
            return
        held = self.held()
        if held:
            raise DeviceError(f"{self.path} holds {held}, so no OSD is made of it; {self.remedy()}")

    def remedy(self) -> str:
        """Return how a person empties it."""
        if self.is_file:
            return "remove the file if nothing in it is needed, or name another"
        return (
            "if nothing on it is needed, stop what uses it, then "
            f"wipefs --all {self.path} && dd if=/dev/zero of={self.path} bs=1M count=1, and run "
            "again"
        )

    def held(self) -> str:
        """Return what is on it, in words; empty where it is blank."""
        if not (os.path.isfile(self.path) if self.is_file else stat_is_block(self.path)):
            return "what is neither a disk nor a file"
        if self.label or self.head(len(MAGIC)) == MAGIC:
            return f"an OSD of cluster {self.label.get('ceph_fsid', '(not told)')}"
        if self.is_file:
            # A sparse file of zeros is what an interrupted run leaves.
            return "data" if os.stat(self.path).st_blocks else ""
        return self.signature() or self.user() or self.data()

    def signature(self) -> str:
        """Return what libblkid finds: a file system, a partition table, a member of a volume."""
        # 2: libblkid recognises nothing.
        code, out, err = run(["blkid", "--probe", "--output", "export", self.path])
        if code == 2:
            return ""
        fields = dict(line.split("=", 1) for line in out.splitlines() if "=" in line)
        kind = fields.get("TYPE") or fields.get("PTTYPE")
        return f"{kind} (blkid --probe)" if kind else f"what blkid can't tell ({err.strip()})"

    def user(self) -> str:
        """Return that something uses it, if so: open(2) says what O_EXCL means for a device."""
        try:
            os.close(os.open(self.path, os.O_RDONLY | os.O_EXCL))
        except OSError as error:
            return f"something that is in use ({error.strerror})"
        return ""

    def data(self) -> str:
        """Return that there is data of an unknown kind, if so."""
        return "data of an unknown kind" if any(self.head(LOOKED_AT)) else ""


class Volume(Device):
    """A device as cephadm takes it: all of it is LVM's, and the OSD's label is a volume's tags."""

    @property
    def unread(self) -> bool:
        """Never: without Ceph on the host LVM is asked."""
        return False

    def read_label(self) -> dict[str, str]:
        """Return what ceph-volume noted of the OSD on it, in the words of BlueStore's label."""
        if not self.is_there() or VOLUME not in self.head(LABELLED):
            return {}
        if shutil.which("lvs") is None:
            raise DeviceError(
                f"{self.path} is a volume of LVM, and no `lvs` is here to tell whose; install lvm2 "
                "and run again"
            )
        for tags, devices in self.volumes():
            # doc/man/8/ceph-volume.rst; a device with the database of others is not Muster's.
            if tags.get("ceph.type") == "block" and os.path.realpath(self.path) in devices:
                fsid, number = tags["ceph.cluster_fsid"], tags["ceph.osd_id"]
                return {"ceph_fsid": fsid, "whoami": number, "ready": "ready"}
        return {}

    def volumes(self) -> Iterator[tuple[dict[str, str], list[str]]]:
        """Return tags and devices of each logical volume of the host."""
        code, out, err = run(["lvs", "--reportformat", "json", "--options", "lv_tags,devices"])
        if code != 0:
            raise DeviceError(f"lvs: {err.strip()}; fix LVM and run again")
        for row in json.loads(out)["report"][0]["lv"]:
            tags = dict(tag.split("=", 1) for tag in row["lv_tags"].split(",") if "=" in tag)
            # "/dev/sdb(0)": with the first extent.
            parts = [re.sub(r"\(\d+\)$", "", part) for part in row["devices"].split(",")]
            yield tags, [os.path.realpath(part) for part in parts]

    def refuse(self) -> None:
        """Raise unless this cluster's OSD is on it, or nothing at all.

        Raises:
            DeviceError: it is not there, holds something, or is no disk.

        """
        if self.is_file:
            raise DeviceError(
                f"{self.path} is no disk, and cephadm makes OSDs of disks alone; name one below /dev"
            )
        super().refuse()
