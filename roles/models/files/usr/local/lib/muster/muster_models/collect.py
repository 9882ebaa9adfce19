# SPDX-License-Identifier: Apache-2.0
"""Remove what no model names: files of models that were removed, and what kills left."""

import os
from collections.abc import Iterator

from muster_models import durable
from muster_models.durable import TEMPORARY, BusyError
from muster_models.store import Store


def collect(store: Store) -> Iterator[tuple[str, int]]:
    """Remove it, and yield the path and bytes of each thing. Raises ModelsError or OSError.

    A provenance that can't be read ends it before anything is removed.
    """
    store.make()
    with store.collecting():
        named = {file.sha256 for model in store.provenances() for file in model.files}
        for name in sorted(os.listdir(store.blobs)):
            if name not in named:
                yield _removed(os.path.join(store.blobs, name))
        for folder, folders, names in os.walk(store.hub):
            for name in sorted(name for name in [*folders, *names] if name.startswith(TEMPORARY)):
                yield _removed(os.path.join(folder, name))
            folders[:] = [name for name in folders if not name.startswith(TEMPORARY)]
    incoming = os.path.join(store.root, ".incoming")
    for name in sorted(os.listdir(incoming)):
        try:
            with durable.locked(os.path.join(store.root, ".locks", name)):
                path = os.path.join(incoming, name)
                if os.path.lexists(path):
                    yield _removed(path)
        except BusyError:
            # It comes now.
            continue


def _removed(path: str) -> tuple[str, int]:
    size = _size(path)
    durable.remove(path)
    return path, size


def _size(path: str) -> int:
    if os.path.islink(path) or not os.path.isdir(path):
        return os.lstat(path).st_size
    return sum(
        os.lstat(os.path.join(here, name)).st_size
        for here, _, names in os.walk(path)
        for name in names
    )
