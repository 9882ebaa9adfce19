"""Writes changes of one resource together if they come within a short time."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Change = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass
class Batch:
    """Changes that wait to be written together."""

    changes: list[Change] = field(default_factory=list)
    written: threading.Event = field(default_factory=threading.Event)
    failure: Exception | None = None


class Batches:
    """Collects changes by resource; the thread of the first one waits, then writes all.

    Args:
        delay: seconds to wait for more.

    """

    def __init__(self, delay: float) -> None:
        self.delay = delay
        self.lock = threading.Lock()
        self.waiting: dict[str, Batch] = {}

    def join(self, name: str, change: Change, write: Callable[[list[Change]], None]) -> None:
        """Add a change, and return when it is written.

        Raises:
            Exception: writing failed; all that waited get the same one.

        """
        with self.lock:
            first = name not in self.waiting
            batch = self.waiting.setdefault(name, Batch())
            batch.changes.append(change)
        if first:
            time.sleep(self.delay)
            with self.lock:
                del self.waiting[name]
            try:
                write(batch.changes)
            except Exception as failure:  # each waiting thread raises it
                batch.failure = failure
            batch.written.set()
        batch.written.wait()
        if batch.failure:
            raise batch.failure
