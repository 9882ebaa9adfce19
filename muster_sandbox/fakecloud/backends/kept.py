"""Disks and reports of image builders, kept by digest, so that the next builder reuses them.

A builder runs its startup-script for minutes and powers itself off. Another one that starts with
the same image and the same metadata leaves the same disk, console and guest attributes. So these
are kept, and given to the next builder with the same digest, in a later run of fakecloud too.
"""

import base64
import hashlib
import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from muster_sandbox.containers.podman import MachineError, exists, podman
from muster_sandbox.fakecloud.http import Resource

log = logging.getLogger(__name__)

NAME = "localhost/muster-kept"
MOST = 4
"""How many are kept, those used last; 1 GB each. A change of what a builder installs adds one."""

FAKECLOUD = Path(__file__).resolve().parents[1]
"""fakecloud's sources: a change of the metadata server may change what a builder does."""


@dataclass(frozen=True)
class Left:
    """What a machine has left at its end."""

    image: str
    """Podman's image of its disk."""
    console: bytes
    guest_attributes: Mapping[str, Resource]


class Kept:
    """What is kept on this machine; the records are in `folder`, the disks are podman's images.

    `made_by` are folders of sources: a change in one of them makes what was kept before unusable.
    """

    def __init__(self, folder: Path, made_by: Sequence[Path] = ()) -> None:
        self.folder = folder
        self._sources = digest_of([FAKECLOUD, *made_by])

    def digest(self, source: str, instance: Resource) -> str:
        """Return the digest of what decides a first boot: `source` is podman's name of its image.

        Empty for a machine without a startup-script, and for one with more than one disk: the
        others may hold anything.
        """
        items = {item["key"]: item["value"] for item in instance["metadata"].get("items", [])}
        disks = [disk for disk in instance["disks"] if "source" in disk]
        if "startup-script" not in items or len(disks) != 1:
            return ""
        made_of = [
            *(source, self._sources, sorted(items.items())),
            instance["machineType"].rpartition("/")[2],
            instance.get("serviceAccounts", []),
            disks[0].get("diskSizeGb"),
        ]
        return hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:16]

    def find(self, digest: str) -> Left | None:
        """Return what a machine of this digest left, if that is kept."""
        record = self.folder / f"{digest}.json"
        if not digest or not record.exists() or not exists("image", f"{NAME}:{digest}"):
            return None
        try:
            document = json.loads(record.read_text(encoding="utf-8"))
            note = (
                f"fakecloud: kept from {document['date']}, when a machine made like this one ran\n"
            )
            console = note.encode() + base64.b64decode(document["console"])
            left = Left(f"{NAME}:{digest}", console, document["guest_attributes"])
        except (ValueError, KeyError, TypeError) as error:
            log.warning("%s can't be read, so the builder runs: %r", record, error)
            return None
        record.touch()
        return left

    def keep(self, digest: str, left: Left) -> None:
        """Keep what a machine left; of all that is kept, only the `MOST` used last remain.

        If that fails, the next builder runs: nothing else depends on it.
        """
        record = {
            "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "console": base64.b64encode(left.console).decode(),
            "guest_attributes": dict(left.guest_attributes),
        }
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            podman("tag", left.image, f"{NAME}:{digest}")
            path = self.folder / f"{digest}.json"
            new = self.folder / f"{digest}.{os.getpid()}.new"
            new.write_text(json.dumps(record), encoding="utf-8")
            new.rename(path)
            records = sorted(self.folder.glob("*.json"), key=lambda path: path.stat().st_mtime)
            for old in records[:-MOST]:
                old.unlink(missing_ok=True)
                podman("rmi", "--ignore", f"{NAME}:{old.stem}")
        except (OSError, MachineError) as error:
            log.warning("what a builder left is not kept in %s: %s", self.folder, error)


def digest_of(folders: Sequence[Path]) -> str:
    """Return the digest of all files below some folders, except compiled ones."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return digest.hexdigest()
