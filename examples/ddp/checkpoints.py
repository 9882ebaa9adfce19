"""Checkpoints in a folder: whole or not there, kept by number, verified before they are believed.

A checkpoint is one file, whose name has its number and the SHA-256 of its content. It gets that
name when all of it is on the disk, so a process that is killed leaves no half of one. The folder
may be anywhere that the next run sees too: in a home, in a project's folder.
"""

import hashlib
import os
import platform
import re
import time
from pathlib import Path

_NAME = re.compile(r"(\d{10})-([0-9a-f]{64})\.ckpt")
POLL_SECONDS = 1.0
"""Between two looks for a file that another node has written."""


class CheckpointError(Exception):
    """Why a checkpoint can't be read or written, in one sentence."""


class Checkpoints:
    """The checkpoints of one training; one process alone writes them.

    Args:
        folder: Where they are; it is made with the first one.
        keep: How many of the newest stay.

    """

    def __init__(self, folder: Path, keep: int = 3) -> None:
        self.folder, self.keep = folder, keep

    def save(self, number: int, content: bytes) -> None:
        """Save a checkpoint; then the oldest go.

        Raises:
            CheckpointError: it could not be written, as on a full disk; the older ones are there.

        """
        new = self.folder / "new"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                with new.open("wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
            except OSError:
                # A full disk or quota has more use for the room.
                new.unlink(missing_ok=True)
                raise
            new.replace(self.folder / f"{number:010}-{hashlib.sha256(content).hexdigest()}.ckpt")
            for _, old in self._found()[self.keep :]:
                old.unlink()
        except OSError as error:
            raise CheckpointError(
                f"{self.folder} can't be written ({error.strerror}): make room there (df, "
                "muster-quota); older checkpoints are still there"
            ) from error

    def begin(self, number: int) -> None:
        """Remove those after the one from which a run goes on: it makes them again.

        They are damaged, or of another process that has saved more than all have. `save` would
        keep them, and not those of the run.
        """
        for later, path in self._found():
            if later > number:
                path.unlink()

    def newest(self, most: int | None = None) -> str | None:
        """Return the name of the newest one that is whole; None: there is none.

        One whose content is not what its name says is named, and the one before it is taken.

        Args:
            most: Its number is no higher.

        Raises:
            CheckpointError: it can't be read. An older one could be taken without need.

        """
        for number, path in self._found():
            if most is not None and number > most:
                continue
            try:
                content = path.read_bytes()
            except OSError as error:
                raise CheckpointError(
                    f"{path} can't be read ({error.strerror}): look at the disk or file server, or "
                    "remove the file to go on from an older one"
                ) from error
            if _is_whole(path.name, content):
                return path.name
            print(f"{path} is damaged, and left out", flush=True)
        return None

    def read(self, name: str, seconds: float) -> bytes:
        """Return the content of the one that has a name, on any node.

        Args:
            name: What `newest` said, on another node perhaps.
            seconds: How long it may take until this node sees it: file servers' clients remember
                what was not there.

        Raises:
            CheckpointError: this node does not see it, or not whole.

        """
        path, until, seen = self.folder / name, time.monotonic() + seconds, "is not there"
        if not _NAME.fullmatch(name):
            raise CheckpointError(f"{name!r} is no name of a checkpoint")
        while True:
            try:
                content = path.read_bytes()
            except FileNotFoundError:
                # A look at the folder has the client ask the server again.
                self._found()
            except OSError as error:
                seen = f"can't be read ({error.strerror})"
            else:
                if _is_whole(name, content):
                    return content
                seen = "is not whole"
            if time.monotonic() >= until:
                raise CheckpointError(
                    f"{path} {seen} on {platform.node()}, {seconds:g} s after another node has "
                    "read it: all nodes of the job have to see the folder, in a home or a "
                    "project's folder"
                )
            time.sleep(POLL_SECONDS)

    def _found(self) -> list[tuple[int, Path]]:
        """Return all, the newest first."""
        paths = self.folder.iterdir() if self.folder.is_dir() else ()
        matches = ((_NAME.fullmatch(path.name), path) for path in paths)
        return sorted(((int(match[1]), path) for match, path in matches if match), reverse=True)


def _is_whole(name: str, content: bytes) -> bool:
    """Whether the content is what a name says."""
    return f"-{hashlib.sha256(content).hexdigest()}." in name
