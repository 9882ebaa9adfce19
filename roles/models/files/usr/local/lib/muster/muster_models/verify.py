# SPDX-License-Identifier: Apache-2.0
"""Whether the store is what the provenances of its models say."""

import os
from collections.abc import Iterator

from muster_models import digests
from muster_models.errors import ModelsError
from muster_models.progress import Progress
from muster_models.store import File, Provenance, Store


def problems(store: Store, names: list[str]) -> Iterator[str]:
    """Yield what is wrong with models, with remedies; without names with all. Raises OSError.

    Raises:
        ModelsError: there is no model of a name, or a provenance can't be read.

    """
    models = [one for one in store.provenances() if not names or one.name in names]
    if unknown := sorted(set(names) - {one.name for one in models}):
        raise ModelsError(f"no model {unknown[0]} is in {store.root}; `muster-models list` has all")
    files = {file.sha256: file for model in models for file in model.files}
    progress = Progress("verified", sum(file.size for file in files.values()))
    # Each file once, however many models have it.
    wrong = {sha256: _wrong(store, file, progress) for sha256, file in files.items()}
    for model in models:
        for file in model.files:
            if why := wrong[file.sha256]:
                yield (
                    f"{model.name}@{model.revision[:12]}: {file.path} {why}; remove "
                    f"{store.blob(file.sha256)} and add {_source(model)} again"
                )
        yield from _links(store, model)


def _wrong(store: Store, file: File, progress: Progress) -> str | None:
    blob = store.blob(file.sha256)
    if not os.path.exists(blob):
        return "is missing"
    try:
        came = digests.digests_of(blob, "sha256", each=progress.add)["sha256"]
    except OSError as error:
        # Of this file: the others are looked at too.
        return f"can't be read ({(error.strerror or str(error)).lower()})"
    return None if came == file.sha256 else f"differs: its SHA-256 is {came}"


def _source(model: Provenance) -> str:
    """Return what brings the same files again: a branch of the hub may have others by now."""
    if model.origin.startswith("hf:"):
        return f"hf:{model.name}@{model.revision}"
    return model.origin


def _links(store: Store, model: Provenance) -> Iterator[str]:
    """Yield what readers of a model would not find, though its files are there."""
    snapshot = store.snapshot(model.name, model.revision)
    for file in model.files:
        path = os.path.join(snapshot, file.path)
        if os.path.basename(os.path.realpath(path)) != file.sha256:
            yield (
                f"{model.name}@{model.revision[:12]}: {path} does not lead to its file; remove "
                f"{snapshot} and add {_source(model)} again"
            )
            return
