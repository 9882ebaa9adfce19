# SPDX-License-Identifier: Apache-2.0
"""How far long work is, on standard error: a line that changes, in a log one every half minute."""

import sys
import time

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_TERMINAL_S = 0.5
_LOG_S = 30.0


def amount(size: float) -> str:
    """Return a number of bytes for people, such as 1.5 GiB."""
    for unit in _UNITS[:-1]:
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} {_UNITS[-1]}"


def plain(text: str) -> str:
    """Return a text on one line, without characters that would control a terminal.

    What is printed is also from files that others write: provenances, names in a folder.
    """
    return "".join(letter if letter.isprintable() else " " for letter in text)


def tell(text: str) -> None:
    """Print a line of an answer, on standard output."""
    print(plain(text))


def say(text: str) -> None:
    """Print a line for people, also among those of a progress."""
    print(plain(text), file=sys.stderr, flush=True)


class Progress:
    """Counts the bytes of one piece of work and now and then prints how many have come."""

    def __init__(self, what: str, total: int) -> None:
        """Begin; `total` 0: how many bytes there will be is not known."""
        self._what, self._total = plain(what), total
        self._done = 0
        self._is_terminal = sys.stderr.isatty()
        self._every = _TERMINAL_S if self._is_terminal else _LOG_S
        self._began = self._shown = time.monotonic()

    def add(self, size: int) -> None:
        """Count `size` bytes more, or fewer where they have to come again."""
        self._done += size
        now = time.monotonic()
        if now - self._shown < self._every:
            return
        self._shown = now
        speed = self._done / max(now - self._began, 0.001)
        text = f"{self._what}: {amount(self._done)}"
        if self._total:
            text += f" of {amount(self._total)} ({100 * self._done // self._total} %)"
        end = "   \r" if self._is_terminal else "\n"
        print(f"{text}, {amount(speed)}/s", end=end, file=sys.stderr, flush=True)
