#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Show the releases of modules, go back to an earlier one, and remove those that nobody needs.

    muster-software list [--json]
    muster-software rollback MODULE/VERSION [RELEASE]
    muster-software gc

Installed by Muster's role `software` on the host that builds. A release is a folder that never
changes, named by a digest. Beside it is RELEASE.json with its module, the folders that it is built
on, and its modulefile. What users load is in the modulefiles below modules/, so these alone say
what is published. Exit code 1: stderr says what can't be done.
"""

import argparse
import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SETTINGS = "/etc/muster/software.json"
"""Of the role: the shared folder, and the release of each module that the definition asks for."""

LOCK = "/run/muster-software.lock"

BUILD_LOCK = "/run/muster-build.lock"
"""Of muster-build, which holds it while it builds."""

LOGS = "/var/log/muster-build"
"""Of muster-build."""

LMOD = "/usr/share/lmod/lmod/libexec"
"""Folder of Lmod's tools."""

MARK = "-- Written by Muster from the definition: changes made here are lost.\n"
"""First line of a modulefile that Muster may replace; the module module_tree knows it too."""

DIGEST = re.compile(r"[0-9a-f]{16}")

FOLDER = re.compile(r"(?:/[\w.+-]+)*?/[0-9a-f]{16}(?![\w.+-])")
"""The folder of a release in a modulefile."""

SHELL_SECONDS = 7 * 24 * 3600
"""How long a shell that has loaded a module may last, and submit jobs with what it has loaded."""


class RefusedError(Exception):
    """What can't be done, said in a sentence."""


@dataclass(frozen=True)
class Release:
    """A folder of software that is complete."""

    root: str
    module: str
    built_on: tuple[str, ...]
    modulefile: str

    @property
    def name(self) -> str:
        """The digest."""
        return os.path.basename(self.root)

    @property
    def built_at(self) -> float:
        """Seconds since the epoch."""
        return os.stat(self.root).st_mtime


@dataclass(frozen=True)
class Settings:
    """What the role has written."""

    apps: str
    wanted: Mapping[str, str]
    """Module -> folder of the release that the definition asks for."""

    @property
    def modules(self) -> str:
        """The tree of modulefiles."""
        return f"{self.apps}/modules"


def read_settings() -> Settings:
    """Return what the role has written. Raises RefusedError."""
    try:
        with open(SETTINGS, encoding="utf-8") as stream:
            data = json.load(stream)
    except FileNotFoundError:
        raise RefusedError(
            f"there is no {SETTINGS}; run site.yml, whose role software writes it on the controller"
        ) from None
    return Settings(data["root"], data["wanted"])


# What there is.


def folders(settings: Settings) -> Iterator[str]:
    """Yield the folders of releases, whether they are complete or not."""
    tops = {f"{settings.apps}/software", *map(os.path.dirname, settings.wanted.values())}
    seen = set()
    for top in sorted(tops):
        for above, names, _ in os.walk(top):
            found = [name for name in names if DIGEST.fullmatch(name)]
            # Not into them: they have thousands of files.
            names[:] = sorted(set(names) - set(found))
            for name in sorted(found):
                path = os.path.join(above, name)
                if path not in seen:
                    seen.add(path)
                    yield path


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
        found[root] = Release(root, data["module"], tuple(data["built_on"]), data["modulefile"])
    return found


def named_in_modulefiles(settings: Settings) -> set[str]:
    """Return the folders of releases that modulefiles name, those of other people too."""
    named: set[str] = set()
    for above, _, names in os.walk(settings.modules):
        for name in names:
            named |= named_in(os.path.join(above, name))
    return named


def named_in(path: str) -> set[str]:
    """Return the folders of releases that a file names; none if it is not there."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as stream:
            return set(FOLDER.findall(stream.read()))
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


def shown(settings: Settings) -> Iterator[str]:
    """Yield the lines that `list` prints: each module, and its releases from the oldest on."""
    found = releases(settings)
    for module in sorted({*settings.wanted, *(release.module for release in found.values())}):
        yield module
        users = published(settings, module, found)
        wanted = settings.wanted.get(module)
        for release in of_module(module, found):
            built = time.strftime("%Y-%m-%d %H:%M", time.localtime(release.built_at))
            notes = ["users load it"] if release == users else []
            notes += ["the definition asks for it"] if release.root == wanted else []
            yield f"  {release.name}  {built}  {', '.join(notes)}".rstrip()
        if wanted is not None and wanted not in found:
            yield f"  {os.path.basename(wanted)}  not built         the definition asks for it"


def report(settings: Settings) -> dict[str, dict[str, Any]]:
    """Return what `list --json` prints: of each module its releases, from the oldest on."""
    found = releases(settings)
    modules = {}
    for module in sorted({*settings.wanted, *(release.module for release in found.values())}):
        users = published(settings, module, found)
        modules[module] = {
            "published": users.root if users else None,
            "releases": [release.root for release in of_module(module, found)],
        }
    return modules


def of_module(module: str, found: Mapping[str, Release]) -> list[Release]:
    """Return the releases of a module, the oldest first."""
    return sorted((r for r in found.values() if r.module == module), key=lambda r: r.built_at)


# Going back.


def rollback(settings: Settings, module: str, name: str | None) -> str:
    """Publish an earlier release of a module; return a sentence. Raises RefusedError."""
    found = releases(settings)
    own = of_module(module, found)
    if not own:
        raise RefusedError(f"there is no release of {module}; `muster-software list` has all")
    users = published(settings, module, found)
    target = chosen(module, own, users, name)
    if target == users:
        raise RefusedError(f"users load {target.name} of {module} already; name another release")
    for root in target.built_on:
        if not os.path.isdir(root):
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
    done = subprocess.run(
        [
            f"{LMOD}/update_lmod_system_cache_files",
            *("-d", f"{settings.apps}/lmod/cache/cacheDir"),
            *("-t", f"{settings.apps}/lmod/cache/timestamp", settings.modules),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RefusedError(
            f"{path} is published, but `module avail` may show the old one: "
            f"{' '.join(done.stderr.split())}; run site.yml, which rebuilds Lmod's cache"
        )


def refuse_what_does_not_load(settings: Settings, release: Release) -> None:
    """Let Lmod load the modulefile of a release, in front of the others. Raises RefusedError."""
    with tempfile.TemporaryDirectory(prefix="muster-modules-") as scratch:
        write(f"{scratch}/{release.module}.lua", release.modulefile)
        path = f"{scratch}:{settings.modules}"
        done = subprocess.run(
            [f"{LMOD}/lmod", "bash", "load", release.module],
            env={
                "HOME": scratch,
                "PATH": "/usr/bin:/bin",
                "MODULEPATH": path,
                "LMOD_IGNORE_CACHE": "1",
            },
            capture_output=True,
            text=True,
            check=False,
        )
    shown = re.search(r"^LOADEDMODULES=(.*);$", done.stdout, re.MULTILINE)
    loaded = shown[1].replace("\\", "").split(":") if shown else []
    if done.returncode != 0 or release.module not in loaded:
        said = " ".join(done.stderr.partition("While processing")[0].split())
        raise RefusedError(
            f"{release.name} is not published, since Lmod does not load it: {said or 'no word'}; "
            "name another release"
        )


def write(path: str, text: str) -> None:
    """Write a file beside its place and rename it."""
    folder, name = os.path.split(path)
    os.makedirs(folder, mode=0o755, exist_ok=True)
    temporary = f"{folder}/.{name}.muster-new"
    with open(temporary, "w", encoding="utf-8", errors="surrogateescape") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    os.chmod(temporary, 0o644)
    os.replace(temporary, path)


# Removing what nobody needs.


def collect(settings: Settings) -> Iterator[str]:
    """Remove what nobody needs; yield a sentence for each release that is not in use.

    Raises RefusedError.
    """
    if not os.path.isdir(settings.modules):
        raise RefusedError(f"there is no {settings.modules}, so nothing is removed; is it mounted?")
    for root in folders(settings):
        # Of a build or a removal that was killed.
        if os.path.exists(f"{root}.building"):
            remove(root)
            yield f"{root}: removed, it was not complete"
    found = releases(settings)
    needed = kept(settings, found)
    unneeded = [release for release in found.values() if release.root not in needed]
    if not unneeded:
        return
    oldest, job = oldest_job()
    for release in unneeded:
        until = replaced_at(settings, release, found) + SHELL_SECONDS
        if until >= time.time():
            day = time.strftime("%Y-%m-%d", time.localtime(until))
            yield f"{release.root}: stays until {day}, shells may have loaded it"
        elif oldest is not None and until >= oldest:
            yield f"{release.root}: stays, job {job} may have loaded it"
        else:
            remove(release.root)
            yield f"{release.root}: removed"


def kept(settings: Settings, found: Mapping[str, Release]) -> set[str]:
    """Return what users can load, what the definition asks for, and all that these are built on."""
    kept: set[str] = set()
    ahead = [*named_in_modulefiles(settings), *settings.wanted.values()]
    while ahead:
        root = ahead.pop()
        if root not in kept:
            kept.add(root)
            ahead += found[root].built_on if root in found else ()
    return kept


def replaced_at(settings: Settings, release: Release, found: Mapping[str, Release]) -> float:
    """Return the last time at which users may have loaded a release, in seconds since the epoch.

    Its module's file is renamed to its place at each change; where the file has gone, the folder
    has changed. What is built on a release uses it as long.
    """
    path = modulefile(settings, release.module)
    while not os.path.exists(path):
        path = os.path.dirname(path)
    above = [other for other in found.values() if release.root in other.built_on]
    return max(os.stat(path).st_mtime, *(replaced_at(settings, one, found) for one in above), 0.0)


def oldest_job() -> tuple[float | None, str]:
    """Return when the oldest job that is not over was submitted, and which one it is.

    A job starts with the environment that it was submitted with, perhaps days later. SLURM gives a
    requeued job a new submit time, but its environment is older: it counts as older than all.

    Raises RefusedError.
    """
    form = "SubmitTime:24,RestartCnt:12,JobID:24"
    try:
        done = subprocess.run(
            ["squeue", "--all", "--noheader", f"--Format={form}"],
            env={**os.environ, "SLURM_TIME_FORMAT": "%s"},
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        raise RefusedError("there is no squeue on this host; run this on the controller") from None
    if done.returncode != 0:
        raise RefusedError(
            "nothing is removed, since SLURM does not say which jobs there are: "
            f"{' '.join(done.stderr.split())}; run again when `squeue` works"
        )
    jobs = [line.split() for line in done.stdout.splitlines() if line.strip()]
    times = []
    for job in jobs:
        if len(job) != 3 or not (job[0].isdigit() and job[1].isdigit()):
            raise RefusedError(f"squeue prints what is no job: {' '.join(job)}; nothing is removed")
        times.append((0.0 if int(job[1]) else float(job[0]), job[2]))
    return min(times, default=(None, ""))


def remove(root: str) -> None:
    """Remove a release. Killed in the middle, it counts as not built."""
    mark = f"{root}.building"
    with open(mark, "a", encoding="utf-8"):
        pass
    log = os.path.join(LOGS, f"{root.strip('/').replace('/', '_')}.log")
    for path in (f"{root}.json", f"{root}.txt", log):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    if os.path.isdir(root):
        shutil.rmtree(root)
    os.unlink(mark)


# The program.


@contextlib.contextmanager
def locked(path: str) -> Iterator[None]:
    """Hold the lock of a file. Raises RefusedError if another program holds it."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RefusedError(
                "a build, rollback or gc runs on this host; wait for it, then run again"
            ) from None
        yield
    finally:
        os.close(lock)


def print_lines(lines: Iterable[str]) -> None:
    """Print each line as soon as it is known."""
    for line in lines:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def main(arguments: Sequence[str]) -> int:
    """Run the program; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="muster-software", description="Show, roll back and remove releases of modules."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    everything = commands.add_parser("list", help="show the releases of all modules")
    everything.add_argument("--json", action="store_true", help="for programs")
    back = commands.add_parser("rollback", help="have users load an earlier release")
    back.add_argument("module", metavar="MODULE/VERSION")
    back.add_argument("release", metavar="RELEASE", nargs="?")
    commands.add_parser("gc", help="remove releases that no modulefile names and no job may use")
    given = parser.parse_args(arguments)
    os.umask(0o022)
    try:
        settings = read_settings()
        if given.command == "list":
            print_lines([json.dumps(report(settings))] if given.json else shown(settings))
        elif given.command == "rollback":
            with locked(LOCK):
                print_lines([rollback(settings, given.module, given.release)])
        else:
            with locked(LOCK), locked(BUILD_LOCK):
                print_lines(collect(settings))
    except RefusedError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except OSError as error:
        sys.stderr.write(f"{error.filename}: {error.strerror}; nothing else was changed\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
