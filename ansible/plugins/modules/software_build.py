#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Build what modules point to, where it is missing."""

import fcntl
import os
import shutil
import signal
import subprocess
from typing import TypedDict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.muster.slurm.plugins.module_utils.refused_error import RefusedError
from ansible_collections.muster.slurm.plugins.module_utils.shared_folders import refuse_silent

DOCUMENTATION = r"""
module: software_build
short_description: Build the software that is missing from its folder
description:
  - Runs the build command of each installation whose folder does not exist, in the given order.
  - Programs such as virtual environments can't be moved, so each is built in its final folder. As long as
    that takes, a file C(FOLDER.building) lies beside it. If the file is there without a builder that
    holds its lock, a build was killed; its remains are removed and it is built again.
  - A build that fails leaves nothing behind. What exists is never touched.
  - Where the server of a folder does not answer it ends within a bound.
options:
  installations:
    description: What to build.
    type: list
    elements: dict
    required: true
    suboptions:
      root:
        description: The folder that the command makes.
        type: path
        required: true
      build:
        description: Command for /bin/sh. Without one the module leaves the folder alone.
        type: str
  timeout_seconds:
    description: How long one build may take.
    type: int
    default: 3600
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
"""


class Installation(TypedDict):
    """A folder, and the command that makes it; without one somebody makes it by hand."""

    root: str
    build: str | None


def is_missing(root: str) -> bool:
    """Whether `root` has to be built."""
    return not os.path.isdir(root) or os.path.exists(f"{root}.building")


def build(root: str, command: str, timeout_seconds: float) -> None:
    """Run `command`, which makes the folder `root`. Raises RefusedError or OSError."""
    mark = f"{root}.building"
    os.makedirs(os.path.dirname(root), mode=0o755, exist_ok=True)
    with open(mark, "w", encoding="utf-8") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RefusedError(
                f"{root} is being built by another run; wait for it, then run again"
            ) from None
        shutil.rmtree(root, ignore_errors=True)
        said = run(command, timeout_seconds)
        if said is None and not os.path.isdir(root):
            said = "the command ended well, but made no such folder"
        if said is not None:
            shutil.rmtree(root, ignore_errors=True)
        os.unlink(mark)
    if said is not None:
        raise RefusedError(
            f"{root} was not built and nothing is left of it: {said}; fix the command `{command}` "
            "and run again, or set `built: false` to build it by hand"
        )


def run(command: str, timeout_seconds: float) -> str | None:
    """Run `command`; return None, or what went wrong."""
    process = subprocess.Popen(
        ["/bin/sh", "-ec", command],
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        out, _ = process.communicate(timeout=timeout_seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return f"it did not end within {timeout_seconds} s"
    last_words = " / ".join(line.strip() for line in out.splitlines()[-5:] if line.strip())
    return f"exit status {process.returncode}: {last_words}" if process.returncode else None


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "installations": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {"root": {"type": "path", "required": True}, "build": {"type": "str"}},
            },
            "timeout_seconds": {"type": "int", "default": 3600},
        },
        supports_check_mode=True,
    )
    os.umask(0o022)
    installations: list[Installation] = module.params["installations"]
    to_build = [
        (entry["root"], entry["build"]) for entry in installations if entry["build"] is not None
    ]
    refuse_silent(module, [root for root, _ in to_build])
    missing = [(root, command) for root, command in to_build if is_missing(root)]
    built: list[str] = []
    try:
        for root, command in missing:
            if not module.check_mode:
                build(root, command, module.params["timeout_seconds"])
            built.append(root)
    except RefusedError as error:
        module.fail_json(msg=str(error), paths=built)
    except OSError as error:
        module.fail_json(msg=f"{error.filename}: {error.strerror}", paths=built)
    module.exit_json(
        changed=bool(built),
        paths=built,
        diff=[
            {"before_header": root, "after_header": root, "before": "absent\n", "after": "built\n"}
            for root in built
        ],
    )


if __name__ == "__main__":
    main()
