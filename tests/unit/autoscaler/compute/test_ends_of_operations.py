"""Operations are polled until they have ended, whatever becomes of one of them."""

import threading
from types import SimpleNamespace
from unittest.mock import Mock

from driverkit import until
from quick import FastClock

from muster.autoscaler.compute.operations import Operations

NAMES = [f"operation-{number}" for number in range(5)]


def test_a_fault_at_the_end_of_one_does_not_lose_the_ends_of_others():
    stop = threading.Event()
    page = {"items": [{"name": name, "status": "DONE"} for name in NAMES]}
    transport = Mock(call=lambda *_, **__: page, limits=SimpleNamespace(try_s=1))
    operations = Operations(transport, "p", (0.5, 0.5), stop, clock=FastClock())
    ended: list[str] = []

    def end(operation):
        ended.append(operation["name"])
        if operation["name"] == NAMES[0]:
            raise ValueError("an answer that is not as documented")

    for name in NAMES:
        operations.follow({"name": name, "zone": "z"}, float("inf"), end)
    until(lambda: sorted(ended) == NAMES)
    stop.set()
