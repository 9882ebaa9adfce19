# SPDX-License-Identifier: Apache-2.0
"""What a mount unit says, and what the kernel's table of mounts does; pure."""

import re
from collections.abc import Callable
from typing import NamedTuple

# At a boot servers may come up later than their clients. Until then they wait; people can't log
# in, and slurmd does not start. After that the unit fails, and people can.
BOOT_MINUTES = 10

UNIT = """\
{mark}[Unit]
Description=Shared folder {path}

[Mount]
What={source}
Where={path}
Type={type}
Options={options},{waits}
TimeoutSec={seconds}

[Install]
WantedBy=remote-fs.target
"""


class Protocol(NamedTuple):
    """What differs between file systems of the network."""

    mark: str
    """First line of its units, by which those are found that are no longer asked for."""
    kinds: tuple
    """Types that the kernel's table has for it."""
    shown: re.Pattern
    """Options that the kernel's table shows as they were given."""
    waits: str
    """Option that bounds how long a boot waits for the server."""
    words: re.Pattern
    """What mount says of a failure, in its log."""
    servers: Callable
    """Mount -> hosts of which one has to answer."""
    port: int
    away: str
    """What to do about servers that don't answer."""
    refused: str
    """What to ask where they do, and the mount fails."""


def unit_name(path):
    """Return the name that systemd demands of the mount unit of `path` (systemd-escape(1))."""
    escaped = "".join(
        char if re.match(r"[A-Za-z0-9_.:]", char) else "-" if char == "/" else f"\\x{ord(char):02x}"
        for char in path.strip("/")
    )
    # A leading dot would be a hidden file.
    return (escaped if not escaped.startswith(".") else "\\x2e" + escaped[1:]) + ".mount"


def unit_text(protocol, mount):
    """Return the unit of `mount`."""
    literal = {key: value.replace("%", "%%") for key, value in mount.items()}
    seconds = 60 * BOOT_MINUTES
    return UNIT.format(mark=protocol.mark, waits=protocol.waits, seconds=seconds, **literal)


def mounted(table):
    """Return mount point -> (type, source, set of options) of a /proc/self/mountinfo."""
    found = {}
    for line in table.splitlines():
        own, _, of_system = line.partition(" - ")
        path, own_options = own.split()[4:6]
        kind, source, options = of_system.split()[:3]
        # proc_pid_mountinfo(5): space, tab, newline and backslash are in octal. The last one wins.
        path = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), path)
        # The mount's own rw or ro is what counts, not that of the connection it shares.
        shared = {option for option in options.split(",") if option not in ("rw", "ro")}
        found[path] = (kind, source, shared | {*own_options.split(",")})
    return found


def missing_options(shown, wanted, actual):
    """Return the options of `wanted` (text) that a mount with `actual` (set) shows not to have.

    `shown`: which options the kernel's table shows as they were given.
    """
    return [word for word in wanted.split(",") if shown.fullmatch(word) and word not in actual]
