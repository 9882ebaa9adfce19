# SPDX-License-Identifier: Apache-2.0
"""Bundles on this VM: FOLDER/bundles/SHA256/, and FOLDER/current, the one that is applied."""

import hashlib
import io
import os
import shutil
import tarfile
from pathlib import Path

from .cloud import TroubleError

KEPT = 2
"""How many bundles stay: the one that is applied, and the one before, to compare with."""


def check(archive: bytes, digest: str) -> None:
    """Refuse an archive with another sha256.

    Raises:
        TroubleError: it has one.

    """
    actual = hashlib.sha256(archive).hexdigest()
    if actual != digest:
        raise TroubleError(
            f"the bundle has the sha256 {actual[:12]}..., its name says {digest[:12]}...: it is "
            "refused; run `pulumi up`, which writes it again"
        )


def unpack(archive: bytes, digest: str, folder: Path) -> Path:
    """Unpack an archive, at once or not at all, unless it is there; return where it lies.

    Raises:
        TroubleError: it has anything in it but files and folders, or paths that lead elsewhere.

    """
    place = Path(folder) / "bundles" / digest
    if place.is_dir():
        return place
    half = place.with_name(f".{digest}.new")
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
            members = tar.getmembers()
            for member in members:
                strange = member.name.startswith("/") or ".." in Path(member.name).parts
                if strange or not (member.isfile() or member.isdir()):
                    raise TroubleError(f"the bundle holds {member.name}, which no bundle does")
            # Checked above; Debian 12's tarfile knows no filters.
            tar.extractall(half, members)  # noqa: S202
        # Code is for all, such as the user slurm; people's addresses are not.
        (half / "inventory").chmod(0o700)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise TroubleError(f"the bundle can't be unpacked: {error}") from error
    os.sync()
    half.rename(place)
    return place


def make_current(place: Path, folder: Path) -> None:
    """Let FOLDER/current be a bundle, at once, and remove those that are neither it nor last."""
    link = Path(folder) / "current"
    new = Path(folder) / ".current.new"
    new.unlink(missing_ok=True)
    new.symlink_to(place)
    new.replace(link)
    os.utime(place)
    bundles = sorted(place.parent.iterdir(), key=lambda path: path.stat().st_mtime)
    for old in bundles[:-KEPT]:
        shutil.rmtree(old)
