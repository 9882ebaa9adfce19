# SPDX-License-Identifier: Apache-2.0
"""Look whether this process is closed off from the host; then become the command on stdin.

    inside.py FOLDER

The service of a build starts it as the account that builds. It imports nothing of its package.
"""

import os
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence

TEMPORARY = "/var/tmp"  # noqa: S108
"""TMPDIR and HOME. It is the build's own, and on a disk: /tmp may be in memory."""

METADATA = ("169.254.169.254", "fd20:ce::254")
"""The metadata server of Google Cloud, which gives the VM's token to everybody who asks."""

KERNELS = ("/dev", "/proc", "/sys")
"""Mounts in these are the kernel's; the owners of what is in them count."""

FIRST = b"muster-build: closed off\n"
"""The first line from inside; then the command starts."""


def inside(root: str) -> int:
    """Look whether this process is closed off; then become the command."""
    if wrong := "; ".join(faults(root)):
        sys.stdout.write(f"{wrong}\n")
        return 1
    command = sys.stdin.read()
    os.write(1, FIRST)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(1, 2)
    # Python ignores them, and what it becomes would too.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    return os.execv("/bin/sh", ["sh", "-ec", command])


def faults(root: str) -> Iterator[str]:
    """Yield what a build could do and must not: some of it systemd leaves out without a word."""
    with open("/proc/self/status", encoding="utf-8") as stream:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in stream if ":\t" in line)
    if os.getuid() == 0 or int(status["CapBnd"], 16) != 0 or status["NoNewPrivs"] != "1":
        yield "it would have rights of root"
        return
    own = (root, "/tmp", TEMPORARY, *KERNELS)  # noqa: S108
    for place, options, kind in mounts():
        if "rw" in options and kind != "autofs" and not is_below(place, own):
            yield f"it could write to {place}"
    with tempfile.TemporaryFile() as trial:
        try:
            os.fchmod(trial.fileno(), 0o4700)
        except PermissionError:
            pass
        else:
            yield "it could make set-uid programs"
    resolving = name_servers()
    for address in METADATA:
        if is_answered(address) if address in resolving else is_sent_to(address):
            yield f"it could reach the metadata server at {address}"


def mounts(table: str = "/proc/self/mountinfo") -> Iterator[tuple[str, list[str], str]]:
    """Yield the mount points, each with the mount's own options and its type: proc(5).

    People name mounts: what else Python takes for the end of a line or a word may be in there.
    """
    with open(table, encoding="utf-8", errors="backslashreplace", newline="\n") as stream:
        for line in stream:
            own, _, of_system = line.partition(" - ")
            place, options = own.split(" ")[4:6]
            yield place, options.split(","), of_system.split(" ")[0]


def is_sent_to(address: str) -> bool:
    """Whether a packet to `address` leaves this process: the filter refuses it at once."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as trial:
            trial.sendto(b"", (address, 9))
    except OSError:  # the filter, or no way there
        return False
    return True


def is_answered(address: str) -> bool:
    """Whether the server at `address`, which is needed for names, might give a token.

    Muster's role cloud_vm has a guard that refuses this port to all but some users.
    """
    try:
        socket.create_connection((address, 80), timeout=5).close()
    except ConnectionRefusedError:
        return False
    except OSError:
        return True
    return True


def is_below(path: str, folders: Sequence[str]) -> bool:
    """Whether `path` is one of `folders` or in one of them."""
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def name_servers() -> list[str]:
    """Return the addresses that this host asks for names."""
    try:
        with open("/etc/resolv.conf", encoding="utf-8") as stream:
            lines = [line.split() for line in stream]
    except FileNotFoundError:
        return []
    return [words[1] for words in lines if len(words) > 1 and words[0] == "nameserver"]


if __name__ == "__main__":
    sys.exit(inside(sys.argv[1]))
