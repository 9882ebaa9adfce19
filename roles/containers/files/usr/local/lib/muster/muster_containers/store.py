# SPDX-License-Identifier: Apache-2.0
"""Bringing images into a store, and taking them out.

An image is written into a hidden folder, and when it is whole a link to it replaces the name's link
by rename(2): readers on other hosts see all of one version or of the other, and a pull that is
killed leaves no half image. The version before stays for a day, for jobs that read it and for
hosts that remember the link.
"""

import hashlib
import json
import os
import pwd
import shutil
import stat
import subprocess
import tempfile
import time
from contextlib import suppress

from muster_containers import errors, images
from muster_containers.errors import ContainerError

ANSWER_S = 60
"""How long a registry may take to name an image: skopeo itself waits for ever."""
_STALE_S = 86400
"""A hidden folder that nothing names and that did not change for a day is of no use any more."""
_HIDDEN = ".pull-"
_VERSION = ".="
_OF_FILES = ("oci:", "oci-archive:", "docker-archive:", "dir:")
_TRANSPORTS = ("docker://", *_OF_FILES)


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
        return images.read(name, os.path.realpath(place)), False
    if os.path.isdir(place) and not os.path.islink(place):
        raise ContainerError(
            f"{place} is a folder, where a link belongs: muster-container remove {name}, and pull "
            "it then"
        )
    digest = _look(source)
    hidden, descriptor = _hidden(store)
    try:
        # Members of the group may rename what is in the store, so its path may lead elsewhere.
        inside = f"/proc/self/fd/{descriptor}"
        new = os.path.join(inside, "image")
        done = _skopeo(
            ["copy", "--quiet", _pinned(source, digest), f"oci:{new}:image"], None, descriptor
        )
        if done.returncode != 0:
            raise errors.full(_said(done), store) or errors.of_source(
                _said(done), source, images.architecture()
            )
        image = images.read(name, new)
        image.check()
        images.Record(_absolute(source), digest or "-", _now(), _login()).write(new)
        _share(new, store)
        version = _publish(inside, place, os.path.basename(hidden).removeprefix(_HIDDEN))
    except OSError as error:
        raise _unwritable(store, error) from error
    finally:
        shutil.rmtree(hidden, ignore_errors=True)
        os.close(descriptor)
    return images.read(name, version), True


def umask_of(store: str) -> int:
    """Return the umask of what is brought into a store: the group writes it where it may there.

    Raises ContainerError where there is no such folder.
    """
    try:
        return 0o002 if os.stat(store).st_mode & stat.S_IWGRP else 0o022
    except OSError as error:
        raise images.no_store(store, error) from error


def remove(name: str, store: str) -> None:
    """Take an image out of the store, a broken one too, with all its versions.

    Nothing is written for it, which a full disk would prevent. Jobs that run have their own copy.
    Raises ContainerError where it is not there or not yours.
    """
    place = images.folder(store, name)
    if not os.path.lexists(place):
        raise images.missing(name, store)
    parent, tag = os.path.split(place)
    try:
        if os.path.islink(place):
            os.unlink(place)
        else:
            shutil.rmtree(place)
        for entry in os.listdir(parent):
            if entry.startswith(f".{tag}="):
                shutil.rmtree(os.path.join(parent, entry))
    except OSError as error:
        raise _unwritable(store, error) from error
    # Folders of names that have no image any more; somebody else may just pull one.
    with suppress(OSError):
        while parent != store:
            os.rmdir(parent)
            parent = os.path.dirname(parent)


def _absolute(source: str) -> str:
    """Return a source as it is right in each folder."""
    for transport in _OF_FILES:
        if source.startswith(transport):
            path, colon, reference = source.removeprefix(transport).partition(":")
            return f"{transport}{os.path.abspath(path)}{colon}{reference}"
    return source


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _login() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _look(source: str) -> str | None:
    """Return the digest of the source's manifest, None where it has none by which it can be named.

    Raises ContainerError where the source has no such image, or does not answer.
    """
    try:
        # Of a large archive in a file the manifest takes minutes.
        seconds = ANSWER_S if source.startswith("docker://") else None
        done = _skopeo(["inspect", "--raw", source], seconds)
    except subprocess.TimeoutExpired as error:
        raise ContainerError(
            f"the registry of {source} has not answered for {ANSWER_S} s: check the name and that "
            "this host reaches it (https_proxy), and try again later"
        ) from error
    if done.returncode != 0:
        raise errors.of_source(_said(done), source, images.architecture())
    try:
        version = json.loads(done.stdout)["schemaVersion"]
    except (ValueError, KeyError, TypeError):
        return None
    # The digest of the first schema is of a part of the manifest.
    return f"sha256:{hashlib.sha256(done.stdout).hexdigest()}" if version != 1 else None


def _pinned(source: str, digest: str | None) -> str:
    """Return a registry's image by its digest: its tag may be moved before it is copied."""
    if digest is None or not source.startswith("docker://"):
        return source
    repository, slash, last = source.partition("@")[0].rpartition("/")
    return f"{repository}{slash}{last.partition(':')[0]}@{digest}"


def _skopeo(
    words: list[str], seconds: float | None, *descriptors: int
) -> "subprocess.CompletedProcess[bytes]":
    if shutil.which("skopeo") is None:
        raise ContainerError("skopeo is not installed on this host: pull images on a login node")
    return subprocess.run(
        # However this process ends, skopeo ends with it: prctl(2), PR_SET_PDEATHSIG.
        ["setpriv", "--pdeathsig", "KILL", "skopeo", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=seconds,
        pass_fds=descriptors,
        check=False,
    )


def _said(done: "subprocess.CompletedProcess[bytes]") -> str:
    return done.stderr.decode("utf-8", "replace")


def _hidden(store: str) -> tuple[str, int]:
    """Make a hidden folder in the store, and remove what is of no use any more.

    Return its path and its descriptor. Nobody else enters the folder: a link that a member of the
    group put there would lead what is written, by root perhaps, to any file. They may put something
    else in its place, which is refused here, and has no effect on the descriptor later.
    """
    _tidy(store)
    try:
        path = tempfile.mkdtemp(prefix=_HIDDEN, dir=store)
        descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW)
    except OSError as error:
        raise _unwritable(store, error) from error
    state = os.fstat(descriptor)
    is_own = stat.S_ISDIR(state.st_mode) and state.st_uid == os.geteuid()
    if not is_own or state.st_mode & 0o077:
        os.close(descriptor)
        raise ContainerError(
            f"{path} was replaced by somebody who may write in {store}: pull again, and tell an "
            "administrator"
        )
    return path, descriptor


def _tidy(store: str) -> None:
    """Remove what pulls left that were killed, and versions that were replaced a day ago."""
    for path, folders, _ in os.walk(store):
        named = {os.path.realpath(os.path.join(path, n)) for n in folders if n.startswith("=")}
        hidden = [n for n in folders if n.startswith((_HIDDEN, _VERSION))]
        folders[:] = [n for n in folders if not n.startswith((".", "="))]
        for entry in (os.path.join(os.path.realpath(path), n) for n in hidden):
            with suppress(FileNotFoundError):  # Somebody else pulls, and has removed it.
                is_old = time.time() - os.lstat(entry).st_mtime > _STALE_S
                if is_old and entry not in named:
                    shutil.rmtree(entry, ignore_errors=True)


def _share(folder: str, store: str) -> None:
    """Open folders to all, and to the group as the store: its members replace each other's images.

    A store that is one person's has images that are so too, whatever group the person is in.
    """
    bits = 0o755 | (os.stat(store).st_mode & stat.S_IWGRP)
    for path, _, _ in os.walk(folder):
        # chmod(2) takes the bit away by which what is below has the store's group, unless the mode
        # has it.
        os.chmod(path, stat.S_IMODE(os.stat(path).st_mode) | bits)


def _publish(hidden: str, place: str, number: str) -> str:
    """Let the name lead to the whole image in the hidden folder; return where that is then.

    `number`: what no other version of it has in its name.
    """
    parent, tag = os.path.split(place)
    os.makedirs(parent, exist_ok=True)
    # No tag has an =, so no version is one of another tag.
    version = os.path.join(parent, f".{tag}={number}")
    os.rename(os.path.join(hidden, "image"), version)
    link = os.path.join(hidden, "link")
    os.symlink(os.path.basename(version), link)
    before = os.path.realpath(place)
    if before != place:
        # It is removed a day after this. Now, as somebody who tidies may come before the next line.
        with suppress(OSError):
            os.utime(before)
    os.rename(link, place)
    return version


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
