#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Build what modules point to, where it is missing."""

import json
import os
import select
import subprocess
import sys
from typing import TypedDict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.muster.slurm.plugins.module_utils.build_log import log_of
from ansible_collections.muster.slurm.plugins.module_utils.installed_packages import (
    refuse_missing,
)
from ansible_collections.muster.slurm.plugins.module_utils.refused_error import RefusedError
from ansible_collections.muster.slurm.plugins.module_utils.release_system import (
    other_system,
    this_system,
)
from ansible_collections.muster.slurm.plugins.module_utils.shared_folders import refuse_unavailable
from ansible_collections.muster.slurm.plugins.module_utils.whole_file import write

DOCUMENTATION = r"""
module: software_build
short_description: Build the software that is missing from its folder
description:
  - Runs the build command of each installation whose folder does not exist, in the given order.
  - The program C(muster-build) runs each command as an account of its own that can write to that folder
    alone. The role C(software) installs the program, and makes the account.
  - Programs such as virtual environments can't be moved, so each is built in its final folder. As long as
    that takes, a file C(FOLDER.building) lies beside it. If the file is there without a builder that
    holds its lock, a build was killed; its remains are removed and it is built again.
  - A build that fails leaves nothing behind. What exists is never touched.
  - A release with an image becomes a link when it is complete. C(muster-build) packs it into that file, and each host
    mounts the file when somebody enters the folder.
  - A release that was built on another distribution, another version of it or another architecture is refused.
  - Beside the folder of a release is C(FOLDER.json), which says what C(muster-software) needs to roll back
    to it and to know when nobody needs it any more, and C(FOLDER.txt) with requirements, if its command reads them.
  - Where the server of a folder does not answer it ends within a bound.
  - Fails where the file system of a folder should be mounted and is not, by C(/etc/fstab), an enabled unit of systemd or
    C(muster-file-systems); in check mode it warns.
  - A sentence says of each build where its log is, and one each minute how long it takes and what its log ends with.
options:
  installations:
    description: What to build.
    type: list
    elements: dict
    required: true
    suboptions:
      root:
        description: Where the command puts the software. The command finds it empty.
        type: path
        required: true
      build:
        description: Command for /bin/sh. Without one the module leaves the folder alone.
        type: str
      verify:
        description: Command for /bin/sh, run after O(installations[].build), that ends with 0 if what was built works.
        type: str
      module:
        description: Name and version of the module that points to the folder.
        type: str
        default: ""
      is_release:
        description: Whether the folder is made from a definition, by this module or by hand.
        type: bool
        default: false
      image:
        description: File that the folder is packed into.
        type: path
      requirements:
        description: Text for C(FOLDER.txt).
        type: str
      built_on:
        description: Other releases that must stay as long as this one.
        type: list
        elements: path
        default: []
  modulefiles:
    description: Path below the module tree of each modulefile, with its text; the release of a module keeps its own.
    type: dict
    default: {}
  packages:
    description:
      - Packages of the distribution, PACKAGE or PACKAGE=VERSION, that modules need at run time. The module fails where one is
        missing on this host; in check mode it warns.
    type: list
    elements: str
    default: []
  timeout_seconds:
    description: How long one build may take.
    type: int
    default: 3600
  told:
    description:
      - Folders that may be built. Before another one is built the module ends, and returns it as RV(next). Without it
        all may be built.
      - Its action plugin gives it, which says what is built before it is. What a playbook gives is not used.
    type: list
    elements: path
author: [The Muster authors]
"""

EXAMPLES = r"""
- name: Build the software
  muster.slurm.software_build:
    installations:
      - root: /apps/software/apps/python/3.11
        build: python3.11 -m venv /apps/software/apps/python/3.11
"""

RETURN = r"""
paths:
  description: The folders that were built, or would be in check mode.
  type: list
  elements: str
  returned: always
next:
  description: The folder that O(told) lacks, with the module that points to it and the log of its build.
  type: dict
  returned: to the action plugin
"""


class Installation(TypedDict):
    """A folder, and the command that fills it; without one somebody makes it by hand."""

    root: str
    build: str | None
    verify: str | None
    module: str
    is_release: bool
    image: str | None
    requirements: str | None
    built_on: list[str]


def is_missing(entry: Installation) -> bool:
    """Whether the folder has to be built. Nothing is mounted for this look."""
    root, image = entry["root"], entry["image"]
    there = os.path.isdir(root) if image is None else os.path.islink(root) and os.path.isfile(image)
    return not there or os.path.exists(f"{root}.building")


def differs(path: str, text: str) -> bool:
    """Whether a file has another text, or is not there."""
    try:
        with open(path, encoding="utf-8") as stream:
            return stream.read() != text
    except FileNotFoundError:
        return True


def manifest(entry: Installation, modulefiles: dict[str, str]) -> str:
    """Return what is beside a release: whose it is, what it needs, how users got to it.

    Raises:
        OSError: the host does not say which distribution it has.

    """
    facts = {
        "module": entry["module"],
        "built_on": entry["built_on"],
        "system": this_system(),
        "modulefile": modulefiles.get(f"{entry['module']}.lua", ""),
    }
    return json.dumps(facts, indent=1, sort_keys=True) + "\n"


def refuse_other_system(root: str) -> None:
    """Refuse a release that was built on another distribution or architecture.

    One that was built by hand has no file beside it yet: it is of this host.

    Raises:
        RefusedError: it was, or what is beside it does not say on which.
        OSError: that can't be read.

    """
    try:
        with open(f"{root}.json", encoding="utf-8") as stream:
            built_on = json.load(stream).get("system", "")
    except FileNotFoundError:
        return
    sentence = other_system(root, built_on)
    if sentence is not None:
        # One that does not say it may be of the very system that the definition names.
        other = (
            "name the system of the hosts as `os` in the definition, which has a release of its "
            "own for each, or, "
        )
        raise RefusedError(
            f"{sentence}; {other if built_on else ''}if no job uses it, remove {root} and "
            f"{root}.json; then run again"
        )


def build(words: list[str]) -> None:
    """Run the program that builds. Raises RefusedError with what it says if it fails."""
    with subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        # A pipe: if this process is killed, the program notices.
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as process:
        while True:
            try:
                _, said = process.communicate(timeout=1)
                break
            except subprocess.TimeoutExpired:
                if not is_heard():
                    process.terminate()
    if process.returncode != 0:
        raise RefusedError(said.strip() or f"{words[0]} ended with {process.returncode}")


class Run:
    """What is done for each folder, one after the other: what was built stays, whatever comes."""

    def __init__(
        self, module: AnsibleModule, entries: list[Installation], modulefiles: dict[str, str]
    ) -> None:
        self._entries, self._modulefiles = entries, modulefiles
        self._check_mode = module.check_mode
        self._timeout_seconds: int = module.params["timeout_seconds"]
        self._told: list[str] | None = module.params["told"]
        self._program: str | None = module.get_bin_path(
            "muster-build", opt_dirs=["/usr/local/sbin"]
        )
        self.built: list[str] = []
        """Folders."""
        self.written: list[str] = []
        """Files beside them."""
        self.next: dict[str, str] | None = None
        """What the caller must know before it is built."""

    def all(self) -> None:
        """Do all of it, or what comes before `next`. Raises RefusedError or OSError."""
        for entry in self._entries:
            root = entry["root"]
            if entry["requirements"] is not None:
                self._write(f"{root}.txt", entry["requirements"])
            if entry["build"] is not None and is_missing(entry):
                if not self._check_mode:
                    if self._told is not None and root not in self._told:
                        module = entry["module"]
                        self.next = {"root": root, "module": module, "log": log_of(root)}
                        return
                    self._build(entry, entry["build"])
                self.built.append(root)
            # By hand it may be built later.
            if entry["is_release"] and (root in self.built or not is_missing(entry)):
                if root not in self.built:
                    refuse_other_system(root)
                self._write(f"{root}.json", manifest(entry, self._modulefiles))

    def _build(self, entry: Installation, command: str) -> None:
        if self._program is None:
            raise RefusedError(
                "there is no program muster-build on this host; run the role software, which "
                "installs it"
            )
        options = ["--timeout", str(self._timeout_seconds)]
        if entry["verify"] is not None:
            options += ["--verify", entry["verify"]]
        if entry["image"] is not None:
            options += ["--image", entry["image"]]
        build([self._program, *options, entry["root"], command])

    def _write(self, path: str, text: str) -> None:
        if differs(path, text):
            if not self._check_mode:
                write(path, text)
            self.written.append(path)


def is_heard() -> bool:
    """Whether Ansible still reads the result: not if it or its connection has ended."""
    poller = select.poll()
    # Without an event to wait for it reports errors only.
    poller.register(sys.stdout.fileno(), 0)
    return not poller.poll(0)


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "installations": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "root": {"type": "path", "required": True},
                    "build": {"type": "str"},
                    "verify": {"type": "str"},
                    "module": {"type": "str", "default": ""},
                    "is_release": {"type": "bool", "default": False},
                    "image": {"type": "path"},
                    "requirements": {"type": "str"},
                    "built_on": {"type": "list", "elements": "path", "default": []},
                },
            },
            "modulefiles": {"type": "dict", "default": {}},
            "packages": {"type": "list", "elements": "str", "default": []},
            "timeout_seconds": {"type": "int", "default": 3600},
            "told": {"type": "list", "elements": "path"},
        },
        supports_check_mode=True,
    )
    installations: list[Installation] = module.params["installations"]
    # Nothing of Muster's is in other folders.
    ours = [entry for entry in installations if entry["is_release"] or entry["build"] is not None]
    # A look into a packed release would mount it.
    refuse_unavailable(module, [entry["image"] or entry["root"] for entry in ours])
    refuse_missing(module, module.params["packages"])
    run = Run(module, ours, module.params["modulefiles"])
    try:
        run.all()
    except RefusedError as error:
        module.fail_json(msg=str(error), paths=run.built)
    except OSError as error:
        module.fail_json(
            msg=f"{error.filename}: {error.strerror}; what was built before stays, and users load "
            "what they did: fix the cause and run again",
            paths=run.built,
        )
    module.exit_json(
        changed=bool(run.built or run.written),
        paths=run.built,
        diff=[
            {
                "before_header": path,
                "after_header": path,
                "before": "absent\n",
                "after": f"{what}\n",
            }
            for what, paths in (("built", run.built), ("written", run.written))
            for path in paths
        ],
        **({"next": run.next} if run.next else {}),
    )


if __name__ == "__main__":
    main()
