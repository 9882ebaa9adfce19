# SPDX-License-Identifier: Apache-2.0
"""Commands, run side by side and never longer than their limit."""

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import IO

from .findings import Reading

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MOST_BYTES = 1 << 20
"""What is kept of a command's output."""
DEATH_S = 0.3
"""How long to wait for the end of killed processes."""


class Process(subprocess.Popen[bytes]):
    """A command whose output is read: Popen leaves open whether there is a stream for it."""

    stdout: IO[bytes]


class Commands:
    """Runs commands; what outlives its SIGKILL is written down in a folder.

    A process that waits in the kernel for a server or a driver can't be killed. It is left alone,
    and no second one is started until it has ended: they would pile up.
    """

    def __init__(self, folder: str, path: str = PATH) -> None:
        """Take the folder of what outlives a check, and where commands are found."""
        self.folder = folder
        self.environment = {"PATH": path, "LC_ALL": "C"}
        if "SLURM_CONF" in os.environ:
            self.environment["SLURM_CONF"] = os.environ["SLURM_CONF"]

    def run(self, commands: Mapping[str, Sequence[str]], seconds: float) -> dict[str, Reading]:
        """Return what became of each command, by its key; it takes hardly longer than `seconds`."""
        end = time.monotonic() + seconds
        readings: dict[str, Reading] = {}
        running: dict[str, Process] = {}
        for key, words in commands.items():
            if self._stuck(key):
                readings[key] = Reading(None)
                continue
            try:
                running[key] = self._start(words)
            except FileNotFoundError:
                readings[key] = Reading(None, missing=True)
            except OSError as error:
                readings[key] = Reading(126, str(error))
        texts = _read({key: process.stdout for key, process in running.items()}, end)
        late = {}
        for key, process in running.items():
            status = _wait(process, end)
            if status is None:
                late[key] = process
            else:
                readings[key] = Reading(status, texts[key].decode(errors="replace"))
            process.stdout.close()
        self._end(late)
        return readings | dict.fromkeys(late, Reading(None))

    def _start(self, words: Sequence[str]) -> Process:
        # In its own session: what it starts is killed with it.
        return Process(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self.environment,
            cwd="/",
            start_new_session=True,
        )

    def _end(self, late: Mapping[str, Process]) -> None:
        for process in late.values():
            os.killpg(process.pid, signal.SIGKILL)
        end = time.monotonic() + DEATH_S
        for key, process in late.items():
            if _wait(process, end) is None:
                os.makedirs(self.folder, mode=0o755, exist_ok=True)
                with open(self._note(key), "w", encoding="utf-8") as file:
                    file.write(f"{process.pid} {_begin(process.pid)}")

    def _stuck(self, key: str) -> bool:
        """Whether an earlier run of this command is still there."""
        try:
            with open(self._note(key), encoding="utf-8") as file:
                pid, begin = file.read().split()
        except (FileNotFoundError, ValueError):
            return False
        return begin == _begin(pid)

    def _note(self, key: str) -> str:
        return f"{self.folder}/stuck-{key.replace('/', '%')}"


def _read(streams: Mapping[str, IO[bytes]], end: float) -> dict[str, bytearray]:
    """Return what came out of each stream until all are closed, or the time is `end`."""
    texts = {key: bytearray() for key in streams}
    with selectors.DefaultSelector() as selector:
        for key, stream in streams.items():
            selector.register(stream, selectors.EVENT_READ, key)
        while selector.get_map() and (left := end - time.monotonic()) > 0:
            for ready, _ in selector.select(left):
                part = os.read(ready.fd, 65536)
                if not part:
                    selector.unregister(ready.fileobj)
                elif len(texts[ready.data]) < MOST_BYTES:
                    texts[ready.data] += part
    return texts


def _wait(process: Process, end: float) -> int | None:
    """Return the exit status; None if there is none at the time `end`."""
    try:
        return process.wait(timeout=max(0.0, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        return None


def _begin(pid: int | str) -> str:
    """Return when a process began, by proc(5): with the pid it identifies the process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # Its name, in brackets, may hold anything.
            return file.read().rpartition(")")[2].split()[19]
    except (FileNotFoundError, ProcessLookupError):
        return "gone"
