"""SLURM's notation of time limits."""

import re

_DAYS = re.compile(r"([0-9]{1,18})-([0-9]{1,18})(?::([0-9]{1,18}))?(?::([0-9]{1,18}))?")
_CLOCK = re.compile(r"([0-9]{1,18})(?::([0-9]{1,18}))?(?::([0-9]{1,18}))?")
ENDLESS = ("UNLIMITED", "INFINITE")
LONGEST = 2**31 - 1
"""Seconds, 24855 days: time_str2secs in src/common/parse_time.c counts them in an int."""


class TimeError(ValueError):
    """A time that SLURM can't read."""


def seconds(text: str) -> float:
    """Seconds of a time limit of SLURM; infinity for UNLIMITED.

    `minutes`, `minutes:seconds`, `hours:minutes:seconds`, `days-hours`, `days-hours:minutes`,
    `days-hours:minutes:seconds` (sbatch(1), --time). Raises TimeError.
    """
    if text.upper() in ENDLESS:
        return float("inf")
    if match := _DAYS.fullmatch(text):
        days, hours, minutes, secs = (int(part or 0) for part in match.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + secs
    if match := _CLOCK.fullmatch(text):
        first, second, third = match.groups()
        if third is not None:
            return (int(first) * 60 + int(second)) * 60 + int(third)
        return int(first) * 60 + int(second or 0)
    raise TimeError(text)
