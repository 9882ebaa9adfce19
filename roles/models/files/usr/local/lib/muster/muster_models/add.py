# SPDX-License-Identifier: Apache-2.0
"""Add a model to the store, from the hub, a folder, a bucket or an address."""

import hashlib
import json
import os
import shutil
import tarfile
import urllib.parse
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import IO, NamedTuple

from muster_models import buckets, digests, download, durable, folders, paths
from muster_models.digests import BLOCK, Digest
from muster_models.download import Login, Source
from muster_models.errors import ModelsError, is_full, of_system
from muster_models.hub import ENDPOINT, Hub
from muster_models.progress import Progress, say
from muster_models.store import File, Provenance, Staged, Store, now

MAIN = "main"
"""The ref that programs ask for when they name no revision."""
COMMIT = 40
"""Hexadecimal digits of a revision."""
_END = "end"
"""Name of the last entry of an archive, a folder: tarfile takes one that was cut off between two
files for a whole one."""

_NOT_THE_MODEL = (".git", ".cache")
"""Folders of git, and of `hf download --local-dir`."""
_REMEDY = "copy the file in place of the link, or have its owner add the model"


class Wanted(NamedTuple):
    """What somebody asked for, besides where it is."""

    name: str
    licence: str | None
    added_by: str


def from_hub(
    store: Store, endpoint: str, source: str, wanted: Wanted, token: str | None
) -> Provenance:
    """Add hf:ORG/NAME[@REVISION] of the hub at an endpoint. Raises ModelsError."""
    repository, _, revision = source.removeprefix("hf:").partition("@")
    name = paths.model_name(repository)
    if revision and not paths.leads_below(revision):
        raise ModelsError(f'"{revision}" is no branch, tag or commit; name one after the @')
    store.make()
    hub = Hub(store, endpoint, name, token)
    model = hub.model(name, revision or MAIN)
    with _alone(store, name):
        if not store.has(name, model.revision):
            incoming = store.incoming(name)
            cache = os.path.join(incoming, "hub")
            size = sum(file.size for file in model.files)
            progress = Progress(f"{name}, {len(model.files)} files", size)
            with _cleared_when_full(incoming):
                store.refuse_without_room(hub.missing(model), cache)
                staged = hub.bring(model, cache, progress)
                known = wanted._replace(licence=wanted.licence or model.licence)
                # The hub that all know is not named.
                mirror = "" if endpoint == ENDPOINT else f" of {endpoint}"
                origin = f"hf:{name}@{model.wanted}{mirror}"
                whole = _provenance(name, model.revision, origin, known, staged)
                store.publish(whole, staged)
            durable.remove(incoming)
        # A commit is no ref.
        ref = None if revision == model.revision else model.wanted
        return _published(store, name, model.revision, ref)


def real_folder(path: str) -> str:
    """Return the path of a folder without its links. Raises ModelsError if it is none."""
    try:
        with folders.opened(path, None, folders.trusted(), "name the folder itself") as place:
            if path and folders.is_folder(place):
                return folders.path_of(place)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise of_system(error, path) from error
    raise ModelsError(f"{path} is no folder; name the one that has the model's files")


def from_folder(store: Store, folder: str, wanted: Wanted) -> Provenance:
    """Add a folder that this process can read. Raises ModelsError."""
    real = real_folder(folder)
    return _from_streams(store, _files_in(real), real, wanted)


def from_archive(store: Store, stream: IO[bytes], origin: str, wanted: Wanted) -> Provenance:
    """Add what `pack` wrote. Raises ModelsError."""
    return _from_streams(store, _files_of(stream, origin), origin, wanted)


def pack(folder: str, stream: IO[bytes]) -> None:
    """Write the files of a folder as an archive. Raises ModelsError or OSError."""
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for path, file in _files_in(folder):
            with file:
                entry = tarfile.TarInfo(path)
                entry.size = os.fstat(file.fileno()).st_size
                archive.addfile(entry, file)
        end = tarfile.TarInfo(_END)
        end.type = tarfile.DIRTYPE
        archive.addfile(end)


def _files_in(folder: str) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the files below a folder, and what links lead to that belong to who adds.

    Somebody else's link may lead to what they must not read, such as a key of root's. Raises
    ModelsError.
    """
    try:
        with folders.opened(folder, None, folders.trusted(), _REMEDY) as top:
            waiting = [""]
            while waiting:
                below = waiting.pop()
                with folders.opened(below, top, _adds(), _REMEDY) as here:
                    inner = []
                    for name in folders.names_in(here):
                        path = os.path.join(below, name)
                        shown = os.path.join(folder, path)
                        with _opened(name, here, shown) as entry:
                            if not folders.is_folder(entry):
                                yield paths.checked(path, folder), _read(entry, shown)
                            elif name not in _NOT_THE_MODEL:
                                inner.append(path)
                    waiting += reversed(inner)
    except OSError as error:
        raise of_system(error, folder) from error


def _adds() -> Collection[int]:
    return (os.geteuid(),)


@contextmanager
def _opened(name: str, folder: int, shown: str) -> Iterator[int]:
    try:
        with folders.opened(name, folder, _adds(), _REMEDY) as entry:
            yield entry
    except FileNotFoundError as error:
        raise _no_file(shown) from error


def _read(entry: int, shown: str) -> IO[bytes]:
    if not folders.is_file(entry):
        raise _no_file(shown)
    try:
        return open(folders.reopened(entry), "rb")
    except OSError as error:
        error.filename = shown
        raise of_system(error, shown) from error


def _no_file(shown: str) -> ModelsError:
    return ModelsError(f"{shown} is no file, or a link to none; remove it and run again")


def _files_of(stream: IO[bytes], origin: str) -> Iterator[tuple[str, IO[bytes]]]:
    is_whole = False
    try:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for entry in archive:
                if entry.isdir() and entry.name == _END:
                    is_whole = True
                    continue
                file = archive.extractfile(entry)
                if file is None:
                    raise ModelsError(
                        f"{entry.name} of {origin} is no file; remove it and run again"
                    )
                yield paths.checked(entry.name, origin), file
    except tarfile.TarError as error:
        raise ModelsError(f"{origin} did not come whole ({error}); run it again") from error
    if not is_whole:
        raise ModelsError(f"{origin} did not come whole, so nothing was published; run it again")


def _from_streams(
    store: Store, files: Iterator[tuple[str, IO[bytes]]], origin: str, wanted: Wanted
) -> Provenance:
    name = paths.model_name(wanted.name)
    store.make()
    with _alone(store, name):
        incoming = store.incoming(name)
        durable.remove(incoming)
        os.makedirs(incoming, 0o700)
        progress = Progress(origin, 0)
        with _cleared_when_full(incoming):
            staged = []
            for number, (path, file) in enumerate(files):
                with file:
                    place = os.path.join(incoming, str(number))
                    staged.append(_copied(path, file, place, progress))
            return _publish(store, name, staged, origin, wanted)


def _copied(path: str, file: IO[bytes], place: str, progress: Progress) -> Staged:
    hasher, size = hashlib.sha256(), 0
    with open(place, "xb") as target:
        while block := file.read(BLOCK):
            target.write(block)
            hasher.update(block)
            size += len(block)
            progress.add(len(block))
    return Staged(path, place, hasher.hexdigest(), size)


def from_bucket(store: Store, address: str, wanted: Wanted, login: Login) -> Provenance:
    """Add gs://BUCKET/PREFIX. Raises ModelsError."""
    files = {item.path: item.source for item in buckets.objects(address, login)}
    return _from_servers(store, files, address, wanted)


def from_address(store: Store, address: str, sha256: str | None, wanted: Wanted) -> Provenance:
    """Add the file at an address. Raises ModelsError."""
    files = {name_of(address): Source(address, checked_sha256(sha256, address))}
    return _from_servers(store, files, address, wanted)


def name_of(address: str) -> str:
    """Return the name of the file at an address. Raises ModelsError if it has none."""
    path = urllib.parse.unquote(urllib.parse.urlsplit(address).path)
    return paths.checked(path.rpartition("/")[2], address)


def checked_sha256(sha256: str | None, address: str) -> Digest:
    """Return the digest that was given. Raises ModelsError if it is none."""
    if sha256 is None:
        raise ModelsError(
            f"{address} has to be checked; give the digest that the file's makers tell, by "
            "--sha256 DIGEST"
        )
    digits = sha256.lower()
    if len(digits) != 64 or set(digits) - set("0123456789abcdef"):
        raise ModelsError(f"{sha256} is no SHA-256; it has 64 hexadecimal digits")
    return Digest("sha256", digits)


def _from_servers(
    store: Store, files: dict[str, Source], address: str, wanted: Wanted
) -> Provenance:
    name = paths.model_name(wanted.name)
    store.make()
    with _alone(store, name):
        incoming = store.incoming(name)
        os.makedirs(incoming, 0o700, exist_ok=True)
        size = sum(source.size or 0 for source in files.values())
        progress = Progress(address.partition("?")[0], size)
        with _cleared_when_full(incoming):
            store.refuse_without_room(size, incoming)
            staged = [
                _brought(store, path, source, incoming, progress) for path, source in files.items()
            ]
            return _publish(store, name, staged, address.partition("?")[0], wanted)


def _brought(store: Store, path: str, source: Source, incoming: str, progress: Progress) -> Staged:
    place = os.path.join(incoming, hashlib.sha256(source.url.encode()).hexdigest())
    kind, value = source.digest or (None, "")
    if kind == "sha256" and (known := store.borrow(value, incoming)):
        return Staged(path, known, value, os.path.getsize(known))
    if kind is None:
        say(f"{source.name} has no digest in its bucket; its size alone is checked")
    at = os.open(incoming, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        download.bring(source, place, at, progress)
    finally:
        os.close(at)
    sha256 = digests.digests_of(place, "sha256")["sha256"]
    return Staged(path, place, sha256, os.path.getsize(place))


def _publish(
    store: Store, name: str, staged: list[Staged], origin: str, wanted: Wanted
) -> Provenance:
    """Publish what has come of another source than the hub."""
    if not staged:
        raise ModelsError(f"{origin} has no files; name the folder that has the model's")
    listing = sorted((one.path, one.sha256) for one in staged)
    revision = hashlib.sha256(json.dumps(listing).encode()).hexdigest()[:COMMIT]
    if not store.has(name, revision):
        whole = _provenance(name, revision, origin, wanted, staged)
        store.publish(whole, staged)
    durable.remove(store.incoming(name))
    return _published(store, name, revision, MAIN)


def _provenance(
    name: str,
    revision: str,
    origin: str,
    wanted: Wanted,
    staged: list[Staged],
) -> Provenance:
    files = tuple(File(one.path, one.sha256, one.size) for one in sorted(staged))
    return Provenance(name, revision, origin, wanted.licence, wanted.added_by, now(), files)


def _published(store: Store, name: str, revision: str, ref: str | None) -> Provenance:
    """Set the refs of a model that is there whole, and return it."""
    if ref is not None and store.ref(name, ref) != revision:
        store.refer(name, ref, revision)
    if store.ref(name, MAIN) is None:
        store.refer(name, MAIN, revision)
    return store.provenance(name, revision)


def _alone(store: Store, name: str) -> AbstractContextManager[None]:
    return store.locked(name, lambda: say(f"{name}: another one adds it; waiting until it is done"))


@contextmanager
def _cleared_when_full(incoming: str) -> Iterator[None]:
    """Remove what has come where there is no room for all of it."""
    try:
        yield
    except ModelsError as error:
        # Of a download, which has said so already.
        if isinstance(error.__cause__, OSError) and is_full(error.__cause__):
            shutil.rmtree(incoming, ignore_errors=True)
        raise
    except OSError as error:
        if is_full(error):
            shutil.rmtree(incoming, ignore_errors=True)
        raise of_system(error, incoming) from error
