"""Shares of each zone, so that one whose calls hang does not take those of the others."""

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


class Pools:
    """Threads for each zone; they start when they are needed."""

    def __init__(self, threads: int, name: str) -> None:
        """`threads` are each zone's, at most."""
        self._threads = threads
        self._name = name
        self._lock = threading.Lock()
        self._pools: dict[str, ThreadPoolExecutor] = {}

    def submit(self, zone: str, work: Callable[..., None], *arguments: object) -> None:
        """Do some work in a thread of a zone."""
        with self._lock:
            if zone not in self._pools:
                self._pools[zone] = ThreadPoolExecutor(self._threads, f"{self._name} {zone}")
            pool = self._pools[zone]
        pool.submit(work, *arguments)

    def close(self) -> None:
        """Drop what has not begun."""
        with self._lock:
            for pool in self._pools.values():
                pool.shutdown(wait=False, cancel_futures=True)


class Slots:
    """Places of work that goes on at the same time, of which each zone gets only a part."""

    def __init__(self, most: int, most_of_zone: int) -> None:
        self._most = most
        self._most_of_zone = most_of_zone
        self._changed = threading.Condition()
        self._taken: Counter[str] = Counter()

    def take(self, zone: str, seconds: float) -> bool:
        """Wait for a place, at most so many real seconds; return whether it is taken."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._free(zone), seconds):
                return False
            self._taken[zone] += 1
            return True

    def give_back(self, zone: str) -> None:
        """Free a place."""
        with self._changed:
            self._taken[zone] -= 1
            self._changed.notify_all()

    def _free(self, zone: str) -> bool:
        return self._taken.total() < self._most and self._taken[zone] < self._most_of_zone
