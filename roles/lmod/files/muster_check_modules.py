#!/usr/bin/python3 -I
# SPDX-License-Identifier: Apache-2.0
"""Look whether people and jobs can load modules on this host, in each shell that is installed.

    muster-check-modules TREE CACHE

TREE has the modulefiles, CACHE Lmod's spider cache with the file `loads`: a line for each module
that loads if nothing is wrong (module_tree writes it). Installed by Muster's role `lmod`, run at
the end of each site.yml. Loads the module that was published last, and only if something was
published, or what shells read at their start was changed, since the last look at which all was
well. Exit code 1: a line for each fault.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import IO, Any

LOOKED = "/run/muster/modules-looked-at"
"""What a look depends on, as it was when all was well."""

READ_AT_START = (
    *("/etc/profile", "/etc/profile.d", "/etc/bash.bashrc", "/etc/zsh"),
    *("/etc/lmod", "/usr/share/lmod"),
)
"""What shells and Lmod read at their start: files, and folders of files."""

NOBODY = 65534
"""User and group, on Debian and Ubuntu."""

SECONDS = 60
"""For all shells together, and for the file server before."""

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


def is_silent(folder: str) -> bool:
    """Whether the server of a folder does not answer; a separate process asks, and may hang."""
    # This signal ends the program that waits, too: in the kernel the other one may hang for longer.
    command = ["timeout", "--signal=KILL", str(SECONDS), "stat", "--cached=never", folder]
    done = subprocess.run(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
    )
    return done.returncode == -signal.SIGKILL


def depends_on(cache: str) -> str | None:
    """Return what a look depends on, as a text; None if nothing was published yet."""
    try:
        lines = [f"{os.stat(f'{cache}/timestamp').st_mtime_ns} {cache}"]
    except FileNotFoundError:
        return None
    for path in READ_AT_START:
        inside = os.listdir(path) if os.path.isdir(path) else []
        for file in [path, *(f"{path}/{name}" for name in sorted(inside))]:
            with contextlib.suppress(FileNotFoundError):
                # Of a package the time of modification may be older than that of the file before.
                lines.append(f"{os.stat(file).st_ctime_ns} {file}")
    return "".join(f"{line}\n" for line in lines)


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
        with contextlib.suppress(FileNotFoundError):
            times[name] = os.stat(f"{tree}/{name}.lua").st_mtime
    return max(times, key=times.__getitem__, default=None)


def refusals(name: str) -> dict[str, str]:
    """Return the ways in which a module is not loaded, each with what is wrong and what to do."""
    found = {}
    # Not root: nobody reads what users can't.
    person: dict[str, Any] = {}
    if os.geteuid() == 0:
        person = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    with contextlib.ExitStack() as stack:
        home = stack.enter_context(tempfile.TemporaryDirectory(prefix="muster-modules-"))
        if person:
            os.chown(home, NOBODY, NOBODY)
        environment = {"HOME": home, "PATH": PATH, "LANG": "C.UTF-8", "TERM": "dumb"}
        begun = []
        for way, command in ways(name):
            # No pipes: what a start-up file leaves in the background would hold them open.
            out, err = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(2))
            process = subprocess.Popen(
                # Interactive shells must have no terminal to stop at, and none ignores this signal.
                ["timeout", "--signal=KILL", str(SECONDS), *command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd="/",
                env=environment,
                start_new_session=True,
                **person,
            )
            begun.append((way, process, out, err))
        for way, process, out, err in begun:
            end(process)
            loaded = (text_of(out).splitlines() or [""])[-1].split(":")
            if process.returncode == -signal.SIGKILL:
                found[way] = (
                    f"it did not end within {SECONDS} s; `bash -lixc 'module load {name}'` shows "
                    "what it waits for: a file of /etc/profile.d, the file server, or a host that "
                    "is busy"
                )
            elif process.returncode != 0 or name not in loaded:
                lines = text_of(err).partition("While processing")[0].splitlines()
                said = " ".join(" ".join(line for line in lines if not NOISE.search(line)).split())
                found[way] = (
                    f"{said or 'it is not loaded'}; run site.yml, whose role lmod writes what "
                    "shells read at their start, and look at what else is in /etc/profile.d"
                )
    return found


def end(process: "subprocess.Popen[bytes]") -> None:
    """Wait for the leader of a session, and kill what it has left in its group."""
    # Not yet reaped, it keeps its process ID: no other group of processes has that number.
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def text_of(stream: IO[bytes]) -> str:
    """Return what was written to a file."""
    stream.seek(0)
    return stream.read().decode(errors="replace")


def faults(name: str) -> Iterator[str]:
    """Yield a sentence for each thing that is wrong where shells don't load a module."""
    by_words: dict[str, list[str]] = {}
    for way, said in refusals(name).items():
        by_words.setdefault(said, []).append(way)
    for said, ways_of in by_words.items():
        yield f"`module load {name}` does not work on this host in {', '.join(ways_of)}: {said}"


def main(arguments: Sequence[str]) -> int:
    """Run the program; return its exit code."""
    if len(arguments) != 2:
        sys.stderr.write("usage: muster-check-modules TREE CACHE\n")
        return 2
    tree, cache = arguments
    if is_silent(cache):
        sys.stdout.write(
            f"{cache} does not answer within {SECONDS} s; bring the server that has it back, and "
            "run site.yml again\n"
        )
        return 1
    now = depends_on(cache)
    with contextlib.suppress(FileNotFoundError), open(LOOKED, encoding="utf-8") as stream:
        if stream.read() == now:
            return 0
    name = newest(tree, cache)
    if now is None or name is None:
        return 0
    found = list(faults(name))
    sys.stdout.writelines(f"{line}\n" for line in found)
    if found:
        return 1
    os.makedirs(os.path.dirname(LOOKED), mode=0o755, exist_ok=True)
    with open(LOOKED, "w", encoding="utf-8") as stream:
        stream.write(now)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
