# SPDX-License-Identifier: Apache-2.0
"""Times and sizes as SLURM writes them, and as people read them."""

import math
import re

_SIZES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50}


def seconds(text: str) -> float:
    """Return the seconds of SLURM's [DD-[HH:]]MM:SS[.mmm]; 0 if it is none."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)", text)
    if not match:
        return 0.0
    days, hours, minutes, rest = (float(part or 0) for part in match.groups())
    return days * 86400 + hours * 3600 + minutes * 60 + rest


def duration(total: float) -> str:
    """Return seconds as SLURM writes them."""
    days, rest = divmod(int(total), 86400)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock


def size(text: str) -> float:
    """Return the bytes of SLURM's 512000K, 8G and the like; 0 if it is none."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGTP]?)", text)
    return float(match[1]) * _SIZES[match[2]] if match else 0.0


def shown(amount: float) -> str:
    """Return bytes in MiB below one GiB, else in GiB."""
    if amount < 2**30:
        return f"{amount / 2**20:.0f} MiB" if amount >= 10 * 2**20 else f"{amount / 2**20:.1f} MiB"
    return f"{amount / 2**30:.2f} GiB"


def option(amount: float) -> str:
    """Return bytes as --mem takes them, rounded up: whole G, below 4 of them hundreds of M."""
    if amount >= 4 * 2**30:
        return f"{math.ceil(amount / 2**30)}G"
    return f"{math.ceil(amount / 2**20 / 100) * 100}M"


def number(text: str) -> int:
    """Return a whole number; 0 if it is none, as where sacct has no value."""
    return int(text) if text.isascii() and text.isdigit() else 0
