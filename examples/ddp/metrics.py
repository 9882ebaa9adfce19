"""Losses in a file of JSON lines, which `muster-job` shows: each step once, also of several runs.

A run that goes on from a checkpoint does steps again that the run before it has written down. Their
lines go before it begins, and so does a half line of a run that was killed.
"""

import json
import os
from pathlib import Path


class Metrics:
    """The file of a training; one process alone writes it.

    Args:
        path: Where it is; lines of others in it stay.

    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def begin(self, done: int) -> None:
        """Leave out what is written of steps after those that are done; whole or not at all."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return
        lines = content.split(b"\n")
        # What is after the last end of a line is half a line, or nothing.
        kept = b"".join(line + b"\n" for line in lines[:-1] if _step(line) <= done)
        if kept == content:
            return
        new = self.path.with_name(f"{self.path.name}.new")
        with new.open("wb") as file:
            file.write(kept)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path)

    def add(self, step: int, **numbers: float) -> None:
        """Append a line, in one write: who reads meanwhile sees no half of it."""
        line = f"{json.dumps({'step': step, **numbers})}\n".encode()
        try:
            file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            try:
                os.write(file, line)
            finally:
                os.close(file)
        except OSError as error:
            # It ends no training, which may still save.
            why = f"{self.path} can't be written ({error.strerror})"
            print(f"{why}: the loss of step {step} is left out", flush=True)


def _step(line: bytes) -> int:
    """Return the step of a line; 0: it is of none, such as bytes that a crashed node has left."""
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return 0
