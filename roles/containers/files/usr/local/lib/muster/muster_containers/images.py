# SPDX-License-Identifier: Apache-2.0
"""Images as folders: an OCI image layout each (the image-layout specification of OCI).

The store has NAME/=TAG for each image, a link to the version that is in use: a hidden folder beside
it. Who has followed the link once reads one version, whatever is pulled meanwhile.
"""

import json
import os
import platform
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any

from muster_containers.errors import ContainerError, printable

PART = re.compile(r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*")
TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
"""A part of a repository's name, and a tag: the specification of registries."""
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")

_RECORD = "muster.json"
"""Beside the layout, in the folder of a version: where it came from."""

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64le", "s390x": "s390x"}
"""What the kernel calls a machine -> what images call it (GOARCH)."""


def architecture() -> str:
    """Return the architecture of this host, as images name it."""
    machine = platform.machine()
    return _ARCHITECTURES.get(machine, machine)


@dataclass(frozen=True)
class Image:
    """An image on a disk."""

    name: str
    """NAME:TAG in the store, or the path of a folder elsewhere."""
    path: str
    digest: str
    """Of its configuration, 64 hexadecimal digits: podman's number of the image."""
    architecture: str
    system: str
    variables: frozenset[str]
    """Names of the environment variables that it sets."""
    size: int
    """Bytes of its layers, compressed as they are."""

    def check(self) -> None:
        """Raise ContainerError where this host can't run it."""
        here = architecture()
        if (self.system, self.architecture) != ("linux", here):
            raise ContainerError(
                f"{self.name} is for {self.system}/{self.architecture} and this host is "
                f"linux/{here}: pull an image for {here}, or send the job to nodes of the other "
                "kind (--constraint)"
            )


@dataclass(frozen=True)
class Record:
    """Where an image of the store came from."""

    source: str
    """As skopeo takes it; a path is absolute."""
    digest: str
    """Of the source's manifest: what NAME@DIGEST of a registry names."""
    pulled: str
    """When, in UTC (RFC 3339)."""
    by: str
    """Login name."""

    def write(self, path: str) -> None:
        """Write it into the folder of a version. Raises OSError."""
        with open(os.path.join(path, _RECORD), "w", encoding="utf-8") as file:
            json.dump(asdict(self), file)


def record_of(path: str) -> Record:
    """Return where the image at a path came from, a dash for what is not known."""
    try:
        given = _load(os.path.join(path, _RECORD))
        texts = [str(given[field.name]) for field in fields(Record)]
    except (OSError, ValueError, KeyError, TypeError):
        return Record("-", "-", "-", "-")
    return Record(*map(printable, texts))


def split(name: str) -> tuple[str, str]:
    """Return name and tag of NAME[:TAG]; without a tag it is `latest`, as for registries.

    Raises ContainerError where it is no name.
    """
    repository, _, tag = name.partition(":")
    parts = repository.split("/")
    if not all(PART.fullmatch(part) for part in parts) or (":" in name and not TAG.fullmatch(tag)):
        raise ContainerError(
            f'"{name}" is no name of an image: write NAME:TAG in small letters, such as pytorch:2.6'
        )
    return repository, tag or "latest"


def is_path(name: str) -> bool:
    """Whether a name is the path of a folder, and none in a store."""
    return name.startswith(("/", "./", "../"))


def folder(store: str, name: str) -> str:
    """Return where the link to an image of the store is."""
    repository, tag = split(name)
    # A tag begins with an =, so that no image is in the folder of another one (a/b:1 and a:b).
    return os.path.join(store, repository, f"={tag}")


def find(name: str, store: str | None) -> Image:
    """Return an image by its name in the store, or by the path of its folder.

    Raises ContainerError where it is not there, or is none.
    """
    if is_path(name):
        return read(name, os.path.realpath(name))
    if store is None:
        raise ContainerError(
            f"this host has no store of images: name the folder of {name} by its path"
        )
    path = folder(store, name)
    if not os.path.isdir(path):
        raise missing(name, store)
    return read(name, os.path.realpath(path))


def no_store(store: str, error: OSError) -> ContainerError:
    """Return the error of a store that is not there."""
    return ContainerError(
        f"{store} is no folder that you reach ({error.strerror}): make a folder of your own by "
        "mkdir -p, or have an administrator look why this host does not have the shared one"
    )


def missing(name: str, store: str) -> ContainerError:
    """Return the error of an image that is not in the store."""
    known = [image for image in names(store) if image.partition(":")[0] == split(name)[0]]
    hint = f"there is {', '.join(known)}" if known else "muster-container list shows all"
    return ContainerError(
        f"{store} has no image {':'.join(split(name))} ({hint}): pull it on a login node with "
        "muster-container pull"
    )


def names(store: str) -> Iterator[str]:
    """Return the names of the images in a store, in order."""
    for path, folders, _ in os.walk(store):
        tags = sorted(name for name in folders if name.startswith("="))
        folders[:] = sorted(name for name in folders if not name.startswith((".", "=")))
        for tag in tags:
            yield f"{os.path.relpath(path, store)}:{tag[1:]}"


def read(name: str, path: str) -> Image:
    """Return the one image of a layout. Raises ContainerError where there is none."""
    try:
        index = _load(os.path.join(path, "index.json"))
        (entry,) = index["manifests"]
        manifest = _load(_blob(path, entry["digest"]))
        while "manifests" in manifest:
            # Of an index for several architectures it has the one of this host, if any.
            manifest = _load(_blob(path, _mine(manifest["manifests"])["digest"]))
        config = _load(_blob(path, manifest["config"]["digest"]))
        variables = (config.get("config") or {}).get("Env") or []
        return Image(
            name=name,
            path=path,
            digest=manifest["config"]["digest"].removeprefix("sha256:"),
            architecture=printable(str(config["architecture"])),
            system=printable(str(config["os"])),
            variables=frozenset(text.partition("=")[0] for text in variables),
            size=sum(layer["size"] for layer in manifest["layers"]),
        )
    except FileNotFoundError as error:
        raise ContainerError(
            f"{path} is no whole image, {error.filename} is missing: pull it again with "
            "muster-container pull --again"
        ) from error
    except PermissionError as error:
        raise ContainerError(
            f"{error.filename} is not yours to read: ask who made it to open it (chmod -R a+rX)"
        ) from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ContainerError(
            f"{path} is no OCI image with one image in it ({error}): pull it again with "
            "muster-container pull --again, which makes one of any image"
        ) from error


def _mine(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the entry for this host, else the first: its architecture is then said."""
    here = [one for one in entries if one.get("platform", {}).get("architecture") == architecture()]
    return (here or entries)[0]


def _blob(path: str, digest: str) -> str:
    if not _DIGEST.fullmatch(digest):
        raise ValueError(f"{digest} is no SHA-256")
    return os.path.join(path, "blobs", "sha256", digest.removeprefix("sha256:"))


def _load(path: str) -> Any:
    with open(path, encoding="utf-8") as file:
        return json.load(file)
