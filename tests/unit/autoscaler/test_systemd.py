"""systemd is told what it waits for, at the address that it gives."""

import os
import socket

import pytest

from muster.autoscaler import systemd


@pytest.fixture(params=["folder", "abstract"])
def heard(request, tmp_path, monkeypatch):
    """A socket as systemd opens it, of either kind."""
    name = f"muster-{os.getpid()}" if request.param == "abstract" else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0{name}" if request.param == "abstract" else name)
        listener.settimeout(10)
        address = f"@{name}" if request.param == "abstract" else name
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        yield listener


def test_systemd_hears_that_the_daemon_is_ready_and_alive(heard):
    systemd.notify(systemd.READY)
    systemd.notify(systemd.ALIVE)
    assert [heard.recv(100), heard.recv(100)] == [b"READY=1", b"WATCHDOG=1"]


def test_without_systemd_nobody_is_told(monkeypatch):
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    systemd.notify(systemd.READY)
