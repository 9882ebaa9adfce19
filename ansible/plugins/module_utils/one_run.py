# SPDX-License-Identifier: Apache-2.0
"""One run at a time: of two administrators the second waits until the first is done."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ansible_collections.muster.slurm.plugins.module_utils.refused_error import RefusedError

FOLDER = "/run"
"""Of locks; only root writes there, so nobody else can hold one."""
SECONDS = 120
"""How long to wait for another run."""
PAUSE = 0.2


@contextmanager
def one_run(name: str, what: str) -> Iterator[None]:
    """Hold the lock `name` of this host while `what` is read and changed.

    Raises:
        RefusedError: another run has held it for too long.

    """
    path = f"{FOLDER}/muster-{name}.lock"
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    deadline = time.monotonic() + SECONDS
    try:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise RefusedError(
                        f"another run has been changing {what} for {SECONDS} s (process "
                        f"{os.pread(lock, 20, 0).decode()} of this host): wait for it or end it, "
                        "and run again"
                    ) from None
                time.sleep(PAUSE)
        os.truncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(lock)
