#!/usr/bin/python3 -IS
# SPDX-License-Identifier: Apache-2.0
"""Keep users from the metadata server, and prove it: `muster-guard keep` and `muster-guard check`.

`keep` loads the rules again as soon as they are not those of guard.nft: another program may have
replaced all rules of this machine, such as `systemctl restart nftables`. `check` tries what a user
would do, so it holds whatever the rules look like; it ends with 1 if a user gets through.
"""

import os
import select
import socket
import subprocess
import sys
import time

NFT = "/usr/sbin/nft"
RULES = "/etc/muster/guard.nft"
LIST = [NFT, "list", "table", "inet", "muster_guard"]

# The kernel announces changes of rules to this group: netlink(7), linux/netfilter/nfnetlink.h.
# Python 3.10 has no names for these.
NETLINK_NETFILTER, NFNLGRP_NFTABLES = 12, 7

LOOK_S = 60.0
"""How often to look at the rules although no change was announced."""
PAUSE_S = 0.2
"""After loading, so that rules which can't be loaded don't keep a core busy."""

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


def output(command: list[str]) -> str:
    """Return what a command prints; nothing if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""


def wanted() -> str:
    """Return the rules of guard.nft as `nft list` prints them: loaded where they do nothing."""
    shell = f"{NFT} --file {RULES} && exec {' '.join(LIST)}"
    return output(["unshare", "--net", "sh", "-c", shell])


def keep() -> None:
    """Load the rules whenever they are not those of the file, for ever."""
    changes = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
    changes.bind((0, 1 << (NFNLGRP_NFTABLES - 1)))
    changes.setblocking(False)
    expected = wanted()
    while True:
        loaded = output(LIST)
        # A file that nft refuses is wanted by nobody: what is loaded then is better than nothing.
        if loaded != expected or not loaded:
            subprocess.run([NFT, "--file", RULES], check=False)
            # After loading: a reload of the unit with a changed file is no loss.
            expected = wanted()
            if loaded != expected:
                what = "changed" if loaded else "gone"
                print(f"muster: the rules were {what}; loaded {RULES} again", file=sys.stderr)
            time.sleep(PAUSE_S)
        wait(changes)


def wait(changes: socket.socket) -> None:
    """Return when a change was announced, after LOOK_S at the latest."""
    select.select([changes], [], [], LOOK_S)
    try:
        while changes.recv(1 << 16):
            pass
    except BlockingIOError:
        pass
    except OSError:
        pass  # ENOBUFS: more was announced than the kernel kept, which is a change too


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
    if words == ["keep"]:
        keep()
    print("usage: muster-guard keep|check", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
