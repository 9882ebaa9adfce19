"""Checks of the files with the packages of Python environments."""

import re
from collections.abc import Iterator
from typing import Any

from muster.definition.checks.registry import Finding, source_check
from muster.definition.requirements import faults
from muster.definition.sources import Sources
from muster.definition.yaml_file import KeyPath

# Below the inventory's folder, which is copied to a VM: neither absolute nor through a parent.
_FILE = re.compile(r"(?!/)(?:(?!\.{1,2}/)[A-Za-z0-9._+-]{1,255}/)*(?!\.)[A-Za-z0-9._+-]{1,255}")


def _named(sources: Sources) -> Iterator[tuple[KeyPath, str]]:
    """Each path of a file of requirements, with its place; what has another shape is left out."""
    software = _below(sources.definition, "software")
    modules = _below(software, "modules")
    for name, versions in modules.items() if isinstance(modules, dict) else ():
        for version in versions if isinstance(versions, dict) else ():
            path = _below(_below(versions[version], "environment"), "requirements")
            if isinstance(path, str):
                keys = ("software", "modules", name, version, "environment", "requirements")
                yield keys, path


def _below(data: Any, key: str) -> Any:
    return data.get(key) if isinstance(data, dict) else None


@source_check("module-requirements")
def module_requirements(sources: Sources) -> Iterator[Finding]:
    """A file of requirements that is not there, leaves open what is installed, or uv refuses."""
    for keys, path in _named(sources):
        if not _FILE.fullmatch(path):
            yield Finding(
                keys,
                f'"{path}" is no file below the inventory\'s folder',
                "put the file there, and write its path like software/jupyter-4.txt",
            )
            continue
        if sources.folder is None:
            continue  # the definition came without files
        try:
            text = (sources.folder / path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            yield Finding(
                keys,
                f"there is no text {path} in the inventory's folder",
                "write it with `uv pip compile --generate-hashes`",
            )
            continue
        wrong = list(faults(text))
        if wrong:
            line, said = wrong[0]
            more = f", and {len(wrong) - 1} more lines are like it" if len(wrong) > 1 else ""
            yield Finding(
                keys,
                f"line {line} of {path}: {said}{more}",
                "write the file with `uv pip compile --generate-hashes`, so that it names each "
                "package with its hashes",
            )
