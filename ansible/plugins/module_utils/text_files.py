# SPDX-License-Identifier: Apache-2.0
"""Files of text that may not be there."""


def read_text(path: str, errors: str = "strict") -> str | None:
    """Return the text at `path`, or None; `errors` says what is done with bytes that are no text."""
    try:
        with open(path, encoding="utf-8", errors=errors) as stream:
            return stream.read()
    except FileNotFoundError:
        return None
