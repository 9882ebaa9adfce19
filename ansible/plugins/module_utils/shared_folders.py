# SPDX-License-Identifier: Apache-2.0
"""Whether folders that may be on a server answer; a separate process asks, as it may hang."""

import os
import subprocess
from collections.abc import Iterable

from ansible.module_utils.basic import AnsibleModule

SECONDS = 60
"""Of one access. A client tries a server that was away again after 3 s, then after twice as long each
time (net/sunrpc/xprtsock.c), so this spans a restart."""


def silent(path: str) -> str | None:
    """Return what does not answer: `path`, or what lies above it where it is missing; else None.

    The server is asked each time, by AT_STATX_FORCE_SYNC of statx(2).
    """
    while True:
        look = subprocess.Popen(
            ["stat", "--cached=never", "--dereference", path],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            code = look.wait(SECONDS)
        except subprocess.TimeoutExpired:
            # Not waited for again: in the kernel it may hang for as long as the server is away.
            look.kill()
            return path
        above = os.path.dirname(path)
        if code == 0 or above == path:
            return None
        path = above


def refuse_silent(module: AnsibleModule, paths: Iterable[str]) -> None:
    """End the task at the first of `paths` that does not answer."""
    for path in paths:
        folder = silent(path)
        if folder is not None:
            module.fail_json(
                msg=f"{folder} does not answer within {SECONDS} s; bring the server that has it "
                "back, and run again"
            )
