"""Waits for a state with a timeout, for suites with machines."""

import time
from collections.abc import Callable

import pytest
from testinfra.host import Host

PAUSE_SECONDS = 0.3
"""Seconds between two checks: each starts a process, here or on another machine."""


def until(
    state: Callable[[], object],
    what: str,
    seconds: float = 60,
    seen: Callable[[], str] = lambda: "",
) -> None:
    """Return when `state()` holds; fail with `what` and `seen()` after the timeout."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if state():
            return
        time.sleep(PAUSE_SECONDS)
    pytest.fail(f"not within {seconds:.0f} s: {what}\n{seen()}".rstrip())


def wait_for(host: Host, command: str, wanted: str, seconds: float = 30) -> str:
    """Run `command` until it prints `wanted`; return its last output, for the test to compare."""
    deadline = time.monotonic() + seconds
    while True:
        said = str(host.run(command).stdout.strip())
        if said == wanted or time.monotonic() > deadline:
            return said
        time.sleep(PAUSE_SECONDS)
