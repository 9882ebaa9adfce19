"""Search for a secret in bytes: as it is, in hexadecimal digits, and in base64, broken or not.

Hosts of tests run this file too, to search their own files.
"""

import base64
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

BETWEEN = b" \t\n\v\f\r\0:"
"""What may stand between the characters of a form. journald also ends a line at a NUL."""


def joined(data: bytes) -> bytes:
    """Return `data` without what may stand between the characters, line breaks of JSON too."""
    return data.replace(b"\\n", b"").translate(None, BETWEEN)


def forms(value: bytes) -> dict[str, bytes]:
    """Return a secret in each form, without what may stand between the characters."""
    # What is before it in a text moves its base64 by up to two bytes. The groups at its ends have
    # bytes of the text, too.
    moved = {
        f"base64 after {ahead} bytes": base64.b64encode(b"?" * ahead + value)[4:-4]
        for ahead in range(3)
    }
    digits = value.hex().encode()
    return {"as it is": joined(value), "hex": digits, "HEX": digits.upper(), **moved}


def found(data: bytes, values: Sequence[bytes]) -> list[str]:
    """Return the forms of one of the values that are in `data`."""
    text = joined(data)
    return [form for one in values for form, needle in forms(one).items() if needle in text]


def files_with(values: Sequence[bytes], folders: Sequence[str]) -> Iterator[str]:
    """Return mode and path of each file below the folders that has one of the values."""
    for folder in folders:
        for above, _, names in os.walk(folder):
            for path in (Path(above, name) for name in names):
                try:
                    mode = path.lstat().st_mode
                    data = path.read_bytes() if stat.S_ISREG(mode) else b""
                except OSError:
                    continue  # it is gone
                if found(data, values):
                    yield f"{stat.filemode(mode)} {path}"
