#!/usr/bin/python3 -IS
# SPDX-License-Identifier: Apache-2.0
"""Keep a table of nftables loaded: `muster-keep-rules FILE TABLE`.

It loads FILE again as soon as the table, of the family inet, is not what it was after loading:
another program may have replaced all rules of this machine, such as `systemctl restart nftables`.
"""

import select
import socket
import subprocess
import sys
import time

NFT = "/usr/sbin/nft"

# The kernel announces changes of rules to this group: netlink(7), linux/netfilter/nfnetlink.h.
# Python 3.10 has no names for these.
NETLINK_NETFILTER, NFNLGRP_NFTABLES = 12, 7

LOOK_S = 60.0
"""How often to look at the rules although no change was announced."""
PAUSE_S = 0.2
"""After loading, so that rules which can't be loaded don't keep a core busy."""


def listed(table: str) -> str:
    """Return the rules of a table; nothing if it is gone."""
    command = [NFT, "list", "table", "inet", table]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""


def kept(file: str, table: str, expected: str) -> str:
    """Load the file if the rules are not the expected ones; return those to expect from now on.

    It returns nothing if nft refuses the file, such as for a name that no name server tells now.
    """
    before = listed(table)
    if before and before == expected:
        return expected
    # One transaction: a file that nft refuses changes nothing.
    is_loaded = subprocess.run([NFT, "--file", file], check=False).returncode == 0
    # Names in the file have become addresses.
    after = listed(table) if is_loaded else ""
    if not is_loaded:
        print(
            f"muster: nft refuses {file}, so the rules of {table} stay as they are",
            file=sys.stderr,
        )
    # A reload with a changed file is no loss.
    elif before != after:
        what = "changed" if before else "gone"
        print(f"muster: the rules of {table} were {what}; loaded {file} again", file=sys.stderr)
    time.sleep(PAUSE_S)
    return after


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


def main(words: list[str]) -> int:
    """Run as the command line says, for ever; return the exit status."""
    if len(words) != 2:
        print("usage: muster-keep-rules FILE TABLE", file=sys.stderr)
        return 2
    changes = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
    changes.bind((0, 1 << (NFNLGRP_NFTABLES - 1)))
    changes.setblocking(False)
    expected = ""
    while True:
        expected = kept(words[0], words[1], expected)
        wait(changes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
