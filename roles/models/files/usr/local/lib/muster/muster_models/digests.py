# SPDX-License-Identifier: Apache-2.0
"""Digests by which files are checked."""

import hashlib
import os
from collections.abc import Callable
from typing import NamedTuple, Protocol

from muster_models import folders

BLOCK = 1 << 20
"""Bytes that are read at once."""


class Hasher(Protocol):
    """An object of hashlib."""

    def update(self, data: bytes, /) -> None:
        """Take more bytes."""

    def hexdigest(self) -> str:
        """Return the digest of all of them."""


class Digest(NamedTuple):
    """What a file must be."""

    kind: str
    """sha256; md5, which Cloud Storage has of most objects; git, of small files of the hub."""
    value: str
    """In hexadecimal digits."""

    def __str__(self) -> str:
        return f"{self.kind} {self.value}"


def hasher(kind: str, size: int) -> Hasher:
    """Return a hasher of a kind, for a file of `size` bytes (git counts them in)."""
    if kind == "md5":
        return hashlib.md5(usedforsecurity=False)
    if kind == "git":
        # https://git-scm.com/book/en/v2/Git-Internals-Git-Objects
        return hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    return hashlib.new(kind)


def digests_of(
    path: str | int, *kinds: str, each: Callable[[int], None] = lambda _: None
) -> dict[str, str]:
    """Return digests of a file by kind; `each` gets the size of each block. Raises OSError.

    `path` may be a descriptor, which is closed.
    """
    with open(path if isinstance(path, int) else folders.opened_file(path), "rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        hashers = {kind: hasher(kind, size) for kind in kinds}
        while block := stream.read(BLOCK):
            for one in hashers.values():
                one.update(block)
            each(len(block))
    return {kind: one.hexdigest() for kind, one in hashers.items()}
