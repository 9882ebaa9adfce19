#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Publish a tree of modulefiles for Lmod, checked first, and keep its spider cache current."""

import hashlib
import os
import tempfile

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.muster.slurm.plugins.module_utils.commands import run
from ansible_collections.muster.slurm.plugins.module_utils.installed_packages import (
    refuse_missing,
)
from ansible_collections.muster.slurm.plugins.module_utils.lmod_tools import MARK, Lmod, LmodError
from ansible_collections.muster.slurm.plugins.module_utils.refused_error import RefusedError
from ansible_collections.muster.slurm.plugins.module_utils.shared_folders import (
    refuse_silent,
    refuse_unavailable,
)
from ansible_collections.muster.slurm.plugins.module_utils.whole_file import NEW, write

DOCUMENTATION = r"""
module: module_tree
short_description: Publish modulefiles and rebuild Lmod's spider cache when they changed
description:
  - Compares the wanted modulefiles with those in the tree. If they differ, all wanted ones are written
    to a scratch folder and checked there; only then the tree is touched, file by file and by rename,
    so that a broken modulefile never replaces a good one and a reader never sees half of one.
  - The first line of files that this module wrote says so. Those that are no longer wanted are
    removed; files of other people are left alone, and never overwritten.
  - The cache is rebuilt when what it was built from has changed since, also by hand. A run that was
    killed between publishing and rebuilding is completed by the next.
  - Fails after a time limit where the server of a folder does not answer.
  - Fails too where the file system of O(path) or O(cache) should be mounted and is not, by C(/etc/fstab), an enabled unit of
    systemd or C(muster-file-systems); in check mode it warns.
options:
  path:
    description: Root of the tree, a folder of MODULEPATH.
    type: path
    required: true
  files:
    description: Path below O(path) of each modulefile and C(.modulerc.lua), with its text in Lua.
    type: dict
    required: true
  cache:
    description: Folder of the spider cache; C(cacheDir) and C(timestamp) in it are what lmodrc.lua names.
    type: path
    required: true
  loads:
    description:
      - Modules that must load before a changed modulefile of theirs is published, in each shell that is installed.
      - They are in C(loads) in O(cache), from where hosts know which ones they can try.
    type: list
    elements: str
    default: []
  packages:
    description:
      - Packages of the distribution, PACKAGE or PACKAGE=VERSION, that modules need at run time. The module fails where one is
        missing on this host; in check mode it warns.
    type: list
    elements: str
    default: []
  watch:
    description: Folders, or files that releases are packed into, whose presence counts. One that comes or goes makes the
      cache stale.
    type: list
    elements: path
    default: []
author: [The Muster authors]
"""

EXAMPLES = r"""
- name: Publish the modulefiles
  muster.slurm.module_tree:
    path: /apps/modules
    cache: /apps/lmod/cache
    files:
      apps/cuda/11.7.lua: |
        setenv("CUDA_HOME", "/apps/software/apps/cuda/11.7")
"""

RETURN = r"""
paths:
  description: The files that were written or removed, or would be in check mode.
  type: list
  elements: str
  returned: always
cache_rebuilt:
  description: Whether the cache was stale.
  type: bool
  returned: always
"""


def tree(path: str) -> dict[str, str]:
    """Return path below `path` -> text of all files in it; those in the making left out."""
    texts = {}
    for folder, _, names in os.walk(path):
        for name in names:
            full = os.path.join(folder, name)
            if name.endswith(NEW):
                continue
            with open(full, encoding="utf-8", errors="surrogateescape") as stream:
                texts[os.path.relpath(full, path)] = stream.read()
    return texts


class Tree:
    """The tree as it is and as it is wanted."""

    def __init__(self, path: str, files: dict[str, str]) -> None:
        self.path = path
        self.wanted = {name: MARK + text for name, text in files.items()}
        self.current = tree(path)
        for name in self.wanted:
            if os.path.isabs(name) or ".." in name.split("/") or not name.endswith(".lua"):
                raise RefusedError(f"{name}: not a path below {path} that ends in .lua")
            if name in self.current and not self._is_ours(name):
                raise RefusedError(
                    f"{path}/{name} was not written by Muster; move it away or leave its module "
                    "out of the definition"
                )

    def _is_ours(self, name: str) -> bool:
        return self.current[name].startswith(MARK)

    def _is_readable(self, name: str) -> bool:
        return os.stat(f"{self.path}/{name}").st_mode & 0o444 == 0o444

    @property
    def to_write(self) -> list[str]:
        """Modulefiles first, .modulerc.lua last: a default never points to what is not there."""
        names = [
            name
            for name, text in self.wanted.items()
            if self.current.get(name) != text or not self._is_readable(name)
        ]
        return sorted(names, key=lambda name: (name.endswith("/.modulerc.lua"), name))

    @property
    def to_remove(self) -> list[str]:
        """Defaults first, for the same reason."""
        names = [name for name in self.current if name not in self.wanted and self._is_ours(name)]
        return sorted(names, key=lambda name: (not name.endswith("/.modulerc.lua"), name))

    def diff(self) -> list[dict[str, str]]:
        """Return what publishing changes."""
        return [
            {
                "before_header": f"{self.path}/{name}",
                "after_header": f"{self.path}/{name}",
                "before": self.current.get(name, ""),
                "after": self.wanted.get(name, ""),
            }
            for name in self.to_write + self.to_remove
        ]

    def check(self, lmod: Lmod, loads: list[str]) -> None:
        """Let Lmod check the wanted files in a private folder, and load the changed ones of `loads`."""
        with tempfile.TemporaryDirectory(prefix="muster-modules-") as scratch:
            for name, text in self.wanted.items():
                write(f"{scratch}/{name}", text)
            changed = {*self.to_write}
            try:
                lmod.check(scratch)
                for name in loads:
                    if f"{name}.lua" in changed:
                        lmod.load(name, [scratch])
            except LmodError as error:
                said = str(error).replace(scratch, self.path)
                raise RefusedError(f"{self.path} is left as it was; Lmod refuses {said}") from error

    def publish(self) -> None:
        """Write and remove files; folders that this leaves empty are removed too."""
        os.makedirs(self.path, mode=0o755, exist_ok=True)
        for name in self.to_write:
            write(f"{self.path}/{name}", self.wanted[name])
        for name in self.to_remove:
            os.unlink(f"{self.path}/{name}")
            folder = os.path.dirname(name)
            while folder and not os.listdir(f"{self.path}/{folder}"):
                os.rmdir(f"{self.path}/{folder}")
                folder = os.path.dirname(folder)


def cache_source(lmod: Lmod, files: dict[str, str], watch: list[str], loads: list[str]) -> str:
    """Return the digest of all that the cache is built from, and of what is written beside it."""
    digest = hashlib.sha256(lmod.version.encode())
    for name, text in sorted(files.items()):
        for part in (name, text):
            data = part.encode(errors="surrogateescape")
            digest.update(f"{len(data)}:".encode() + data)
    for path in watch:
        there = os.path.exists(path) and not os.path.exists(f"{path}.building")
        digest.update(f"{path}={there};".encode())
    for name in loads:
        digest.update(f"{name} loads;".encode())
    return digest.hexdigest()


def cache_is_stale(cache: str, source: str) -> bool:
    """Whether the cache was built from other files, or was not completed."""
    try:
        with open(f"{cache}/source", encoding="utf-8") as stream:
            return stream.read() != f"{source}\n" or not os.path.exists(
                f"{cache}/cacheDir/spiderT.lua"
            )
    except FileNotFoundError:
        return True


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "files": {"type": "dict", "required": True},
            "cache": {"type": "path", "required": True},
            "loads": {"type": "list", "elements": "str", "default": []},
            "packages": {"type": "list", "elements": "str", "default": []},
            "watch": {"type": "list", "elements": "path", "default": []},
        },
        supports_check_mode=True,
    )
    os.umask(0o022)
    path: str = module.params["path"]
    cache: str = module.params["cache"]
    watch: list[str] = module.params["watch"]
    refuse_unavailable(module, [path, cache])
    # Nothing is written there, and what somebody else has filled may be away.
    refuse_silent(module, watch)
    refuse_missing(module, module.params["packages"])
    lmod = Lmod(run)
    changes: list[str] = []
    diff: list[dict[str, str]] = []
    stale = False
    try:
        wanted = Tree(path, module.params["files"])
        changes, diff = wanted.to_write + wanted.to_remove, wanted.diff()
        # In check mode on a fresh host Lmod, or what the role lmod writes, is still to come.
        if changes and (lmod.configured or not module.check_mode):
            # In check mode their folders are still to come.
            wanted.check(lmod, [] if module.check_mode else module.params["loads"])
        if not module.check_mode:
            wanted.publish()
        source = cache_source(lmod, tree(path), watch, module.params["loads"])
        stale = bool(changes) or cache_is_stale(cache, source)
        if stale and not module.check_mode:
            write(f"{cache}/loads", "".join(f"{name}\n" for name in module.params["loads"]))
            lmod.build_cache(path, cache)
            write(f"{cache}/source", f"{source}\n")
    except (RefusedError, LmodError) as error:
        module.fail_json(msg=str(error), diff=diff)
    except OSError as error:
        module.fail_json(
            msg=f"{error.filename}: {error.strerror}; the modulefiles there are whole, "
            "fix the cause and run again",
            diff=diff,
        )
    if stale:
        header = f"{cache} (spider cache)"
        diff.append(
            {
                "before_header": header,
                "after_header": header,
                "before": "stale\n",
                "after": "rebuilt\n",
            }
        )
    module.exit_json(
        changed=stale, paths=[f"{path}/{name}" for name in changes], cache_rebuilt=stale, diff=diff
    )


if __name__ == "__main__":
    main()
