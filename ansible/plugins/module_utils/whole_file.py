# SPDX-License-Identifier: Apache-2.0
"""Files that a reader sees whole or not at all: what modules and the role `software` share.

The role installs this file on hosts: it uses the standard library alone.
"""

import os

NEW = ".muster-new"
"""Ending of what is being written. What a killed run leaves, the next one reuses."""


def write(path: str, text: str) -> None:
    """Write a file beside its place and rename it. Raises OSError, which names the file.

    All may read it. Folders above it are made.
    """
    folder = os.path.dirname(path)
    os.makedirs(folder, mode=0o755, exist_ok=True)
    # Lmod reads no file whose name begins with a dot.
    temporary = f"{folder}/.{os.path.basename(path)}{NEW}"
    try:
        with open(temporary, "w", encoding="utf-8", errors="surrogateescape") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        # That of a full disk names none.
        raise OSError(error.errno, error.strerror, path) from error
    os.chmod(temporary, 0o644)
    os.replace(temporary, path)
