"""Archives whose bytes follow from their content alone: .tar.gz of names and contents.

They don't depend on clock, owner, permissions, locale or the order of a folder. They are not
compressed: two releases of zlib make different bytes from the same text, and the digest of an
archive is the identity of an image that takes minutes to build.
"""

import hashlib
import io
import struct
import tarfile
import zlib
from collections.abc import Mapping

# https://www.rfc-editor.org/rfc/rfc1952#section-2.3: deflate, no flags, no time, system unknown.
_GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_STORED = 65535
"""Bytes of the longest stored block: https://www.rfc-editor.org/rfc/rfc1951#section-3.2.4"""


class BundleError(Exception):
    """An archive can't be made; the text names the file and says what to do."""


def pack(files: Mapping[str, bytes]) -> bytes:
    """Return the archive of `files`: path -> content.

    A file that begins with `#!` is executable, others are not.
    """
    stream = io.BytesIO()
    with tarfile.open(
        fileobj=stream, mode="w", format=tarfile.GNU_FORMAT, encoding="utf-8"
    ) as archive:
        for path, content in sorted(files.items()):
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            entry.mode = 0o755 if content.startswith(b"#!") else 0o644
            archive.addfile(entry, io.BytesIO(content))
    return _gzip(stream.getvalue())


def digest(archive: bytes) -> str:
    """Return the SHA-256 of an archive in hexadecimal digits."""
    return hashlib.sha256(archive).hexdigest()


def _gzip(data: bytes) -> bytes:
    parts = [_GZIP_HEADER]
    for start in range(0, len(data), _STORED):
        block = data[start : start + _STORED]
        last = start + _STORED >= len(data)
        parts.append(struct.pack("<BHH", last, len(block), len(block) ^ 0xFFFF) + block)
    parts.append(struct.pack("<LL", zlib.crc32(data), len(data) & 0xFFFFFFFF))
    return b"".join(parts)
