# SPDX-License-Identifier: Apache-2.0
"""Bringing images into a store, and taking them out.

An image is written into a hidden folder beside its place and renamed when it is whole: readers on
other hosts see all of it or nothing, and a pull that is killed leaves no half image.
"""

import os
import shutil
import stat
import subprocess
import tempfile
import time

from muster_containers import errors, images
from muster_containers.errors import ContainerError

ANSWER_S = 60
"""How long a registry may take to name an image: skopeo itself waits for ever."""
_STALE_S = 86400
"""A hidden folder in which nothing changed for a day is of a pull that was killed."""
_HIDDEN = ".pull-"
_TRANSPORTS = ("docker://", "oci:", "oci-archive:", "docker-archive:", "dir:")


def source_of(text: str) -> str:
    """Return a source as skopeo takes it: what names no transport is an image of a registry.

    Raises ContainerError where the registry is missing: which one is meant is not guessed.
    """
    if text.startswith(_TRANSPORTS):
        return text
    host, slash, _ = text.partition("/")
    if not slash or not ("." in host or ":" in host or host == "localhost"):
        raise ContainerError(
            f'"{text}" names no registry: write it in full, such as docker.io/library/debian:12, '
            "or "
            "oci-archive:FILE for an image in a file"
        )
    return f"docker://{text}"


def name_of(source: str) -> str:
    """Return the name that an image gets where none is given: of a registry's image, its last part.

    Raises ContainerError for other sources.
    """
    if not source.startswith("docker://"):
        raise ContainerError("name the image: muster-container pull SOURCE NAME:TAG")
    last = source.rpartition("/")[2]
    if "@" in last:
        raise ContainerError(
            "an image that is named by its digest needs a name: muster-container pull SOURCE "
            "NAME:TAG"
        )
    return last


def pull(source: str, name: str, store: str, *, again: bool) -> tuple[images.Image, bool]:
    """Bring an image into the store; return it, and whether it was brought now.

    Raises ContainerError.
    """
    place = images.folder(store, name)
    if os.path.isdir(place) and not again:
        return images.read(name, place), False
    _look(source)
    hidden = _hidden(store)
    try:
        new = os.path.join(hidden, "image")
        done = _skopeo(["copy", "--quiet", source, f"oci:{new}:image"], None)
        if done.returncode != 0:
            raise errors.full(done.stderr, store) or errors.of_source(
                done.stderr, source, images.architecture()
            )
        image = images.read(name, new)
        image.check()
        _publish(new, place, hidden)
    except OSError as error:
        raise _unwritable(store, error) from error
    finally:
        shutil.rmtree(hidden, ignore_errors=True)
    return images.read(name, place), True


def remove(name: str, store: str) -> None:
    """Take an image out of the store. Raises ContainerError where it is not there or not yours."""
    place = images.find(name, store).path
    try:
        hidden = _hidden(store)
        os.rename(place, os.path.join(hidden, "image"))
        shutil.rmtree(hidden)
        # Folders of names that have no image any more.
        parent = os.path.dirname(place)
        while parent != store and not os.listdir(parent):
            os.rmdir(parent)
            parent = os.path.dirname(parent)
    except OSError as error:
        raise _unwritable(store, error) from error


def _look(source: str) -> None:
    """Raise ContainerError where the source has no such image, or does not answer."""
    try:
        done = _skopeo(["inspect", "--raw", source], ANSWER_S)
    except subprocess.TimeoutExpired as error:
        raise ContainerError(
            f"the registry of {source} has not answered for {ANSWER_S} s: check the name and that "
            "this host reaches it (https_proxy), and try again later"
        ) from error
    if done.returncode != 0:
        raise errors.of_source(done.stderr, source, images.architecture())


def _skopeo(words: list[str], seconds: float | None) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["skopeo", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except FileNotFoundError as error:
        raise ContainerError(
            "skopeo is not installed on this host: pull images on a login node"
        ) from error


def _hidden(store: str) -> str:
    """Make a hidden folder in the store, and remove those of pulls that were killed."""
    try:
        for entry in os.scandir(store):
            is_old = time.time() - entry.stat(follow_symlinks=False).st_mtime > _STALE_S
            if entry.name.startswith(_HIDDEN) and is_old:
                shutil.rmtree(entry.path, ignore_errors=True)
        hidden = tempfile.mkdtemp(prefix=_HIDDEN, dir=store)
        # The group's, as all in the store. chmod(2) takes the bit away by which what is below has
        # the store's group, unless the mode has it.
        os.chmod(hidden, stat.S_IMODE(os.stat(hidden).st_mode) | 0o775)  # noqa: S103
    except OSError as error:
        raise _unwritable(store, error) from error
    return hidden


def _publish(new: str, place: str, hidden: str) -> None:
    """Put a whole image into its place, instead of one that is there."""
    os.makedirs(os.path.dirname(place), mode=0o775, exist_ok=True)
    if os.path.isdir(place):
        os.rename(place, os.path.join(hidden, "old"))
    os.rename(new, place)


def _unwritable(store: str, error: OSError) -> ContainerError:
    found = errors.full(os.strerror(error.errno or 0), store)
    if found is not None:
        return found
    return ContainerError(
        f"{store} can't be written ({error.strerror}): images are pulled on login nodes by members "
        "of the group in storage.images; for an image of your own give a folder of yours with "
        "--store"
    )


def size_text(size: int) -> str:
    """Return a size in bytes for people."""
    return f"{size / 2**30:.2f} GiB"
