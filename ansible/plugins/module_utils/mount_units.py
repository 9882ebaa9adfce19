# SPDX-License-Identifier: Apache-2.0
"""What a mount unit says; pure."""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

# At a boot servers may come up later than their clients. Clients wait for so long; people can't
# log in, and slurmd does not start. After that the unit fails, people can log in, and AGAIN retries.
BOOT_SECONDS = 600

# Where a folder is mounted when somebody enters it, each access waits for this long, and a login
# takes 6 of them, with a shell 19 (bash on Debian 12). A mount takes less than a second.
ENTRY_SECONDS = 10

UNIT = """\
{mark}[Unit]
Description=Shared folder {path}
{again}
[Mount]
What={source}
Where={path}
Type={type}
Options={options},{waits}
TimeoutSec={seconds}
"""

# systemd tries a mount once, and mount.nfs does not retry what it takes for lasting, such as
# "Network is unreachable" of a host whose network comes up late: nfs_is_permanent_error() in
# nfs-utils' utils/mount/stropts.c.
AT_BOOT = "OnFailure=muster-mount-again@%N.service\n"

# With a limit of tries systemd removes the automount, and people write below the mount point:
# automount_trigger_notify() in systemd's src/core/automount.c.
ON_ENTRY = "StartLimitIntervalSec=0\n"

# No order after the network: systemd.automount(5).
AUTOMOUNT = """\
{mark}[Unit]
Description=Shared folder {path}, when somebody enters it

[Automount]
Where={path}
"""

# First line of all units that Muster writes for mounts, for any protocol.
MARK = "# Written by Muster"

AGAIN_NAME = "muster-mount-again@.service"
AGAIN = """\
# Written by Muster for its mounts: changes here are lost
[Unit]
Description=More tries to mount %f

[Service]
Type=oneshot
# And what needs the mount: systemd does not start it later by itself.
ExecStart=/bin/sh -c 'systemctl start "$$0" $$(systemctl show -P RequiredBy "$$0")' %i.mount
Restart=on-failure
RestartSec=30
"""

INSTALL = """
[Install]
WantedBy=remote-fs.target
"""


Mount = Mapping[str, str]
"""source, path, type and options of a mount."""


class Protocol(NamedTuple):
    """What differs between network file systems."""

    mark: str
    """First line of its units, by which unwanted ones are recognised."""
    kinds: tuple[str, ...]
    """Types that the kernel's table has for it."""
    shown: re.Pattern[str]
    """Options that the kernel's table shows as they were given."""
    waits: Callable[[int], str]
    """Seconds -> option that bounds how long a mount waits for the server."""
    words: re.Pattern[str]
    """What mount says of a failure, in its log."""
    servers: Callable[[Mount], list[str]]
    """Mount -> hosts of which one has to answer."""
    port: int
    away: str
    """What to do about servers that don't answer."""
    refused: str
    """What to check where they do, and the mount fails."""


def unit_text(protocol: Protocol, mount: Mount, on_entry: bool = False) -> str:
    """Return the unit of `mount`, for a boot or for who enters the folder first."""
    literal = {key: value.replace("%", "%%") for key, value in mount.items()}
    seconds = ENTRY_SECONDS if on_entry else BOOT_SECONDS
    text = UNIT.format(
        mark=protocol.mark,
        again=ON_ENTRY if on_entry else AT_BOOT,
        waits=protocol.waits(seconds),
        seconds=seconds,
        **literal,
    )
    return text if on_entry else text + INSTALL


def automount_text(protocol: Protocol, path: str) -> str:
    """Return the unit that has `path` mounted when somebody enters it."""
    return AUTOMOUNT.format(mark=protocol.mark, path=path.replace("%", "%%")) + INSTALL


def missing_options(shown: re.Pattern[str], wanted: str, actual: set[str]) -> list[str]:
    """Return the options of `wanted` (text) that a mount with `actual` (set) shows not to have.

    `shown`: which options the kernel's table shows as they were given.
    """
    return [word for word in wanted.split(",") if shown.fullmatch(word) and word not in actual]
