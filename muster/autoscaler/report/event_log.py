"""The event log: one line of JSON for each thing that happened to a node.

logrotate may move the file away at any time: the next line goes to a new one. A log that can't be
written never stops the daemon, which says so once in its own log.
"""

import errno
import json
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Any

EVENTS = Path("/var/log/muster/autoscaler-events.jsonl")
MOST_BYTES = 500_000_000
"""A larger file gets no more lines: logrotate, which runs once a day, has not rotated it."""

log = logging.getLogger(__name__)


class _Handler(WatchedFileHandler):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802, ARG002 (logging's)
        """Raise the error instead of printing it."""
        _, error, _ = sys.exc_info()
        if error:
            raise error


class EventLog:
    """The file; `delay`: it is created with its first line."""

    def __init__(self, path: Path = EVENTS) -> None:
        self.path = path
        self._handler = _Handler(path, encoding="utf-8", delay=True)
        self._works = True

    def write(self, at: float, lines: Sequence[Mapping[str, Any]]) -> None:
        """Write what happened at one time, at once; empty facts are left out."""
        if not lines:
            return
        time = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
        head = {"time": time.replace("+00:00", "Z")}
        text = "\n".join(
            json.dumps(head | {key: fact for key, fact in line.items() if fact not in ("", None)})
            for line in lines
        )
        record = logging.LogRecord(__name__, logging.INFO, "", 0, text, None, None)
        try:
            if self.path.exists() and self.path.stat().st_size > MOST_BYTES:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
            self._handler.emit(record)
        except OSError as error:
            if self._works:
                log.error("%s can't be written: %s; events are lost until it can", self.path, error)
            self._works = False
        else:
            self._works = True

    def close(self) -> None:
        """Close the file."""
        self._handler.close()
