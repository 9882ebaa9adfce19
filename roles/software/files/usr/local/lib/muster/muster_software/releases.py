# SPDX-License-Identifier: Apache-2.0
"""The releases in the shared folder, and what the modulefiles name of them.

What users load is in the modulefiles below modules/, so these alone say what is published.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn

from mount_table import mounted, read_table
from muster_build import packing

from muster_software.settings import Settings

DIGEST = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True)
class Release:
    """A folder of software that is complete."""

    root: str
    module: str
    built_on: tuple[str, ...]
    system: str
    """Distribution and architecture that it was built on; empty: what is beside it names none."""
    modulefile: str

    @property
    def name(self) -> str:
        """The digest."""
        return os.path.basename(self.root)

    @property
    def built_at(self) -> float:
        """Seconds since the epoch."""
        return os.lstat(self.root).st_mtime

    @property
    def is_packed(self) -> bool:
        """Whether it is one file, which hosts mount."""
        return os.path.islink(self.root)

    @property
    def is_mounted(self) -> bool:
        """Whether it is packed, and this host has mounted it."""
        place = f"{packing.RELEASES}/{self.name}"
        return self.is_packed and place in mounted(read_table())


def folders(settings: Settings) -> Iterator[str]:
    """Yield the folders of releases, whether they are complete or not.

    What a killed build or removal has left may be no more than the mark beside the folder.
    """
    tops = {f"{settings.apps}/software", *map(os.path.dirname, settings.wanted.values())}
    yield from sorted({path for top in tops if os.path.isdir(top) for path in folders_below(top)})


def folders_below(top: str) -> Iterator[str]:
    """Yield the folders of releases below a folder."""
    # Not os.walk, which looks where links lead, and so would mount all packed releases.
    try:
        entries = os.scandir(top)
    except FileNotFoundError:
        return  # somebody has removed it meanwhile
    for entry in entries:
        name = entry.name.removesuffix(".building")
        if DIGEST.fullmatch(name):
            # Not into them: they have thousands of files.
            yield os.path.join(top, name)
        elif entry.is_dir(follow_symlinks=False):
            yield from folders_below(entry.path)


def releases(settings: Settings) -> dict[str, Release]:
    """Return the complete releases by their folder."""
    found = {}
    for root in folders(settings):
        if os.path.exists(f"{root}.building"):
            continue
        try:
            with open(f"{root}.json", encoding="utf-8") as stream:
                data = json.load(stream)
        except FileNotFoundError:
            continue
        system = data.get("system", "")
        found[root] = Release(
            root, data["module"], tuple(data["built_on"]), system, data["modulefile"]
        )
    return found


def named_in_modulefiles(settings: Settings) -> set[str]:
    """Return the folders of releases that modulefiles name, those of other people too.

    Raises OSError.
    """
    named: set[str] = set()

    def refuse(error: OSError) -> NoReturn:
        # What a folder names that can't be read is not known.
        raise error

    seen = set()
    # Lmod follows links to folders too, and they may lead in a circle.
    for above, below, names in os.walk(settings.modules, onerror=refuse, followlinks=True):
        place = os.stat(above)
        if (place.st_dev, place.st_ino) in seen:
            below.clear()
            continue
        seen.add((place.st_dev, place.st_ino))
        for name in names:
            named |= named_in(os.path.join(above, name))
    return named


def named_in(path: str) -> set[str]:
    """Return the folders of releases that a file names; none if it is not there."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as stream:
            return set(packing.RELEASE.findall(stream.read()))
    except FileNotFoundError:
        return set()


def modulefile(settings: Settings, module: str) -> str:
    """Return the path of a module's file."""
    return f"{settings.modules}/{module}.lua"


def published(settings: Settings, module: str, found: Mapping[str, Release]) -> Release | None:
    """Return the release that the module's file names."""
    for root in named_in(modulefile(settings, module)):
        if root in found and found[root].module == module:
            return found[root]
    return None


def of_module(module: str, found: Mapping[str, Release]) -> list[Release]:
    """Return the releases of a module, the oldest first."""
    return sorted((r for r in found.values() if r.module == module), key=lambda r: r.built_at)
