#!/usr/bin/python3 -I
# SPDX-License-Identifier: Apache-2.0
"""Look whether people and jobs can load modules on this host, in each shell that is installed.

    muster-check-modules TREE CACHE

TREE has the modulefiles, CACHE Lmod's spider cache with the file `loads`: a line for each module
that loads if nothing is wrong (module_tree writes it). Installed by Muster's role `lmod`, run at
the end of each site.yml. Loads the module that was published last, and only if one was published
since the last look. Exit code 1: a line for each fault.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

LOOKED = "/run/muster/modules-looked-at"
"""When the cache of modules was built with which all was well."""

NOBODY = 65534
"""User and group, on Debian and Ubuntu."""

SECONDS = 60
"""For all shells together."""

PATH = "/usr/bin:/bin"

LOAD = 'module load "$1" && echo && printenv LOADEDMODULES'

BELOW = 'exec "$0" -c "$1" "$0" "$2"'
"""The same in a shell that is started by a login shell, as the script of a job is."""

NOISE = re.compile(r"job control|terminal process group")
"""What interactive shells say without a terminal."""


def ways(name: str) -> Iterator[tuple[str, list[str]]]:
    """Yield how people and jobs load a module: what it is called, and a command."""
    for shell in ("bash", "sh", "zsh"):
        if shutil.which(shell, path=PATH) is None:
            continue
        yield f"{shell} -l", [shell, "-l", "-c", LOAD, shell, name]
        yield f"{shell} -l -i", [shell, "-l", "-i", "-c", LOAD, shell, name]
        # dash has no functions from the shell above: `#!/bin/sh -l` is what works there.
        if shell != "sh":
            yield f"a script for {shell}", [shell, "-l", "-c", BELOW, shell, LOAD, name]


def newest(tree: str, cache: str) -> str | None:
    """Return the module that was published last of those that load; None if there is none."""
    times = {}
    try:
        with open(f"{cache}/loads", encoding="utf-8") as stream:
            names = stream.read().split()
    except FileNotFoundError:
        return None
    for name in names:
        # A file server may not have told this host yet what was published a moment ago.
        if os.path.exists(f"{tree}/{name}.lua"):
            times[name] = os.stat(f"{tree}/{name}.lua").st_mtime
    return max(times, key=times.__getitem__, default=None)


def refusals(name: str) -> dict[str, str]:
    """Return the ways in which a module is not loaded, each with what the shell says."""
    found = {}
    # Not root: nobody reads what users can't.
    person: dict[str, Any] = {}
    if os.geteuid() == 0:
        person = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    with ExitStack() as stack:
        home = stack.enter_context(tempfile.TemporaryDirectory(prefix="muster-modules-"))
        if person:
            os.chown(home, NOBODY, NOBODY)
        environment = {"HOME": home, "PATH": PATH, "LANG": "C.UTF-8", "TERM": "dumb"}
        begun = []
        for way, command in ways(name):
            process = subprocess.Popen(
                # Interactive shells must have no terminal to stop at, and none ignores this signal.
                ["timeout", "--signal=KILL", str(SECONDS), *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                cwd="/",
                env=environment,
                start_new_session=True,
                **person,
            )
            begun.append((way, stack.enter_context(process)))
        for way, process in begun:
            out, err = process.communicate()
            loaded = (out.splitlines() or [""])[-1].split(":")
            if process.returncode == -signal.SIGKILL:
                found[way] = f"it did not end within {SECONDS} s"
            elif process.returncode != 0 or name not in loaded:
                lines = err.partition("While processing")[0].splitlines()
                said = " ".join(" ".join(line for line in lines if not NOISE.search(line)).split())
                found[way] = said or "it is not loaded"
    return found


def faults(name: str) -> Iterator[str]:
    """Yield a sentence for each thing that shells say instead of loading a module."""
    by_words: dict[str, list[str]] = {}
    for way, said in refusals(name).items():
        by_words.setdefault(said, []).append(way)
    for said, names in by_words.items():
        yield (
            f"`module load {name}` does not work on this host in {', '.join(names)}: {said}; run "
            "site.yml, whose role lmod writes what shells read at their start, and look at what "
            "else is in /etc/profile.d"
        )


def main(arguments: Sequence[str]) -> int:
    """Run the program; return its exit code."""
    tree, cache = arguments
    try:
        published = f"{os.stat(f'{cache}/timestamp').st_mtime_ns}\n"
    except FileNotFoundError:
        return 0
    try:
        with open(LOOKED, encoding="utf-8") as stream:
            if stream.read() == published:
                return 0
    except FileNotFoundError:
        pass
    name = newest(tree, cache)
    found = list(faults(name)) if name is not None else []
    sys.stdout.writelines(f"{line}\n" for line in found)
    if found:
        return 1
    os.makedirs(os.path.dirname(LOOKED), mode=0o755, exist_ok=True)
    with open(LOOKED, "w", encoding="utf-8") as stream:
        stream.write(published)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
