# SPDX-License-Identifier: Apache-2.0
"""Where what is in the store, and how a model is published.

    hub/models--ORG--NAME/     as huggingface_hub's cache (HF_HUB_CACHE=STORE/hub) has it:
        blobs                  a link to blobs/ of the store
        refs/main              the revision that is meant when none is named
        snapshots/REVISION/    the model's folder: links to its files in blobs/
        provenance/REVISION.json
    blobs/SHA256               each file of all models once
    .incoming/MODEL/           what comes now, or came before a kill
    .locks/                    one file for each model, and `store`

A model is published in this order: files, provenance, snapshot, ref. So what a reader finds is
whole, and what a provenance names is there. The snapshot is made before its provenance, which none
has whose links can't be made, and gets its name after it.
"""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from muster_models import durable, folders
from muster_models.errors import ModelsError

PREFIX = "models--"


class Staged(NamedTuple):
    """A file of a model that has come and is checked."""

    path: str
    """Below the model's folder."""
    file: str
    """Where it is, in the store's file system."""
    sha256: str
    size: int


@dataclass(frozen=True)
class File:
    """A file of a model."""

    path: str
    sha256: str
    size: int


@dataclass(frozen=True)
class Provenance:
    """Where a model is from: what its small JSON file has."""

    name: str
    revision: str
    """Commit of the hub; of other sources a digest of all paths and files, as long as a commit."""
    origin: str
    licence: str | None
    added_by: str
    added_at: str
    """ISO 8601, in UTC."""
    files: tuple[File, ...]

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True)
class Store:
    """The folder that has all models."""

    root: str

    @property
    def hub(self) -> str:
        """What HF_HUB_CACHE names."""
        return os.path.join(self.root, "hub")

    @property
    def blobs(self) -> str:
        """All files of all models."""
        return os.path.join(self.root, "blobs")

    def blob(self, sha256: str) -> str:
        """Where a file is."""
        return os.path.join(self.blobs, sha256)

    def model(self, name: str) -> str:
        """Where a model is."""
        return os.path.join(self.hub, PREFIX + name.replace("/", "--"))

    def snapshot(self, name: str, revision: str) -> str:
        """The folder of a model as programs see it."""
        return os.path.join(self.model(name), "snapshots", revision)

    def incoming(self, name: str) -> str:
        """Where what comes for a model is until it is published."""
        return os.path.join(self.root, ".incoming", os.path.basename(self.model(name)))

    def _lock(self, name: str) -> str:
        return os.path.join(self.root, ".locks", name)

    def locked(self, name: str, waits: Callable[[], None] | None) -> AbstractContextManager[None]:
        """Hold a model's lock: one process at a time adds it."""
        return durable.locked(self._lock(os.path.basename(self.model(name))), waits=waits)

    def publishing(self) -> AbstractContextManager[None]:
        """Keep `gc` away while files become those of a model."""
        return durable.locked(self._lock("store"), shared=True, waits=lambda: None)

    def collecting(self) -> AbstractContextManager[None]:
        """Keep all others from publishing."""
        return durable.locked(self._lock("store"), waits=lambda: None)

    def make(self) -> None:
        """Make the store's folders. Raises OSError."""
        for name in ("hub", "blobs", ".incoming", ".locks"):
            mode = 0o700 if name.startswith(".") else 0o755
            path = os.path.join(self.root, name)
            if not os.path.isdir(path):
                os.makedirs(path, mode, exist_ok=True)
        # Of transformers 4: without it each import warns that the cache is of an older version.
        version = os.path.join(self.hub, "version.txt")
        if not os.path.exists(version):
            durable.write(version, "1")

    def provenances(self) -> Iterator[Provenance]:
        """Yield all models, by name and date. Raises ModelsError or OSError."""
        found = []
        # What can't be read is an error: `gc` would take all files of that model for left over.
        for entry in _names_in(self.hub):
            if not entry.startswith(PREFIX):
                continue
            folder = os.path.join(self.hub, entry, "provenance")
            for name in _names_in(folder):
                if name.endswith(".json") and not name.startswith("."):
                    found.append(_read(os.path.join(folder, name)))
        yield from sorted(found, key=lambda one: (one.name, one.added_at))

    def provenance(self, name: str, revision: str) -> Provenance:
        """Return where one model is from. Raises ModelsError or OSError."""
        return _read(self._provenance(name, revision))

    def has(self, name: str, revision: str) -> bool:
        """Whether a model is there with all its files."""
        path = self._provenance(name, revision)
        if not os.path.exists(path) or not os.path.isdir(self.snapshot(name, revision)):
            return False
        return all(self.holds(file.sha256, file.size) for file in _read(path).files)

    def holds(self, sha256: str, size: int) -> bool:
        """Whether a file is there, by its size: only `verify` reads all of it."""
        blob = self.blob(sha256)
        return os.path.exists(blob) and os.path.getsize(blob) == size

    def _provenance(self, name: str, revision: str) -> str:
        return os.path.join(self.model(name), "provenance", f"{revision}.json")

    def publish(self, provenance: Provenance, staged: Sequence[Staged]) -> None:
        """Make a model one that all can read; its lock is held. Raises OSError."""
        name, revision = provenance.name, provenance.revision
        model = self.model(name)
        with self.publishing():
            for one in staged:
                self._keep(one, os.path.basename(model))
            durable.sync(self.blobs)
            for folder in ("provenance", "refs", "snapshots"):
                os.makedirs(os.path.join(model, folder), 0o755, exist_ok=True)
            if not os.path.lexists(os.path.join(model, "blobs")):
                os.symlink("../../blobs", os.path.join(model, "blobs"))
            text = json.dumps(asdict(provenance), indent=2, ensure_ascii=False) + "\n"
            snapshot = self.snapshot(name, revision)
            new = None if os.path.isdir(snapshot) else self._linked(provenance)
            durable.write(self._provenance(name, revision), text)
            if new is not None:
                os.rename(new, snapshot)
                durable.sync(os.path.dirname(snapshot))

    def _keep(self, one: Staged, model: str) -> None:
        """Put a file of `model` among those of all models, unless it is there."""
        if self.holds(one.sha256, one.size):
            return
        os.chmod(one.file, 0o444)
        durable.sync(one.file)
        # A second name, not another place: what is staged stays for the case of a kill.
        # Of this model alone, whose lock is held: another one may have the same file.
        new = os.path.join(self.blobs, f"{durable.TEMPORARY}{model}.{one.sha256}")
        durable.remove(new)
        os.link(one.file, new)
        os.replace(new, self.blob(one.sha256))

    def _linked(self, provenance: Provenance) -> str:
        """Make the folder with a model's links, under a name for the time being."""
        folder, revision = os.path.split(self.snapshot(provenance.name, provenance.revision))
        new = os.path.join(folder, f"{durable.TEMPORARY}{revision}")
        durable.remove(new)
        for file in provenance.files:
            link = os.path.join(new, file.path)
            os.makedirs(os.path.dirname(link), 0o755, exist_ok=True)
            up = "../" * (file.path.count("/") + 2)
            os.symlink(f"{up}blobs/{file.sha256}", link)
        return new

    def refer(self, name: str, ref: str, revision: str) -> None:
        """Have a branch or tag of a model mean a revision. Raises OSError."""
        path = os.path.join(self.model(name), "refs", ref)
        os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
        durable.write(path, revision)

    def ref(self, name: str, ref: str) -> str | None:
        """Return the revision that a branch or tag means; None: there is no such one."""
        try:
            file = folders.opened_file(os.path.join(self.model(name), "refs", ref))
        except (FileNotFoundError, NotADirectoryError, folders.NoFileError):
            return None
        with open(file, encoding="utf-8") as stream:
            return stream.read().strip()

    def borrow(self, sha256: str, folder: str) -> str | None:
        """Give a file that is there a second name in `folder`; None: it is not there.

        So it stays if `gc` removes the first before the model that needs it is published.
        """
        place = os.path.join(folder, sha256)
        durable.remove(place)
        os.makedirs(folder, 0o700, exist_ok=True)
        try:
            os.link(self.blob(sha256), place)
        except FileNotFoundError:
            return None
        return place

    def refuse_without_room(self, size: int, incoming: str) -> None:
        """Raise ModelsError if the file system can't hold what is missing of `size` bytes.

        What is in the folder `incoming` has come already.
        """
        missing = size - _came(incoming)
        free = shutil.disk_usage(self.root).free
        if missing > free:
            raise ModelsError(
                f"{self.root} has {free} bytes free, and {missing} have to come; make room, or "
                "give the folder a larger `size_gib`"
            )


def _names_in(folder: str) -> list[str]:
    """Return the names in a folder; none if there is no such folder. Raises OSError."""
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []


def _read(path: str) -> Provenance:
    try:
        with open(folders.opened_file(path), encoding="utf-8") as stream:
            data: dict[str, Any] = json.load(stream)
        files = tuple(File(**file) for file in data.pop("files"))
        return replace(Provenance(**data, files=()), files=files)
    except (folders.NoFileError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ModelsError(
            f"{path} can't be read ({error}); remove it and add the model again"
        ) from error


def _came(incoming: str) -> int:
    """Return the bytes in a folder, without files that are those of a model too."""
    files = (
        os.lstat(os.path.join(here, name)) for here, _, names in os.walk(incoming) for name in names
    )
    return sum(file.st_size for file in files if file.st_nlink == 1)


def now() -> str:
    """Return the time as a provenance has it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
