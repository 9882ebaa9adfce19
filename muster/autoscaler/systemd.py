"""Tells systemd that the daemon is ready, and that it is not stuck."""

import os
import socket

READY = "READY=1"
ALIVE = "WATCHDOG=1"
"""At least every half of WatchdogSec, from the thread that the watchdog watches."""


def notify(state: str) -> None:
    """Tell systemd a state; nothing without NOTIFY_SOCKET: sd_notify(3)."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        # An abstract socket address begins with a zero byte: unix(7).
        address = f"\0{address[1:]}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(state.encode(), address)
