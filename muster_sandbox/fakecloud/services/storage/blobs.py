"""The bytes of objects: files beside the state, or in memory where the state is."""

import secrets
from pathlib import Path
from weakref import WeakKeyDictionary

from muster_sandbox.fakecloud.call import prepare
from muster_sandbox.fakecloud.cloud import Cloud

OBJECTS = "storage.objects"
"""The store's kind of live objects; scope: bucket, name: object. `blob` names the bytes."""
NONCURRENT = "storage.noncurrent"
"""The store's kind of versions that aren't live; scope: bucket, name: object#generation."""


class Blobs:
    """Bytes by a name that `add` chooses; never changed, only removed."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder / "objects" if folder else None
        self._memory: dict[str, bytes] = {}
        if self._folder:
            self._folder.mkdir(exist_ok=True)

    def add(self, content: bytes) -> str:
        """Keep bytes and return their name."""
        name = secrets.token_hex(16)
        if self._folder:
            (self._folder / name).write_bytes(content)
        else:
            self._memory[name] = content
        return name

    def read(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        """The bytes from `start` up to, but without, `end`; None: up to the last."""
        if not self._folder:
            return self._memory[name][start:end]
        with (self._folder / name).open("rb") as file:
            file.seek(start)
            return file.read() if end is None else file.read(end - start)

    def remove(self, name: str) -> None:
        """Remove bytes."""
        if self._folder:
            (self._folder / name).unlink()
        else:
            del self._memory[name]

    def names(self) -> set[str]:
        """The names of all kept bytes."""
        if self._folder:
            return {path.name for path in self._folder.iterdir()}
        return set(self._memory)


_blobs: WeakKeyDictionary[Cloud, Blobs] = WeakKeyDictionary()


@prepare
def sweep(cloud: Cloud) -> None:
    """Open a cloud's blobs; remove those without an object, left by a killed upload or delete."""
    blobs = _blobs[cloud] = Blobs(cloud.store.folder)
    used = {
        entry["blob"] for kind in (OBJECTS, NONCURRENT) for _, _, entry in cloud.store.all(kind)
    }
    for name in blobs.names() - used:
        blobs.remove(name)


def blobs_of(cloud: Cloud) -> Blobs:
    """The bytes of a cloud's objects."""
    return _blobs[cloud]
