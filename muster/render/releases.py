"""The definition's software -> releases: what is built, by which command, into which folder.

Pure. The folder of a release is named by the digest of all that it is made from, so a changed
definition builds another one beside it, and what a job has loaded never changes.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter

from muster.definition.requirements import has_index
from muster.definition.schema.software import Software, SoftwareVersion
from muster.render import build_commands

IMAGES = ".muster/images"
"""Below the folder of shared programs: the files that releases are packed into.

The role lmod gets the folder, and mounts them; muster-software (role software), which removes them,
knows the name too.
"""

DIGITS = 16
"""Of the digest, in the folder's name: 64 bits, and paths in first lines of scripts stay short."""

Versions = Mapping[str, SoftwareVersion]
"""`apps/python/3.11` -> what the definition says."""


@dataclass(frozen=True)
class Release:
    """The folder that a module points to, and what fills it."""

    module: str
    """Name and version: `apps/python/3.11`."""
    root: str
    command: str | None
    """For /bin/sh; None: Muster does not fill the folder."""
    image: str | None
    """File that the folder is packed into, and then a link to where hosts mount it; None: it stays
    a folder."""
    requirements: str | None
    """Text of the file `root`.txt, which the command reads; None: it reads none."""
    beside: tuple[str, ...]
    """Folders of other modules that it may have the paths of."""
    built_on: tuple[str, ...]
    """Those of them that are releases."""
    packages: tuple[str, ...]
    """Packages of the distribution that only the command needs."""


def versions(software: Software) -> dict[str, SoftwareVersion]:
    """Return name and version -> what the definition says."""
    return {
        f"{name}/{version}": data
        for name, by_version in software.modules.items()
        for version, data in by_version.items()
    }


def releases(
    software: Software, apps: str, os: str, requirements: Mapping[str, str]
) -> dict[str, Release]:
    """Return the release of each module, in an order in which they can be built.

    Args:
        software: Of the definition.
        apps: Folder of shared programs.
        os: Release of the distribution: `debian-12`.
        requirements: Path in the definition -> text of each file of requirements.

    Raises:
        graphlib.CycleError: modules depend on each other in a circle (`muster check` refuses it).

    """
    named = versions(software)
    order = TopologicalSorter(
        {
            name: [other for other in data.built_after(name) if other in named]
            for name, data in named.items()
        }
    )
    made: dict[str, Release] = {}
    for name in order.static_order():
        data = named[name]
        beside = {other: made[other].root for other in data.built_after(name) if other in made}
        root = data.root or f"{apps}/software/{name}"
        image: str | None = None
        texts = None
        if data.environment is not None:
            texts = requirements[data.environment.requirements]
        if data.is_built:
            digest = _digest(name, data, os, texts, beside)
            root = f"{root}/{digest}"
            if data.is_packed:
                image = f"{apps}/{IMAGES}/{digest}.squashfs"
        made[name] = Release(
            module=name,
            root=root,
            command=_command(name, data, root, {n: r.root for n, r in made.items()}, texts),
            image=image,
            requirements=texts,
            beside=tuple(beside.values()),
            built_on=tuple(
                root for other, root in beside.items() if made[other].command is not None
            ),
            packages=tuple(
                sorted(
                    {
                        *data.build_packages,
                        *(build_commands.ARCHIVE_PACKAGES if data.archive else ()),
                        *(build_commands.PACK_PACKAGES if data.is_packed else ()),
                    }
                )
            ),
        )
    return made


def _digest(
    name: str,
    data: SoftwareVersion,
    os: str,
    requirements: str | None,
    beside: Mapping[str, str],
) -> str:
    """Return the name of a release. Where an archive comes from makes no difference to it."""
    inputs = {
        "os": os,
        "packages": sorted({*data.packages, *data.build_packages}),
        "build": data.build,
        "environment": data.environment.python if data.environment else None,
        "requirements": requirements,
        "archive": data.archive.sha256 if data.archive else None,
        # A release is verified when it is built.
        "imports": sorted(data.imports),
        "built_on": dict(beside),
    }
    if data.is_packed:
        # Images of all modules are in one folder, so two that are made alike need two names.
        inputs |= {"form": data.form, "module": name}
    text = json.dumps(inputs, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def _command(
    name: str,
    data: SoftwareVersion,
    root: str,
    roots: Mapping[str, str],
    requirements: str | None,
) -> str | None:
    if data.environment is not None:
        python, index = roots[data.environment.python], has_index(requirements or "")
        return build_commands.environment(root, python, f"{root}.txt", has_index=index)
    if data.archive is not None:
        return build_commands.archive(root, data.archive)
    if data.build is None:
        return None
    return filled(data.build, {**roots, name: root}, root)


def filled(text: str, roots: Mapping[str, str], root: str) -> str:
    """Replace `{root}` and `{apps/python/3.10}` by folders; other braces belong to the shell."""
    for name, folder in roots.items():
        text = text.replace(f"{{{name}}}", folder)
    return text.replace("{root}", root)
