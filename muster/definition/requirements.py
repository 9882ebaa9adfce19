"""Files of requirements that a definition names: read beside it, and looked through for hashes."""

import re
from collections.abc import Iterator
from pathlib import Path

from muster.definition.definition import Definition

_PLAIN_OPTIONS = re.compile(
    r"--(index-url|extra-index-url|find-links|only-binary|no-binary|prefer-binary|pre|"
    r"require-hashes|no-index)(?:[\s=].*)?|-[if]\s.*"
)
"""Options that say where packages are, or choose among files of one version."""

_INDEX = re.compile(r"\s*-(?:.*\s-)?(?:-index-url|i)[\s=]")
"""In a line with options alone."""
_LIST = re.compile(r"(?P<option>--(?:only|no)-binary)[\s=].*,")

_INCLUDES = ("-r", "--requirement", "-c", "--constraint", "-e", "--editable")
"""Options by which a file names what is not in it."""

_OF_ONE = re.compile(r"\s(--(?!hash\b)[a-z-]+|-C)(?=[\s=])")
"""An option of one package that uv does not know."""

_ONE_VERSION = re.compile(r"[\w.-]+\s*(?:\[[^\]]*\])?\s*\(?\s*={2,3}\s*[^\s,*()]+\s*\)?")
_ADDRESS = re.compile(r"[@/]")

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


def has_index(text: str) -> bool:
    """Whether a file names an index of its own, in place of PyPI or a mirror of it."""
    return any(_INDEX.match(line) for line in text.splitlines())


def faults(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number of each line that leaves something open or that uv refuses, and why."""
    number, start, whole, index = 0, 0, "", 0
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
        elif _INDEX.match(whole.strip()):
            if index:
                yield start, f"a second index beside line {index}; write `--extra-index-url`"
            index = index or start
        start, whole = 0, ""


def _wrong(line: str) -> str | None:
    """Return what is wrong with one requirement or option; None: nothing."""
    if not line:
        return None
    return _wrong_option(line) if line.startswith("-") else _wrong_package(line)


def _wrong_option(line: str) -> str | None:
    option = line.split(maxsplit=1)[0]
    if several := _LIST.match(line):
        return f"uv takes one package in each `{several['option']}`; write a line for each"
    if _PLAIN_OPTIONS.fullmatch(line):
        return None
    if option.partition("=")[0] in _INCLUDES:
        return f"`{option}` does not fix what is installed"
    return f"`{option}` is no option that uv reads in a file; remove it"


def _wrong_package(line: str) -> str | None:
    if not _HASH.search(line):
        return f"{line.split(maxsplit=1)[0]} has no hash"
    if option := _OF_ONE.search(line):
        return f"`{option[1]}` is no option of a package that uv knows; remove it"
    package = re.split(r";|\s--", line, maxsplit=1)[0].strip()
    if not _ADDRESS.search(package) and not _ONE_VERSION.fullmatch(package):
        return f"{package} is not one version; write it with =="
    return None
