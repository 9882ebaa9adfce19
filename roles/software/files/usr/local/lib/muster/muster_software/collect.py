# SPDX-License-Identifier: Apache-2.0
"""Removing releases that nobody needs."""

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator, Mapping

from build_log import log_of
from muster_build import build, programs
from muster_build.errors import RefusedError

from muster_software.releases import (
    Release,
    folders,
    modulefile,
    named_in_modulefiles,
    releases,
)
from muster_software.settings import Settings, read_settings

DAY_SECONDS = 24 * 3600

SHELL_DAYS = 7
"""How long a shell that has loaded a module may last, and submit jobs with what it has loaded."""


def collect(settings: Settings, days: int) -> Iterator[str]:
    """Remove what nobody needs; yield a sentence for each release that is not in use.

    Args:
        settings: Of the role.
        days: How long a release stays after it was replaced; at least `SHELL_DAYS`.

    Raises:
        RefusedError: nothing, or nothing more, can be removed.

    """
    if not os.path.isdir(settings.modules):
        raise RefusedError(f"there is no {settings.modules}, so nothing is removed; is it mounted?")
    for root in folders(settings):
        mark = f"{root}.building"
        if not os.path.exists(mark):
            continue
        try:
            # Of a build or a removal that was killed, or of one that runs, perhaps on another host.
            with build.locked(mark, "it is being built"):
                remove(settings, root)
        except RefusedError as error:
            yield f"{root}: stays, {error}"
        else:
            yield f"{root}: removed, it was not complete"
    found = releases(settings)
    needed = kept(settings, found)
    unneeded = [release for release in found.values() if release.root not in needed]
    if not unneeded:
        return
    oldest, job = oldest_job()
    for release in unneeded:
        replaced = replaced_at(settings, release, found)
        until = replaced + days * DAY_SECONDS
        if until >= time.time():
            day = time.strftime("%Y-%m-%d", time.localtime(until))
            yield f"{release.root}: stays until {day}, shells and chains of jobs may have loaded it"
        elif oldest is not None and replaced + SHELL_DAYS * DAY_SECONDS >= oldest:
            yield f"{release.root}: stays, job {job} may have loaded it"
        elif release.is_mounted:
            yield f"{release.root}: stays, this host has it mounted, until 10 minutes after its use"
        # Removals take minutes, and site.yml may have run meanwhile.
        elif release.root in kept(read_settings(), found):
            yield f"{release.root}: stays, it is needed again"
        else:
            remove(settings, release.root)
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
    # Not of this shell: they choose jobs, by state, user or partition, or those of another cluster.
    choosing = ("SQUEUE_", "SLURM_CLUSTERS")
    environment = {name: text for name, text in os.environ.items() if not name.startswith(choosing)}
    try:
        done = subprocess.run(
            ["squeue", "--all", "--noheader", f"--Format={form}"],
            env={**environment, "SLURM_TIME_FORMAT": "%s"},
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


def remove(settings: Settings, root: str) -> None:
    """Remove a release. Killed in the middle, it counts as not built."""
    mark = f"{root}.building"
    with open(mark, "a", encoding="utf-8"):
        pass
    for path in (f"{root}.json", f"{root}.txt", log_of(root)):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    image = f"{settings.images}/{os.path.basename(root)}.squashfs"
    # Not Python's rmtree, which fails on some 1000 nested folders before Python 3.13.
    programs.remove(root, image, f"{image}.new")
    os.unlink(mark)
