"""Signals for test suites that have machines: they clean up when a signal ends them."""

import signal

import pytest


@pytest.fixture(scope="session", autouse=True)
def end_cleanly_when_told() -> None:
    """Make SIGTERM and SIGHUP run the finalizers as Ctrl-C does: no container stays behind."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    # SIGINT too: a shell starts what runs in the background with SIGINT ignored.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
