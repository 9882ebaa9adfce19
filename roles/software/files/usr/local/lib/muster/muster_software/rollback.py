# SPDX-License-Identifier: Apache-2.0
"""Going back to an earlier release of a module."""

import os
import subprocess
import tempfile
from collections.abc import Sequence

from lmod_tools import MARK, Lmod, LmodError
from muster_build.errors import RefusedError
from release_system import other_system
from whole_file import write

from muster_software.releases import Release, modulefile, of_module, published, releases
from muster_software.settings import Settings


def rollback(settings: Settings, module: str, name: str | None) -> str:
    """Publish an earlier release of a module; return a sentence. Raises RefusedError or OSError."""
    found = releases(settings)
    own = of_module(module, found)
    if not own:
        raise RefusedError(f"there is no release of {module}; `muster-software list` has all")
    users = published(settings, module, found)
    target = chosen(module, own, users, name)
    if target == users:
        raise RefusedError(f"users load {target.name} of {module} already; name another release")
    sentence = other_system(target.root, target.system)
    if sentence is not None:
        raise RefusedError(f"{sentence}; name another release")
    for root in target.built_on:
        # Not where a link leads: that would be mounted.
        if not os.path.lexists(root):
            raise RefusedError(
                f"{target.name} is built on {root}, which is gone; name another release"
            )
    publish(settings, target)
    said = f"{module} is {target.name} again" + (f", and not {users.name}" if users else "")
    if settings.wanted.get(module) != target.root:
        said += (
            "; the next run of site.yml publishes what the definition asks for, so change it there "
            "too"
        )
    return said


def chosen(module: str, own: Sequence[Release], users: Release | None, name: str | None) -> Release:
    """Return the release to go back to. `own`: those of the module, the oldest first."""
    known = ", ".join(release.name for release in own)
    if name is not None:
        for release in own:
            if release.name == name:
                return release
        raise RefusedError(f"{module} has no release {name}; there are {known}")
    if users is None:
        raise RefusedError(f"no release of {module} is published; name one of {known}")
    earlier = own[: own.index(users)]
    if not earlier:
        raise RefusedError(f"{module} has no release before {users.name}; there are {known}")
    return earlier[-1]


def publish(settings: Settings, release: Release) -> None:
    """Have the module's file name a release. Raises RefusedError."""
    path = modulefile(settings, release.module)
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as stream:
            if not stream.read().startswith(MARK):
                raise RefusedError(f"{path} was not written by Muster; move it away and run again")
    except FileNotFoundError:
        pass
    refuse_what_does_not_load(settings, release)
    write(path, MARK + release.modulefile)
    try:
        Lmod(run).build_cache(settings.modules, f"{settings.apps}/lmod/cache")
    except LmodError as error:
        raise RefusedError(
            f"{path} is published, but `module avail` may show the old one: {error}; have the "
            "definition ask for this release, and run site.yml, which rebuilds Lmod's cache"
        ) from None


def refuse_what_does_not_load(settings: Settings, release: Release) -> None:
    """Let Lmod load the modulefile of a release, in front of the others. Raises RefusedError."""
    with tempfile.TemporaryDirectory(prefix="muster-modules-") as scratch:
        write(f"{scratch}/{release.module}.lua", release.modulefile)
        try:
            Lmod(run).load(release.module, [scratch, settings.modules])
        except LmodError as error:
            said = str(error).replace(scratch, settings.modules)
            raise RefusedError(
                f"{release.name} is not published, since Lmod does not load it: {said}; "
                "name another release"
            ) from None


def run(command: list[str]) -> tuple[int, str, str]:
    """Run a program; return its exit code, output and errors."""
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    return done.returncode, done.stdout, done.stderr
