#!/usr/bin/python3 -IS
# SPDX-License-Identifier: Apache-2.0
"""Prove that users are kept from the metadata server: `muster-guard check`.

It tries what a user would do, so it holds whatever the rules look like; it ends with 1 if a user
gets through.
"""

import os
import socket
import sys

# https://cloud.google.com/compute/docs/metadata/querying-metadata; 443 is 80 with certificates.
METADATA = [
    (socket.AF_INET, "169.254.169.254", 80),
    (socket.AF_INET, "169.254.169.254", 443),
    (socket.AF_INET6, "fd20:ce::254", 80),
    (socket.AF_INET6, "fd20:ce::254", 443),
]
CONNECT_S = 1.5
"""The metadata server is on the VM's own host; the guard refuses at once."""
NOBODY = 65534


def open_addresses() -> list[str]:
    """Return where a user without rights reaches the metadata server."""
    reached = []
    for family, address, port in METADATA:
        # The guard judges a socket by who made it.
        os.seteuid(NOBODY)
        try:
            attempt = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            continue  # no IPv6 here
        finally:
            os.seteuid(0)
        with attempt:
            attempt.settimeout(CONNECT_S)
            try:
                attempt.connect((address, port))
            except OSError:
                continue
        reached.append(f"{address} port {port}")
    return reached


def check() -> int:
    """Say whether a user gets through; return the exit status."""
    reached = open_addresses()
    if not reached:
        print("users are refused")
        return 0
    print(
        f"users reach the metadata server ({', '.join(reached)}), which gives them this VM's token;"
        " `systemctl reload muster-guard` loads the rules, journalctl -u muster-guard-keeper there"
        " says more"
    )
    return 1


def main(words: list[str]) -> int:
    """Run as the command line says; return the exit status."""
    if words == ["check"]:
        return check()
    print("usage: muster-guard check", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
