# SPDX-License-Identifier: Apache-2.0
"""Ask the installed Lmod: what the module `module_tree` and the role `software` share.

The role installs this file on hosts: it uses the standard library alone.
"""

import os
import shutil
from collections.abc import Callable, Sequence

LMOD = "/usr/share/lmod/lmod"
LMODRC = "/etc/lmod/lmodrc.lua"
"""Where the role lmod describes the property of modules that are not built."""

MARK = "-- Written by Muster from the definition: changes made here are lost.\n"
"""First line of the modulefiles that Muster may replace and remove."""

SHELLS = ("bash", "sh", "zsh")
"""Of people and jobs: a modulefile is tried in those that are installed."""

SEARCHED = "/usr/bin:/bin"
"""PATH while it is tried."""

LOAD = '. "$1" && module load "$2" && echo && printenv LOADEDMODULES'
"""For each of the shells, with the file that gives it the command `module`."""

Run = Callable[[list[str]], tuple[int, str, str]]
"""Runs a command; returns its exit code, output and errors."""


class LmodError(Exception):
    """What Lmod says when it refuses something, or that it is not there."""


class Lmod:
    """The tools of the installed Lmod."""

    def __init__(self, run: Run, home: str = LMOD, lmodrc: str = LMODRC) -> None:
        self.run = run
        self.home = home
        self.lmodrc = lmodrc

    @property
    def version(self) -> str:
        """The installed version, empty if there is none: the tools are in a folder of that name."""
        return os.path.basename(os.path.realpath(self.home)) if os.path.isdir(self.home) else ""

    @property
    def configured(self) -> bool:
        """Whether it is installed, and the role lmod has run on this host."""
        try:
            with open(self.lmodrc, encoding="utf-8", errors="replace") as stream:
                return bool(self.version) and "declared" in stream.read()
        except FileNotFoundError:
            return False

    def _tool(self, name: str) -> str:
        path = f"{self.home}/libexec/{name}"
        if not os.path.exists(path):
            raise LmodError(f"{path} is missing; install Lmod 8 or newer on this host (role lmod)")
        return path

    def check(self, folder: str) -> None:
        """Raise LmodError with Lmod's message if a file below `folder` is no modulefile."""
        # check_module_tree_syntax ignores a .modulerc.lua that no user's Lmod can read.
        for above, _, names in sorted(os.walk(folder)):
            if ".modulerc.lua" in names:
                code, _, err = self.run(["luac", "-p", f"{above}/.modulerc.lua"])
                if code != 0:
                    raise LmodError(err.strip())
        code, out, err = self.run([self._tool("check_module_tree_syntax"), folder])
        if code != 0:
            lines = [line.strip() for line in (err or out).splitlines()]
            raise LmodError(" ".join(line for line in lines if line.strip("-")))

    def load(self, name: str, folders: Sequence[str]) -> None:
        """Load a module as a user with this MODULEPATH does, in each installed shell.

        Args:
            name: Name and version.
            folders: Those of MODULEPATH. The first one is HOME too, and may get files of Lmod's.

        Raises:
            LmodError: it does not load in one of them; with Lmod's message.

        """
        # Not a user's or the host's settings, and no cache: it is of the published tree.
        clean = [f"HOME={folders[0]}", f"MODULEPATH={':'.join(folders)}", f"PATH={SEARCHED}"]
        for shell in SHELLS:
            if shutil.which(shell, path=SEARCHED) is None:
                continue
            script = [shell, "-c", LOAD, shell, f"{self.home}/init/{shell}", name]
            code, out, err = self.run(["env", "-i", *clean, "LMOD_IGNORE_CACHE=1", *script])
            loaded = (out.splitlines() or [""])[-1].split(":")
            if code != 0 or name not in loaded:
                said = " ".join(err.partition("While processing")[0].split())
                raise LmodError(f"{said or f'{name} is not loaded'} (in {shell})")

    def build_cache(self, folder: str, cache: str) -> None:
        """Write the spider cache of the tree in `folder`. Raises LmodError."""
        files = ["-d", f"{cache}/cacheDir", "-t", f"{cache}/timestamp"]
        code, out, err = self.run([self._tool("update_lmod_system_cache_files"), *files, folder])
        if code != 0:
            said = " ".join((err.strip() or out).split())
            raise LmodError(f"the spider cache in {cache} was not built: {said}")
