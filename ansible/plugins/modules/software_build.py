#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Build what modules point to, where it is missing."""

import os
import select
import subprocess
import sys
from typing import TypedDict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.muster.slurm.plugins.module_utils.refused_error import RefusedError
from ansible_collections.muster.slurm.plugins.module_utils.shared_folders import refuse_silent

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
  - Where the server of a folder does not answer it ends within a bound.
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
    """A folder, and the command that fills it; without one somebody makes it by hand."""

    root: str
    build: str | None


def is_missing(root: str) -> bool:
    """Whether `root` has to be built."""
    return not os.path.isdir(root) or os.path.exists(f"{root}.building")


def build(program: str, root: str, command: str, timeout_seconds: int) -> None:
    """Have `program` run `command`, which fills the folder `root`. Raises RefusedError."""
    with subprocess.Popen(
        [program, "--timeout", str(timeout_seconds), root, command],
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
        raise RefusedError(said.strip() or f"{program} ended with {process.returncode}")


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
                "options": {"root": {"type": "path", "required": True}, "build": {"type": "str"}},
            },
            "timeout_seconds": {"type": "int", "default": 3600},
        },
        supports_check_mode=True,
    )
    installations: list[Installation] = module.params["installations"]
    to_build = [
        (entry["root"], entry["build"]) for entry in installations if entry["build"] is not None
    ]
    refuse_silent(module, [root for root, _ in to_build])
    missing = [(root, command) for root, command in to_build if is_missing(root)]
    built: list[str] = []
    program: str | None = module.get_bin_path("muster-build", opt_dirs=["/usr/local/sbin"])
    try:
        for root, command in missing:
            if not module.check_mode:
                if program is None:
                    raise RefusedError(
                        "there is no program muster-build on this host; run the role software, "
                        "which installs it"
                    )
                build(program, root, command, module.params["timeout_seconds"])
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
