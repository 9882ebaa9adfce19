"""systemd gets the notifications that it waits for, at the address that it sets."""

import os
import socket

import pytest

from muster.autoscaler import systemd


@pytest.fixture(params=["folder", "abstract"])
def listener(request, tmp_path, monkeypatch):
    """A socket as systemd opens it, of either kind."""
    name = f"muster-{os.getpid()}" if request.param == "abstract" else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(f"\0{name}" if request.param == "abstract" else name)
        server.settimeout(10)
        address = f"@{name}" if request.param == "abstract" else name
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        yield server


def test_systemd_gets_ready_and_alive(listener):
    systemd.notify(systemd.READY)
    systemd.notify(systemd.ALIVE)
    assert [listener.recv(100), listener.recv(100)] == [b"READY=1", b"WATCHDOG=1"]


def test_without_systemd_nothing_is_sent(monkeypatch):
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    systemd.notify(systemd.READY)
