"""Files of requirements that a definition names: read beside it, and looked through for hashes."""

import re
from collections.abc import Iterator
from pathlib import Path

from muster.definition.definition import Definition

_PLAIN_OPTIONS = re.compile(
    r"--(index-url|extra-index-url|find-links|only-binary|no-binary|prefer-binary|pre|"
    r"require-hashes|no-index)(?:[\s=].*)?|-[if]\s.*"
)
"""Options of pip that fetch packages from elsewhere, or choose among files of one version."""

_HASH = re.compile(r"\s--hash=sha256:[0-9a-f]{64}(?=\s|$)")


class RequirementsError(Exception):
    """A file of requirements can't be read; the text says which one."""


def read(definition: Definition, folder: Path) -> dict[str, str]:
    """Return the text of each file of requirements by its path in the definition.

    Args:
        definition: What names the files.
        folder: The folder of the inventory, in which they are.

    Raises:
        RequirementsError: one is not there, or is no text.

    """
    texts = {}
    for path in definition.requirement_files():
        try:
            texts[path] = (folder / path).read_text(encoding="utf-8")
        except OSError as error:
            said = (error.strerror or "can't be read").lower()
            raise RequirementsError(f"{folder / path}: {said}; write it, or name another") from None
        except UnicodeDecodeError:
            raise RequirementsError(
                f"{folder / path} is not UTF-8 text; save it as UTF-8"
            ) from None
    return texts


def faults(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number of each line that is not fixed by a hash, and what is wrong there."""
    number, start, whole = 0, 0, ""
    for line in [*text.splitlines(), ""]:
        number += 1
        start = start or number
        # A comment begins the line or follows a blank.
        part = re.sub(r"(^|\s)#.*$", "", line)
        whole += part.rstrip("\\") + " "
        if part.endswith("\\") and number <= len(text.splitlines()):
            continue
        if said := _wrong(whole.strip()):
            yield start, said
        start, whole = 0, ""


def _wrong(line: str) -> str | None:
    """Return what is wrong with one requirement or option; None: nothing."""
    if not line or _PLAIN_OPTIONS.fullmatch(line):
        return None
    if line.startswith("-"):
        return f"`{line.split(maxsplit=1)[0]}` does not fix what is installed"
    if not _HASH.search(line):
        return f"{line.split(maxsplit=1)[0]} has no hash"
    return None
