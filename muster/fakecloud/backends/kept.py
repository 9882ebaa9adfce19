"""What machines leave that run their startup-script and switch themselves off, kept by digest.

Such a machine, a builder of images, works for minutes, and comes to the same end each time if it
begins with the same image and the same metadata. So what the first one left (its disk, its console,
its guest attributes) is what the next one leaves, at once, in a later run of fakecloud too.
"""

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from muster.containers.podman import exists, podman
from muster.fakecloud.backends.machine import GUEST
from muster.fakecloud.call import Resource

NAME = "localhost/muster-kept"
MOST = 4
"""How many are kept, the latest: 1 GB each. A change of what a builder installs adds one."""


@dataclass(frozen=True)
class Left:
    """What a machine left."""

    image: str
    """Podman's image of its disk."""
    console: bytes
    guest_attributes: Mapping[str, Resource]


class Kept:
    """What is kept on this machine; the records are in `folder`, the disks are podman's images."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def digest(self, source: str, instance: Resource) -> str:
        """Return what tells a first boot from others: `source` is podman's name of its image.

        Empty for a machine without a startup-script, and for one with disks besides the first:
        those may hold anything.
        """
        items = {item["key"]: item["value"] for item in instance["metadata"].get("items", [])}
        disks = [disk for disk in instance["disks"] if "source" in disk]
        if "startup-script" not in items or len(disks) != 1:
            return ""
        made_of = [source, instance["machineType"].rpartition("/")[2], sorted(items.items())]
        found = hashlib.sha256(json.dumps(made_of).encode())
        for path in sorted(GUEST.rglob("*")):
            if path.is_file():
                found.update(str(path.relative_to(GUEST)).encode() + path.read_bytes())
        return found.hexdigest()[:16]

    def find(self, digest: str) -> Left | None:
        """Return what a machine of this digest left, if that is kept."""
        record = self.folder / f"{digest}.json"
        if not digest or not record.exists() or not exists("image", f"{NAME}:{digest}"):
            return None
        found = json.loads(record.read_text(encoding="utf-8"))
        note = f"fakecloud: kept from {found['date']}, when a machine made like this one ran\n"
        console = note.encode() + base64.b64decode(found["console"])
        return Left(f"{NAME}:{digest}", console, found["guest_attributes"])

    def keep(self, digest: str, left: Left) -> None:
        """Keep what a machine left, and of all the latest `MOST`.

        Raises:
            MachineError: podman failed.

        """
        record = {
            "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "console": base64.b64encode(left.console).decode(),
            "guest_attributes": dict(left.guest_attributes),
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        podman("tag", left.image, f"{NAME}:{digest}")
        path = self.folder / f"{digest}.json"
        new = path.with_suffix(".new")
        new.write_text(json.dumps(record), encoding="utf-8")
        new.rename(path)
        records = sorted(self.folder.glob("*.json"), key=lambda path: path.stat().st_mtime)
        for old in records[:-MOST]:
            old.unlink()
            podman("rmi", "--ignore", f"{NAME}:{old.stem}")
