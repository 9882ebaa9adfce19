"""What the daemon tells systemd: that it is ready, and that it is not stuck."""

import os
import socket

READY = "READY=1"
ALIVE = "WATCHDOG=1"
"""Every half of WatchdogSec or more often, by the thread whose standstill is to be noticed."""


def notify(state: str) -> None:
    """Tell systemd a state; where nobody asked to be told, nothing: sd_notify(3)."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        # One that is in no folder begins with a zero byte: unix(7).
        address = f"\0{address[1:]}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(state.encode(), address)
