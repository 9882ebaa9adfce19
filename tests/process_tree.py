"""Kill a program with all that it has started.

Its process group is not enough: each of Ansible's workers has its own session
(ansible/executor/process/worker.py, _detach).
"""

from contextlib import suppress

import psutil


def kill(pid: int) -> None:
    """SIGKILL a process and its descendants; nothing happens if it has ended.

    Those of another user, which sudo has started, end by themselves: their pipes are closed.
    """
    try:
        root = psutil.Process(pid)
    except psutil.NoSuchProcess:
        return
    stopped: set[psutil.Process] = set()
    # What is stopped starts no more processes.
    while running := {root, *root.children(recursive=True)} - stopped:
        for process in running:
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                process.suspend()
        stopped |= running
    for process in stopped:
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            process.kill()
