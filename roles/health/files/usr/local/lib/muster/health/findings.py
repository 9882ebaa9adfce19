# SPDX-License-Identifier: Apache-2.0
"""What a command said, and what follows from it."""

from typing import NamedTuple

HEALTHY, UNCHECKED, BROKEN = "healthy", "unchecked", "broken"


class Reading(NamedTuple):
    """What became of a command."""

    status: int | None
    """Its exit status; None: it is not installed, or did not answer in time."""
    text: str = ""
    """What it printed, errors too."""
    missing: bool = False
    """Whether it is not installed."""

    @property
    def late(self) -> bool:
        """Whether it did not answer in time."""
        return self.status is None and not self.missing


class Finding(NamedTuple):
    """What is known of one thing."""

    check: str
    """What was looked at, such as `gpus`."""
    state: str
    """HEALTHY, UNCHECKED or BROKEN."""
    why: str
    """One sentence."""


def one_line(text: str, most: int = 120) -> str:
    """Return a text on one line, without what moves the cursor, and no longer than `most`."""
    plain = "".join(letter if letter.isprintable() else " " for letter in text)
    return " ".join(plain.split())[:most]


def unchecked(check: str, reading: Reading, program: str) -> Finding:
    """Return the finding of a program that said nothing of use."""
    return Finding(check, UNCHECKED, failure(reading, program))


def failure(reading: Reading, program: str) -> str:
    """Return why a program did not do what it was run for."""
    if reading.missing:
        return f"{program} is not installed"
    if reading.late:
        return f"{program} does not answer"
    return f"{program}: {one_line(reading.text) or f'exit status {reading.status}'}"
