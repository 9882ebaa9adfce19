#!/usr/bin/python3 -I
# SPDX-License-Identifier: Apache-2.0
"""Look whether built software works: its shared libraries are there, its Python packages load.

    muster-check-release [--import NAME]... [--beside FOLDER]... FOLDER

Run by muster-build, as the account that built it and closed off in the same way, since to import a
package is to run it. `python3` is what the environment says. Exit code 1: a line for each fault.
"""

import argparse
import errno
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence

OF_THE_DRIVER = re.compile(r"lib(cuda|cudadebugger|nvcuvid|nvoptix|nvidia-[\w-]+|EGL_nvidia)\.so")
"""Libraries that come with the driver: nodes with GPUs have them, the host that builds has not."""

MISSING = re.compile(r"^\s*(\S+) => not found$", re.MULTILINE)
"""Of what ldd prints."""

TOO_OLD = re.compile(r"(\S+): version `(\S+)' not found")
"""The same: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found (required by ...)."""

SHOWN = 5


def entries_below(folder: str, *passes: int) -> Iterator["os.DirEntry[str]"]:
    """Yield the files and links below a folder.

    `passes`: errors (errno) with which a folder is passed over. Raises OSError with others.
    """
    # Not os.walk, which fails on some 1000 nested folders before Python 3.12.
    ahead = [folder]
    while ahead:
        try:
            entries = os.scandir(ahead.pop())
        except OSError as error:
            # No program can name what is below too long a name.
            if error.errno not in (errno.ENAMETOOLONG, *passes):
                raise
            continue
        with entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    ahead.append(entry.path)
                else:
                    yield entry


def files_below(folder: str) -> Iterator[str]:
    """Yield the regular files below a folder."""
    for entry in entries_below(folder):
        if entry.is_file(follow_symlinks=False):
            yield entry.path


def names_below(folder: str) -> set[str]:
    """Return the names of the files and links below a folder, as far as they are there to see.

    An administrator may fill it, on other hosts than this one.
    """
    return {entry.name for entry in entries_below(folder, errno.ENOENT, errno.EACCES)}


def is_elf(path: str) -> bool:
    """Whether a file is a program or library of Linux."""
    try:
        with open(path, "rb") as stream:
            return stream.read(4) == b"\x7fELF"
    except PermissionError:  # what nobody may read, nobody runs
        return False


def missing_libraries(folder: str, beside: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each file that needs a library that is nowhere, and the library.

    A library may count on what its process has loaded before, as Python's extension modules do: it
    is enough if the other one is somewhere in the release, or in one that it is built on. A program
    has to find all by itself.
    """
    there = set().union(*(names_below(place) for place in (folder, *beside)))
    for path in files_below(folder):
        if not is_elf(path):
            continue
        done = subprocess.run(
            ["ldd", path],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        needed = MISSING.findall(done.stdout)
        for library, version in TOO_OLD.findall(done.stdout):
            needed.append(f"{os.path.basename(library)} of version {version}")
        for library in needed:
            is_loaded_before = ".so" in os.path.basename(path) and library in there
            if not OF_THE_DRIVER.match(library) and not is_loaded_before:
                yield os.path.relpath(path, folder), library


def failed_imports(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each package that Python can't import, and the last line of what it says."""
    for name in names:
        done = subprocess.run(
            ["python3", "-c", f"import {name}"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode != 0:
            said = done.stderr.strip().splitlines() or [f"Python ended with {done.returncode}"]
            yield name, said[-1]


def faults(folder: str, imports: Sequence[str], beside: Sequence[str]) -> Iterator[str]:
    """Yield a line for each thing that does not work."""
    needed: dict[str, list[str]] = {}
    for path, library in missing_libraries(folder, beside):
        needed.setdefault(library, []).append(path)
    for library, paths in needed.items():
        more = f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else ""
        verb = "needs" if len(paths) == 1 else "need"
        yield f"no library {library}, which {', '.join(sorted(paths)[:SHOWN])}{more} {verb}"
    for name, said in failed_imports(imports):
        yield f"`import {name}` failed: {said}"


def main(arguments: Sequence[str]) -> int:
    """Run the program; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="muster-check-release", description="Look whether built software works."
    )
    parser.add_argument("--import", dest="imports", action="append", default=[], metavar="NAME")
    parser.add_argument("--beside", action="append", default=[], metavar="FOLDER")
    parser.add_argument("folder", metavar="FOLDER")
    given = parser.parse_args(arguments)
    found = list(faults(given.folder, given.imports, given.beside))
    sys.stdout.writelines(f"{line}\n" for line in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
